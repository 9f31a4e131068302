package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/audit/record"
)

// life is a log whose end is noted, over the lives of several daemons.
type life struct {
	t     *testing.T
	rnd   *rand.Rand
	path  string
	last  End // what is noted
	calls int
}

func (f *life) open() (*Log, error) {
	c := Config{Path: f.path, Rotate: 4000, Last: f.last, Note: func(e End) error { f.last = e; return nil }}
	c.Log = slog.New(slog.DiscardHandler)
	return Open(c)
}

// live writes some records, and ends as daemons do, or killed before the last note.
func (f *life) live() (killed bool) {
	l, err := f.open()
	if err != nil {
		f.t.Fatal(err)
	}
	before := f.last
	for range f.rnd.IntN(9) {
		before = f.last
		if err := l.Decided(decision(f.calls)); err != nil {
			f.t.Fatal(err)
		}
		f.calls++
	}
	l.checking.Wait()
	if what := l.Noticed(); what != "" {
		f.t.Errorf("nobody changed it, and %s", what)
	}
	if killed = f.rnd.IntN(3) == 0 && before.Seq > 0; killed {
		f.last = before
	}
	if err := l.Close(); err != nil {
		f.t.Fatal(err)
	}
	return killed
}

func (f *life) contents() map[string]string {
	files, err := record.Files(f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	all := make(map[string]string)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.t.Fatal(err)
		}
		all[name] = string(b)
	}
	return all
}

func (f *life) write(name, text string) {
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// changes are what somebody may do to the files of a log; each is given one of them.
var changes = map[string]func(f *life, name, text string, older map[string]string){
	"nothing": func(*life, string, string, map[string]string) {},
	"a byte": func(f *life, name, text string, _ map[string]string) {
		b := []byte(text)
		b[f.rnd.IntN(len(b))] ^= byte(1 << f.rnd.IntN(7))
		f.write(name, string(b))
	},
	"a line less": func(f *life, name, text string, _ map[string]string) {
		lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
		i := f.rnd.IntN(len(lines))
		f.write(name, strings.Join(slices.Delete(lines, i, i+1), ""))
	},
	"a line twice": func(f *life, name, text string, _ map[string]string) {
		lines := strings.SplitAfter(text, "\n")
		i := f.rnd.IntN(len(lines) - 1)
		f.write(name, strings.Join(slices.Insert(lines, i+f.rnd.IntN(len(lines)-i), lines[i]), ""))
	},
	"two lines change places": func(f *life, name, text string, _ map[string]string) {
		lines := strings.SplitAfter(text, "\n")
		i, j := f.rnd.IntN(len(lines)-1), f.rnd.IntN(len(lines)-1)
		lines[i], lines[j] = lines[j], lines[i]
		f.write(name, strings.Join(lines, ""))
	},
	"the tail": func(f *life, name, text string, _ map[string]string) {
		f.write(name, text[:f.rnd.IntN(len(text))])
	},
	"the last records": func(f *life, name, text string, _ map[string]string) {
		lines := strings.SplitAfter(text, "\n")
		f.write(name, strings.Join(lines[:f.rnd.IntN(len(lines))], ""))
	},
	"another's record": func(f *life, name, text string, _ map[string]string) {
		line, _ := record.AppendLine(nil, f.last.Seq+1, f.last.Hash[:len(f.last.Hash)-1]+"x", []byte(`"kind":"decision"`))
		f.write(name, text+string(line))
	},
	"removed": func(f *life, name, _ string, _ map[string]string) {
		if err := os.Remove(name); err != nil {
			f.t.Fatal(err)
		}
	},
	"all removed": func(f *life, _, _ string, _ map[string]string) {
		if err := os.RemoveAll(filepath.Dir(f.path)); err != nil {
			f.t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Dir(f.path), 0o700); err != nil {
			f.t.Fatal(err)
		}
	},
	"written anew": func(f *life, name, _ string, _ map[string]string) {
		for old := range f.contents() {
			if err := os.Remove(old); err != nil {
				f.t.Fatal(err)
			}
		}
		var b []byte
		hash := record.Genesis
		for seq := range f.last.Seq + uint64(f.rnd.IntN(3)) {
			b, hash = record.AppendLine(b, seq+1, hash, []byte(`"time":"2026-01-01T00:00:00Z","kind":"decision"`))
		}
		f.write(f.path, string(b))
	},
	"an older copy": func(f *life, _, _ string, older map[string]string) {
		for old := range f.contents() {
			if err := os.Remove(old); err != nil {
				f.t.Fatal(err)
			}
		}
		for name, text := range older {
			f.write(name, text)
		}
	},
	"an older copy of the newest": func(f *life, _, _ string, older map[string]string) {
		f.write(f.path, older[f.path])
	},
}

// TestChangedWhileNoneRan: whatever somebody does to the files of a log between two daemons
// is noticed at the start of the next, unless it cannot be told from what may happen: the
// oldest files are moved away, and a record that was not noted yet, since its daemon was
// killed just then, is not there. Nothing is noticed where nothing was done.
func TestChangedWhileNoneRan(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(changes))
	seen := make(map[string]int)
	for seed := range uint64(8 * len(names)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		name := names[int(seed)%len(names)]
		t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
			f := &life{t: t, rnd: rnd, path: filepath.Join(t.TempDir(), "audit", record.DefaultName)}
			if err := os.Mkdir(filepath.Dir(f.path), 0o700); err != nil {
				t.Fatal(err)
			}
			killed, older := false, map[string]string(nil)
			for i := range 2 + rnd.IntN(4) {
				if killed = f.live(); i == 0 {
					older = f.contents()
				}
			}
			before := f.contents()
			file := slices.Sorted(maps.Keys(before))[rnd.IntN(len(before))]
			if before[file] == "" {
				return // nothing was written
			}
			changes[name](f, file, before[file], older)
			if f.changed(before, killed) {
				seen[name]++
				f.noticed()
			} else {
				f.live()
			}
		})
	}
	for _, name := range names {
		if (seen[name] > 2) != (name != "nothing") {
			t.Errorf("%s: %d cases that can be noticed", name, seen[name])
		}
	}
}

