package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// chain writes n records and gives their lines without their ends.
func chain(t testing.TB, n int) []string {
	t.Helper()
	var lines []string
	prev := Genesis
	for i := range n {
		members, err := Encode(&Body{
			Time: time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC), Kind: KindDecision, Tenant: "default",
			Peer: &Peer{UID: 7, PID: 8}, Call: fmt.Sprintf("call_%d", i+1), Verdict: "allow", Rule: "config.toml:3",
		})
		if err != nil {
			t.Fatal(err)
		}
		line, hash := AppendLine(nil, uint64(i+1), prev, members)
		prev = hash
		lines = append(lines, strings.TrimSuffix(string(line), "\n"))
	}
	return lines
}

// rewrite makes a record anew with another body, as somebody would who knows how
// hashes are made.
func rewrite(t testing.TB, line, prev string, change func(*Record)) string {
	t.Helper()
	r, err := Decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if prev != "" {
		r.Prev = prev
	}
	change(r)
	members, err := Encode(&r.Body)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := AppendLine(nil, r.Seq, r.Prev, members)
	return strings.TrimSuffix(string(out), "\n")
}

func hashIn(t testing.TB, line string) string {
	t.Helper()
	r, err := Decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return r.Hash
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

func TestLineIsOneLineOfASCII(t *testing.T) {
	nasty := []string{
		"a\n{\"seq\":1,\"kind\":\"decision\",\"verdict\":\"allow\"}\n", "\x1b[2J\x1b]0;x\a", "\u2028\u2029\u0085\u202e",
		"\x00\x7f\u009b", "\xff\xfe", `"},"hash":"` + Genesis + `"}`, "ünïcödé \U0001f600", strings.Repeat("\\", 9),
	}
	for _, s := range nasty {
		in, err := json.Marshal(map[string]string{"command": s})
		if err != nil {
			t.Fatal(err)
		}
		members, err := Encode(&Body{Kind: KindDecision, Tool: s, Reason: s, Input: in})
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		line, _ := AppendLine(nil, 1, Genesis, members)
		for i, c := range line[:len(line)-1] {
			if c < ' ' || c >= 0x7f {
				t.Fatalf("%q: byte %d of the line is %#x", s, i, c)
			}
		}
		r, err := Decode(line[:len(line)-1])
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); utf8.ValidString(s) && r.Tool != want {
			t.Errorf("read back %q, want %q", r.Tool, want)
		}
	}
}