// changed says whether the log differs from what the note and the chain allow.
func (f *life) changed(before map[string]string, killed bool) bool {
	after := f.contents()
	if maps.Equal(before, after) {
		return false
	}
	files, err := record.Files(f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	sum, err := record.Verify(files, record.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	whole := sum.Break == nil && sum.Last >= f.last.Seq && sum.First > 0
	if whole && sum.First <= f.last.Seq {
		with, err := record.Verify(files, record.Options{Expect: f.last.Hash})
		whole = err == nil && with.Break == nil
	}
	// But for what was not noted, whatever goes on from the oldest that is left is whole.
	for name, text := range after {
		whole = whole && (text == before[name] || killed && strings.HasPrefix(before[name], text))
	}
	return !whole
}

// noticed looks whether the next daemon says it, once, and the check of the log too.
func (f *life) noticed() {
	l, err := f.open()
	if err != nil {
		if !strings.Contains(err.Error(), "toolctl audit verify") {
			f.t.Errorf("it does not start: %v", err)
		}
		return
	}
	l.checking.Wait()
	files, _ := record.Files(f.path)
	sum, err := record.Verify(files, record.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	torn := sum.Torn > 0 && l.Noticed() == "" // it may be a write that was cut off
	if !torn && (l.Noticed() == "" || l.Errors() == 0) {
		f.t.Errorf("it is not noticed: %+v, %d errors", sum, l.Errors())
	}
	if sum.Break == nil && sum.Tampered+sum.Torn == 0 {
		f.t.Errorf("audit verify does not say it: %+v", sum)
	}
	if err := l.Decided(decision(f.calls)); err != nil {
		f.t.Errorf("calls do not go on: %v", err)
	}
	if err := l.Close(); err != nil {
		f.t.Fatal(err)
	}
	said := 0
	for i := range 3 {
		l, err := f.open()
		if err != nil {
			f.t.Fatal(err)
		}
		l.checking.Wait()
		if err := l.Close(); err != nil {
			f.t.Fatal(err)
		}
		n := 0
		for _, text := range f.contents() {
			n += strings.Count(text, `"kind":"tampered"`)
		}
		if i > 0 && n != said {
			f.t.Errorf("start %d after it says it again: %d records", i+1, n-said)
		}
		said = n
	}
}

// TestTornAndMissing: that records are missing is on record once, also where the log ends in the
// middle of one of them.
func TestTornAndMissing(t *testing.T) {
	t.Parallel()
	for _, keep := range []int{1, 2, 3} {
		f := &life{t: t, path: filepath.Join(t.TempDir(), record.DefaultName)}
		c := Config{Path: f.path, Note: func(e End) error { f.last = e; return nil }}
		l := open(t, c)
		for i := range 5 {
			if err := l.Decided(decision(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(f.contents()[f.path], "\n")
		f.write(f.path, strings.Join(lines[:keep], "")+lines[keep][:40])
		for start := range 3 {
			c.Last = f.last
			l := open(t, c)
			l.checking.Wait()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			text := f.contents()[f.path]
			if tampered, torn := strings.Count(text, `"kind":"tampered"`), strings.Count(text, `"kind":"torn"`); tampered != 1 || torn != 1 {
				t.Errorf("of 5 %d are left, start %d: %d records say that some are missing, %d that one is torn", keep, start+1, tampered, torn)
			}
		}
	}
}

// readCounter counts the bytes that are read.
type readCounter struct {
	io.ReaderAt
	n int64
}

func (c *readCounter) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, at)
	c.n += int64(n)
	return n, err
}

// TestSearch: a record is found without reading what stands before and behind it, where the log is
// as it was written; where it is not, if all from the record on is. One that is not there is not.
func TestSearch(t *testing.T) {
	t.Parallel()
	const many = 20_000
	var text []byte
	var ends []int
	hash := record.Genesis
	for i := range uint64(many) {
		text, hash = record.AppendLine(text, 2*i+1, hash, []byte(`"time":"2026-01-01T00:00:00Z","kind":"decision","reason":"`+strings.Repeat("x", int(i%700))+`"`))
		ends = append(ends, len(text))
	}
	whole := &readCounter{ReaderAt: bytes.NewReader(text)}
	for _, i := range []int{0, 1, 2, many / 2, many - 2, many - 1} {
		at, err := search(whole, int64(len(text)), uint64(2*i+1))
		if want, _ := lastOf(whole, int64(ends[i])); err != nil || at != want {
			t.Errorf("record %d: got %v, %v", 2*i+1, at, err)
		}
	}
	for _, seq := range []uint64{0, 2, many, 2 * many} {
		if at, err := search(whole, int64(len(text)), seq); !errors.Is(err, errNotFound) {
			t.Errorf("record %d: got %v, %v", seq, at, err)
		}
	}
	if whole.n > 40<<20 { // 10 searches of 15 steps, each within two buffers
		t.Errorf("%d MiB were read", whole.n>>20)
	}
	broken := bytes.NewReader(bytes.Replace(text, []byte(`"kind":"decision"`), []byte(`"kind":"decisiun"`), many-10))
	for seq, want := range map[uint64]error{2*many - 5: nil, 11: errNotFound} {
		if at, err := search(broken, int64(len(text)), seq); !errors.Is(err, want) {
			t.Errorf("record %d of a changed log: got %v, %v", seq, at, err)
		}
	}
}

// TestNoteThatFails: a log is written to though nothing can be noted, and is ahead then.
func TestNoteThatFails(t *testing.T) {
	l := open(t, Config{Strict: true, Note: func(End) error { return errors.New("no room") }})
	for i := range 3 {
		if err := l.Decided(decision(i)); err != nil {
			t.Fatal(err)
		}
	}
	old := End{First: 1, Seq: 1, Hash: records(t, l.cfg.Path)[0].Hash}
	if err := l.Close(); err != nil || l.Errors() > 0 {
		t.Errorf("%v, %d errors", err, l.Errors())
	}
	next := open(t, Config{Path: l.cfg.Path, Last: old})
	next.checking.Wait()
	if what := next.Noticed(); what != "" {
		t.Errorf("it is ahead, and %s", what)
	}
}

// TestOldestMovedAway is what retention asks for: it is said, and no alarm.
func TestOldestMovedAway(t *testing.T) {
	f := &life{t: t, rnd: rand.New(rand.NewPCG(1, 1)), path: filepath.Join(t.TempDir(), record.DefaultName)}
	for range 6 {
		f.live()
	}
	files, err := record.Files(f.path)
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	if err := errors.Join(os.Remove(files[0]), os.Remove(files[1])); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	c := Config{Path: f.path, Last: f.last, Log: slog.New(slog.NewTextHandler(&said, nil))}
	l := open(t, c)
	l.checking.Wait()
	if l.Noticed() != "" || l.Errors() > 0 || !strings.Contains(said.String(), "the oldest records of the audit log are not here any more") {
		t.Errorf("%q: %s", l.Noticed(), said.String())
	}
	if l.oldest <= f.last.First {
		t.Errorf("the oldest is record %d", l.oldest)
	}
}

func BenchmarkInspect(b *testing.B) {
	var lines []byte
	hash := record.Genesis
	for i := range uint64(20_000) {
		lines, hash = record.AppendLine(lines, i+1, hash, []byte(`"kind":"decision","reason":"`+strings.Repeat("x", 900)+`"`))
	}
	b.SetBytes(int64(len(lines)))
	for b.Loop() {
		var i record.Inspector
		if err := record.NewReader("", bytes.NewReader(lines)).Rest(func(l record.Line) error { i.Line(l); return nil }); err != nil {
			b.Fatal(err)
		}
		if what, _ := i.Found(); what != "" {
			b.Fatal(what)
		}
	}
}