func TestTooLong(t *testing.T) {
	if _, err := Encode(&Body{Reason: strings.Repeat("x", MaxLine)}); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
	if _, err := Decode(bytes.Repeat([]byte("x"), MaxLine)); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
	big, err := json.Marshal(strings.Repeat("\u2028", MaxInput/4))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Encode(&Body{Input: big}); err != nil {
		t.Errorf("the longest input does not fit: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := chain(t, 2)[1]
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, line, want string
	}{
		{"nothing", "", "it is not a record"},
		{"no JSON", `{"seq":2,"prev":"` + Genesis + `",x,"hash":"` + Genesis + `"}`, "it is not a record"},
		{"another order", strings.Replace(good, `{"seq":2,`, `{"x":1,"seq":2,`, 1), "it does not begin with seq"},
		{"seq is 0", strings.Replace(good, `{"seq":2,`, `{"seq":0,`, 1), "it does not begin with seq"},
		{"seq has zeros", strings.Replace(good, `{"seq":2,`, `{"seq":02,`, 1), "it is not a record"},
		{"seq is too large", strings.Replace(good, `{"seq":2,`, `{"seq":99999999999999999999,`, 1), "it is not a record"},
		{"seq is cut off", `{"seq":`, "it is not a record"},
		{"prev is short", strings.Replace(good, `"prev":"`, `"prev":"0`, 1), ErrChanged.Error()},
		{"prev is cut off", good[:40], "it is not a record"},
		{"no hash", good[:len(good)-5] + `"}`, ErrChanged.Error()},
		{"cut off before the hash", good[:90], "it is not a record"},
		{"capitals", good[:len(good)-4] + `AB"}`, ErrChanged.Error()},
		{"not ASCII", strings.Replace(good, "default", "défault", 1), "not a printable ASCII"},
		{"second seq", strings.Replace(good, `"kind"`, `"seq":7,"kind"`, 1), "stands twice"},
		{"second hash", strings.Replace(good, `"kind"`, `"hash":"x","kind"`, 1), "its hash does not fit"},
		{"one word", strings.Replace(good, "allow", "deny", 1), "its hash does not fit"},
		{"two records", good + good, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Decode([]byte(tt.line))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestVerify changes a log in every way that somebody could and looks where the
// check stops.
func TestVerify(t *testing.T) {
	good := chain(t, 6)
	edit := func(fn func(l []string) []string) string { return text(fn(append([]string(nil), good...))) }
	tests := []struct {
		name, text string
		opts       Options
		line       int
		kind, what string
	}{
		{name: "as written", text: text(good), opts: Options{Whole: true, Expect: hashIn(t, good[3])}},
		{name: "empty"},
		{name: "a middle part", text: text(good[2:])},
		{name: "a middle part, said to be whole", text: text(good[2:]), opts: Options{Whole: true}, line: 1, kind: BreakMissing, what: "records 1 to 2 are not here"},
		{name: "a word changed", text: edit(func(l []string) []string { l[2] = strings.Replace(l[2], "allow", "deny", 1); return l }), line: 3, kind: BreakChanged, what: "hash does not fit"},
		{
			name: "a record made anew", line: 4, kind: BreakChanged, what: "one of them was replaced",
			text: edit(func(l []string) []string {
				l[2] = rewrite(t, l[2], "", func(r *Record) { r.Verdict = "deny" })
				return l
			}),
		},
		{name: "a record removed", text: edit(func(l []string) []string { return append(l[:2], l[3:]...) }), line: 3, kind: BreakMissing, what: "record 3 is not here"},
		{name: "records removed", text: edit(func(l []string) []string { return append(l[:1], l[4:]...) }), line: 2, kind: BreakMissing, what: "records 2 to 4 are not here"},
		{name: "two exchanged", text: edit(func(l []string) []string { l[2], l[3] = l[3], l[2]; return l }), line: 3, kind: BreakReordered, what: "record 3 stands at"},
		{name: "one moved to the end", text: edit(func(l []string) []string { one := l[1]; return append(append(l[:1], l[2:]...), one) }), line: 2, kind: BreakReordered, what: ":6"},
		{name: "one twice", text: edit(func(l []string) []string { return append(l[:3], l[2:]...) }), line: 4, kind: BreakRepeated, what: "record 3 stands here twice"},
		{name: "an old one inserted", text: edit(func(l []string) []string { return append(l[:5], l[1]) }), line: 6, kind: BreakReordered, what: "record 2 follows record 5"},
		{name: "a line of something else", text: edit(func(l []string) []string { l[1] = "hello"; return l }), line: 2, kind: BreakChanged, what: "it is not a record"},
		{name: "an empty line", text: edit(func(l []string) []string { l[1] = ""; return l }), line: 2, kind: BreakChanged, what: "it is not a record"},
		{name: "cut off in the middle of a line", text: strings.TrimSuffix(text(good), "\n"), line: 6, kind: BreakTruncated, what: "has no end"},
		{name: "cut off at a line", text: text(good[:4])},
		{name: "cut off at a line, with its end known", text: text(good[:4]), opts: Options{Expect: hashIn(t, good[5])}, line: 4, kind: BreakTruncated, what: "cut off or written anew"},
		{
			name: "written anew from a place on, with its end known", opts: Options{Expect: hashIn(t, good[5])}, line: 6, kind: BreakTruncated,
			text: edit(func(l []string) []string {
				for i := 2; i < len(l); i++ {
					l[i] = rewrite(t, l[i], hashIn(t, l[i-1]), func(r *Record) { r.Verdict = "deny" })
				}
				return l
			}),
		},
		{name: "record 1 with something before it", text: rewrite(t, good[0], hashIn(t, good[4]), func(*Record) {}) + "\n", line: 1, kind: BreakChanged, what: "names a record before it"},
		{name: "an endless line", text: strings.Repeat("x", MaxLine+10) + "\n", line: 1, kind: BreakChanged, what: "longer than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := write(t, DefaultName, tt.text)
			sum, err := Verify([]string{path}, tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			if tt.kind == "" {
				if sum.Break != nil {
					t.Fatalf("broken: %v", sum.Break)
				}
				return
			}
			if sum.Break == nil {
				t.Fatalf("nothing was found: %+v", sum)
			}
			if b := sum.Break; b.Kind != tt.kind || b.Line != tt.line || !strings.Contains(b.What, tt.what) || b.File != path {
				t.Errorf("got %v, want line %d, %s, %q", b, tt.line, tt.kind, tt.what)
			}
			if !strings.HasPrefix(sum.Break.Error(), fmt.Sprintf("%s:%d: %s: ", path, tt.line, tt.kind)) {
				t.Errorf("error is %q", sum.Break)
			}
		})
	}
}

func TestVerifyCounts(t *testing.T) {
	good := chain(t, 3)
	members, err := Encode(&Body{Kind: KindGap, Gap: &Gap{Refused: 2}})
	if err != nil {
		t.Fatal(err)
	}
	gap, hash := AppendLine(nil, 4, hashIn(t, good[2]), members)
	members, err = Encode(&Body{Kind: KindTorn, Torn: &Torn{Bytes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	torn, hash := AppendLine(nil, 5, hash, members)
	dir := t.TempDir()
	path := filepath.Join(dir, DefaultName)
	for name, s := range map[string]string{OldName(path, 1): text(good[:2]), OldName(path, 3): text(good[2:]), path: string(gap) + string(torn)} {
		if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"audit.1.jsonl", "audit.0000000000000000000x.jsonl", "other.00000000000000000001.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("no log\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, whole, err := Log(dir)
	if err != nil || !whole || len(files) != 3 {
		t.Fatalf("files %q, %t, %v", files, whole, err)
	}
	sum, err := Verify(files, Options{Whole: whole})
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{Files: 3, Records: 5, First: 1, Last: 5, Hash: hash, Torn: 1, Gaps: 1}
	if *sum != want {
		t.Errorf("got %+v, want %+v", *sum, want)
	}
	if sum, err = Verify([]string{files[0], files[2]}, Options{}); err != nil || sum.Break == nil || sum.Break.Kind != BreakMissing || sum.Break.File != path {
		t.Errorf("a file is missing: %+v, %v", sum, err)
	}
	if sum, err = Verify([]string{files[1], files[0]}, Options{}); err != nil || sum.Break == nil || sum.Break.Kind != BreakReordered {
		t.Errorf("files exchanged: %+v, %v", sum, err)
	}
	if one, whole, err := Log(files[1]); err != nil || whole || len(one) != 1 {
		t.Errorf("one file: %q, %t, %v", one, whole, err)
	}
	if _, _, err := Log(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	if _, _, err := Log(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Verify([]string{filepath.Join(dir, "none")}, Options{}); err == nil {
		t.Error("no file: no error")
	}
}

// growing is a file that somebody writes to.
type growing struct{ bytes.Buffer }

func TestReaderFollows(t *testing.T) {
	var g growing
	r := NewReader("x", &g)
	next := func() (string, bool, error) {
		l, err := r.Next()
		return string(l.Text), l.Whole, err
	}
	if _, _, err := next(); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v", err)
	}
	g.WriteString("one\ntw")
	if s, whole, err := next(); s != "one" || !whole || err != nil {
		t.Fatalf("got %q, %t, %v", s, whole, err)
	}
	if s, whole, err := next(); s != "tw" || whole || err != nil {
		t.Fatalf("got %q, %t, %v", s, whole, err)
	}
	if _, _, err := next(); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v", err)
	}
	g.WriteString("o\n")
	l, err := r.Next()
	if string(l.Text) != "two" || !l.Whole || l.Number != 2 || err != nil {
		t.Fatalf("got %+v, %v", l, err)
	}
}

// FuzzDecode: whatever a file holds, reading it ends without a panic, and what
// is taken for a record is one that AppendLine writes.
func FuzzDecode(f *testing.F) {
	for _, l := range chain(f, 2) {
		f.Add([]byte(l))
		f.Add([]byte(l[:len(l)/2]))
		f.Add([]byte(l + l))
	}
	f.Add([]byte(`{"seq":1,"prev":"` + Genesis + `","input":[[[[[[` + `,"hash":"` + Genesis + `"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Decode(line)
		if err != nil {
			return
		}
		members := line[len(fmt.Sprintf(`{"seq":%d,"prev":"%s",`, r.Seq, r.Prev)) : len(line)-tailLen]
		again, hash := AppendLine(nil, r.Seq, r.Prev, members)
		if hash != r.Hash || !bytes.Equal(bytes.TrimSuffix(again, []byte("\n")), line) {
			t.Errorf("%q was taken for a record and is written as %q", line, again)
		}
	})
}

// FuzzVerify: a log with any byte changed is never found to be as it was written.
func FuzzVerify(f *testing.F) {
	good := text(chain(f, 4))
	sum, err := Verify([]string{write(f, DefaultName, good)}, Options{})
	if err != nil || sum.Break != nil {
		f.Fatal(err, sum)
	}
	f.Add(100, byte('x'))
	f.Add(len(good)-1, byte(' '))
	f.Fuzz(func(t *testing.T, at int, b byte) {
		at = min(max(at, 0), len(good)-1)
		if good[at] == b {
			return
		}
		changed := good[:at] + string([]byte{b}) + good[at+1:]
		sum, err := Verify([]string{write(t, DefaultName, changed)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if sum.Break == nil {
			t.Errorf("byte %d became %q and nothing was found", at, b)
		}
	})
}
