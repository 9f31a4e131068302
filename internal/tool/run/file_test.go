package run

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/tool/run/root"
)

// fileEnv is an Env whose whole world is a new directory; dir is the worktree,
// which the tools know as /w.
func fileEnv(t testing.TB) (env *Env, dir string) {
	t.Helper()
	needs.OpenAt2(t)
	top := t.TempDir()
	if err := os.Mkdir(top+"/w", 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := root.New(root.Config{Dir: top, UID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return &Env{Root: r, Worktree: "/w", Seen: &Seen{}}, top + "/w"
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func contentOf(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type object = map[string]any

// callTool runs a tool as the agent does: with an Env for the call alone, Prepare,
// the journey over the wire, Run.
func callTool(t *testing.T, session *Env, tool Tool, input object) (*Result, error) {
	t.Helper()
	own := *session
	env := &own
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	prep, err := tool.Prepare(t.Context(), env, raw)
	if err != nil {
		return nil, err
	}
	if prep.Result != nil {
		return asShown(prep.Result, nil)
	}
	wire, err := json.Marshal(prep)
	if err != nil {
		t.Fatal(err)
	}
	var back Prepared
	if err := json.Unmarshal(wire, &back); err != nil {
		t.Fatal(err)
	}
	return asShown(tool.Run(t.Context(), env, raw, &back))
}

// asShown is a result as a session sees it that may read all files.
func asShown(r *Result, err error) (*Result, error) {
	if r != nil {
		r.Output, r.Quote = r.Output+r.Quote, ""
	}
	return r, err
}

// mustCall is callTool for calls that have to succeed.
func mustCall(t *testing.T, env *Env, tool Tool, input object) *Result {
	t.Helper()
	r, err := callTool(t, env, tool, input)
	if err != nil {
		t.Fatal(err)
	}
	if r.IsError {
		t.Fatalf("failed: %s", r.Output)
	}
	return r
}

func expectCode(t *testing.T, err error, want Code) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func TestReadText(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "l%d\n", i+1)
		}
		return b.String()
	}
	tests := []struct {
		name, content string
		offset, limit int
		want          string
	}{
		{"small", "a\nb\n", 0, 0, "     1\ta\n     2\tb\n\n(lines 1-2 of 2, the end of the file)"},
		{"no final newline", "a\nb", 0, 0, "     1\ta\n     2\tb\n\n(lines 1-2 of 2, the end of the file)"},
		{"empty", "", 0, 0, "(the file is empty)"},
		{"one empty line", "\n", 0, 0, "     1\t\n\n(lines 1-1 of 1, the end of the file)"},
		{"crlf", "a\r\nb\r\n", 0, 0, "     1\ta\n     2\tb\n\n(lines 1-2 of 2, the end of the file; they end in CRLF)"},
		{"crlf but for the last", "a\r\nb\r\nc", 0, 0, "     1\ta\n     2\tb\n     3\tc\n\n(lines 1-3 of 3, the end of the file; they end in CRLF)"},
		{"some crlf", "a\r\nb\nc\r\nd\n", 1, 3, "     1\ta\n     2\tb\n     3\tc\n\n(lines 1-3 of 4; 2 of them end in CRLF; go on with offset 4)"},
		{"a return at the very end", "a\r", 0, 0, "     1\ta\n\n(lines 1-1 of 1, the end of the file)"},
		{"bom", "\xef\xbb\xbfa\n", 0, 0, "     1\ta\n\n(lines 1-1 of 1, the end of the file)"},
		{"limit", "a\nb\nc\n", 0, 2, "     1\ta\n     2\tb\n\n(lines 1-2 of 3; go on with offset 3)"},
		{"limit before a last line without newline", "a\nb", 0, 1, "     1\ta\n\n(lines 1-1 of 2; go on with offset 2)"},
		{"offset", "a\nb\nc\n", 2, 0, "     2\tb\n     3\tc\n\n(lines 2-3 of 3, the end of the file)"},
		{"offset of the last line", "a\nb", 2, 0, "     2\tb\n\n(lines 2-2 of 2, the end of the file)"},
		{"offset and limit", many(10), 4, 1, "     4\tl4\n\n(lines 4-4 of 10; go on with offset 5)"},
		{"long line", strings.Repeat("é", 2001) + "\nx\n", 0, 0, "     1\t" + strings.Repeat("é", 2000) + " … (line cut at 2000 characters)\n     2\tx\n\n(lines 1-2 of 2, the end of the file)"},
		{"line of just the width", strings.Repeat("é", 2000) + "\r\n", 0, 0, "     1\t" + strings.Repeat("é", 2000) + "\n\n(lines 1-1 of 1, the end of the file; they end in CRLF)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/f", tt.content)
			in := object{"file_path": "f"}
			if tt.offset > 0 {
				in["offset"] = tt.offset
			}
			if tt.limit > 0 {
				in["limit"] = tt.limit
			}
			r := mustCall(t, env, Read{}, in)
			if r.Output != tt.want || r.Title != "f" {
				t.Errorf("%s: %q\nwant %q", r.Title, r.Output, tt.want)
			}
		})
	}
	t.Run("past the end", func(t *testing.T) {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", "a\nb")
		r, err := callTool(t, env, Read{}, object{"file_path": "f", "offset": 3})
		if err != nil || !r.IsError || r.Output != "offset 3 is past the end of f, which has 2 lines" {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("2,000 lines", func(t *testing.T) {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", many(5000))
		for _, limit := range []int{0, 4000} {
			r := mustCall(t, env, Read{}, object{"file_path": "/w/f", "limit": limit})
			if !strings.HasSuffix(r.Output, "  2000\tl2000\n\n(lines 1-2000 of 5000; go on with offset 2001)") ||
				r.Metadata["truncated"] != true || r.Metadata["next_offset"] != 2001 || r.Metadata["total_lines"] != 5000 {
				t.Errorf("ends with %q, metadata %v", r.Output[len(r.Output)-80:], r.Metadata)
			}
		}
	})
	t.Run("50 KiB", func(t *testing.T) {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", strings.Repeat(strings.Repeat("x", 99)+"\n", 1000))
		shown := 0
		for offset := 1; offset <= 1000; {
			r := mustCall(t, env, Read{}, object{"file_path": "f", "offset": offset})
			if len(r.Output) > 50<<10 {
				t.Fatalf("%d bytes", len(r.Output))
			}
			shown += strings.Count(r.Output, "xxx\n")
			next, more := r.Metadata["next_offset"].(int)
			if !more {
				break
			}
			offset = next
		}
		if shown != 1000 {
			t.Errorf("paging showed %d lines of 1000", shown)
		}
	})
	t.Run("bad range", func(t *testing.T) {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", "a")
		_, err := callTool(t, env, Read{}, object{"file_path": "f", "offset": -1})
		expectCode(t, err, CodeInvalidInput)
	})
}

func TestReadKinds(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	size := func(w, h uint32) string {
		return png + string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)) + "\x08\x06\x00\x00\x00"
	}
	tests := []struct{ name, content, mime, want string }{
		{"png", size(640, 480), "image/png", "f: PNG image, 29 bytes, attached"},
		{"pdf", "%PDF-1.7\n%%EOF\n", "application/pdf", "f: PDF document, 15 bytes, attached"},
		{"pdf cut off", "%PDF-1.7\n", "", "it is a broken PDF document, cut off or damaged"},
		{"bmp cut off", "BM\xff\xff" + strings.Repeat("\x00", 10) + "\x28" + strings.Repeat("\x00", 15) + "\x01" + strings.Repeat("\x00", 9), "", "it is a broken BMP image"},
		{"huge png", size(50000, 50000), "", "cannot attach f: it is a PNG image of 29 bytes and 50000 × 50000 pixels, and models take pictures of at most 3932160 bytes and 8000 pixels on a side. Make a smaller copy"},
		{"elf", "\x7fELF\x02\x01", "", "it is ELF program or library"},
		{"gzip", "\x1f\x8b\x08\x00", "", "it is gzip data"},
		{"nul", "abc\x00def", "", "it is binary data (it has NUL bytes)"},
		{"control bytes", "ab\x01\x02\x03", "", "it is binary data (it has many control bytes)"},
		{"utf-32", "\xff\xfe\x00\x00a\x00\x00\x00", "", "it is UTF-32 text"},
		{"latin-1", "caf\xe9\n", "", "it is text that is not UTF-8"},
		{"latin-1 far below", strings.Repeat("abc\n", 3000) + "caf\xe9\n", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/f", tt.content)
			r, err := callTool(t, env, Read{}, object{"file_path": "f"})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(r.Output, tt.want) {
				t.Errorf("%q, want %q", r.Output, tt.want)
			}
			if tt.mime != "" {
				if len(r.Attachments) != 1 || r.Attachments[0].MIME != tt.mime || string(r.Attachments[0].Data) != tt.content || r.Attachments[0].Filename != "f" {
					t.Errorf("attachments %+v", r.Attachments)
				}
			} else if r.IsError == (tt.want == "") || len(r.Attachments) > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("not UTF-8 in the part shown", func(t *testing.T) {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", strings.Repeat("abc\n", 3000)+"caf\xe9\n")
		r, err := callTool(t, env, Read{}, object{"file_path": "f", "offset": 2990})
		if err != nil || !r.IsError || !strings.Contains(r.Output, "not UTF-8") {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("too large to attach", func(t *testing.T) {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", "%PDF-1.7\n")
		if err := os.Truncate(dir+"/f", 20<<20+1); err != nil {
			t.Fatal(err)
		}
		r, err := callTool(t, env, Read{}, object{"file_path": "f"})
		if err != nil || !r.IsError || !strings.Contains(r.Output, "more than 20 MiB") || !strings.Contains(r.Output, "read that") {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("pictures at the limit of providers", func(t *testing.T) {
		env, dir := fileEnv(t)
		for bytes, fits := range map[int64]bool{maxPicture: true, maxPicture + 1: false, 19 << 20: false, 1 << 40: false} {
			writeFile(t, dir+"/f", size(8000, 8000))
			if err := os.Truncate(dir+"/f", bytes); err != nil {
				t.Fatal(err)
			}
			r, err := callTool(t, env, Read{}, object{"file_path": "f"})
			if err != nil || r.IsError == fits || (len(r.Attachments) == 1) != fits {
				t.Fatalf("%d bytes: %+.300v, %v", bytes, r, err)
			}
			if fits {
				if n := base64.StdEncoding.EncodedLen(len(r.Attachments[0].Data)); n > 5<<20 {
					t.Errorf("%d bytes of base64", n)
				}
			} else if want := fmt.Sprintf("f: it is a PNG image of %d bytes and 8000 × 8000 pixels", bytes); !strings.Contains(r.Output, want) {
				t.Errorf("%q, want %q", r.Output, want)
			}
		}
	})
}

// Files that never end, or seem to be enormous, are answered from a bounded part
// of them.
func TestReadHostileSizes(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/sparse", strings.Repeat("text\n", 2000))
	if err := os.Truncate(dir+"/sparse", 1<<40); err != nil {
		t.Fatal(err)
	}
	r := mustCall(t, env, Read{}, object{"file_path": "sparse", "limit": 2})
	if !strings.Contains(r.Output, "(lines 1-2 of at least 2000; go on with offset 3)") || r.Metadata["total_exact"] != false {
		t.Errorf("sparse: %q %v", r.Output, r.Metadata)
	}
	if err := os.Truncate(dir+"/sparse", 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(dir+"/sparse", 1<<40); err != nil {
		t.Fatal(err)
	}
	if r, err := callTool(t, env, Read{}, object{"file_path": "sparse"}); err != nil || !strings.Contains(r.Output, "NUL bytes") {
		t.Errorf("sparse of zeros: %+v, %v", r, err)
	}
	writeFile(t, dir+"/line", strings.Repeat("x", 64<<20))
	if r := mustCall(t, env, Read{}, object{"file_path": "line"}); len(r.Output) > 3000 || !strings.Contains(r.Output, "line cut") {
		t.Errorf("one line: %d bytes", len(r.Output))
	}
	writeFile(t, dir+"/lines", strings.Repeat("\n", 10_000_000))
	r = mustCall(t, env, Read{}, object{"file_path": "lines", "offset": 9_999_999})
	if r.Output != "9999999\t\n10000000\t\n\n(lines 9999999-10000000 of 10000000, the end of the file)" {
		t.Errorf("lines: %q", r.Output)
	}
}

func TestReadNotRegular(t *testing.T) {
	env, dir := fileEnv(t)
	if err := unix.Mkfifo(dir+"/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	// Who waited for the other end of it would wait for ever.
	for _, tool := range []Tool{Read{}, Write{}, Edit{}} {
		_, err := callTool(t, env, tool, object{"file_path": "fifo", "content": "x", "old_string": "a", "new_string": "b"})
		expectCode(t, err, CodeNotRegularFile)
	}
	for path, want := range map[string]Code{
		"": CodeInvalidPath, "a\x00b": CodeInvalidPath, strings.Repeat("x", 300): CodeInvalidPath,
		"fifo/x": CodeInvalidPath, strings.Repeat("x/", 3000): CodeInvalidPath,
	} {
		for _, tool := range []Tool{Read{}, Write{}, Edit{}} {
			_, err := callTool(t, env, tool, object{"file_path": path, "content": "x", "old_string": "a", "new_string": "b"})
			expectCode(t, err, want)
		}
	}
}

func TestReadMissing(t *testing.T) {
	env, dir := fileEnv(t)
	for _, name := range []string{"config.go", "config_test.go", "Config.toml", "confing.go", "other"} {
		writeFile(t, dir+"/src/"+name, "x")
	}
	tests := []struct{ path, want string }{
		{"src/config", "/w/src/config does not exist. Did you mean one of these?\n/w/src/config.go\n/w/src/Config.toml\n/w/src/config_test.go"},
		{"scr/config.go", "/w/scr/config.go does not exist, nor does /w/scr/. Did you mean one of these?\n/w/src"},
		{"zzzz", "/w/zzzz does not exist"},
		{"/repo/src/other", "/repo/src/other does not exist. The worktree is /w, and has /w/src/other"},
		{"/home/u/proj/src", "/home/u/proj/src does not exist. The worktree is /w, and has /w/src"},
		{"/src/other", "/src/other does not exist. The worktree is /w, and has /w/src/other"},
		{"/app/nosuch/x", "/app/nosuch/x does not exist, nor does /app/nosuch/, nor does /app/. The worktree is /w"},
		{"/w/src/src/other", "/w/src/src/other does not exist, nor does /w/src/src/. There is /w/src/other"},
	}
	for _, tt := range tests {
		r, err := callTool(t, env, Read{}, object{"file_path": tt.path})
		if err != nil || !r.IsError || r.Output != tt.want {
			t.Errorf("%s: %+v, %v", tt.path, r, err)
		}
	}
}

// TestReadPages: for an agent that passes on less to its model a page is shorter, and says where to go on.
func TestReadPages(t *testing.T) {
	env, dir := fileEnv(t)
	env.Settings = json.RawMessage(`{"page_bytes": 2000}`)
	writeFile(t, dir+"/f", strings.Repeat("line\n", 1000))
	for i := range 300 {
		writeFile(t, fmt.Sprintf("%s/d/name%05d", dir, i), "")
	}
	for _, path := range []string{"f", "d"} {
		r := mustCall(t, env, Read{}, object{"file_path": path})
		if len(r.Output) > 2000 || len(r.Output) < 1500 || !strings.Contains(r.Output, "; go on with offset 1") {
			t.Errorf("%s: %d bytes, %q", path, len(r.Output), r.Output[max(0, len(r.Output)-100):])
		}
	}
}

func TestReadDir(t *testing.T) {
	env, dir := fileEnv(t)
	for _, name := range []string{"b", "a\nb", "c\x1b[31m", "bad\xff", "sub/x"} {
		writeFile(t, dir+"/d/"+name, "x")
	}
	if err := os.Symlink("/", dir+"/d/link"); err != nil {
		t.Fatal(err)
	}
	r := mustCall(t, env, Read{}, object{"file_path": "d"})
	want := "\"a\\nb\"\nb\n\"bad\\xff\"\n\"c\\x1b[31m\"\nlink@\nsub/\n\n(entries 1-6 of 6)"
	if r.Output != want {
		t.Errorf("%q\nwant %q", r.Output, want)
	}
	r = mustCall(t, env, Read{}, object{"file_path": "d/", "offset": 2, "limit": 2})
	if r.Output != "b\n\"bad\\xff\"\n\n(entries 2-3 of 6; go on with offset 4)" || r.Metadata["next_offset"] != 4 {
		t.Errorf("page: %q", r.Output)
	}
	for _, offset := range []int{7, 60000} {
		if r, err := callTool(t, env, Read{}, object{"file_path": "d", "offset": offset}); err != nil || !r.IsError {
			t.Errorf("offset %d: %+v, %v", offset, r, err)
		}
	}
	if err := os.Mkdir(dir+"/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	if r := mustCall(t, env, Read{}, object{"file_path": "empty"}); r.Output != "(the directory is empty)" {
		t.Errorf("empty: %q", r.Output)
	}
	if err := os.Mkdir(dir+"/large", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 20000 {
		if err := os.WriteFile(fmt.Sprintf("%s/large/%05d", dir, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r = mustCall(t, env, Read{}, object{"file_path": "large", "offset": 19999})
	if r.Output != "19998\n19999\n\n(entries 19999-20000 of 20000)" {
		t.Errorf("large: %q", r.Output)
	}
}

// What Run opens is what Prepare resolved, whatever a link says later.
func TestReadStale(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/a/f", "first")
	writeFile(t, dir+"/b/f", "second")
	if err := os.Symlink("a", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	in := json.RawMessage(`{"file_path": "link/f"}`)
	prep, err := Read{}.Prepare(t.Context(), env, in)
	if err != nil || prep.Targets[0].Path != "/w/a/f" {
		t.Fatalf("%+v, %v", prep, err)
	}
	if err := os.Remove(dir + "/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("b", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if r, err := (Read{}).Run(t.Context(), env, in, prep); err != nil || !strings.Contains(r.Output, "first") {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.Rename(dir+"/a", dir+"/c"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("b", dir+"/a"); err != nil {
		t.Fatal(err)
	}
	_, err = Read{}.Run(t.Context(), env, in, prep)
	expectCode(t, err, CodeStale)
}

func TestWrite(t *testing.T) {
	env, dir := fileEnv(t)
	r := mustCall(t, env, Write{}, object{"file_path": "x/y/z.txt", "content": "one\ntwo\n"})
	if r.Output != "Created x/y/z.txt: 8 bytes, 2 lines added, 0 removed." || r.Metadata["created"] != true {
		t.Errorf("created: %+v", r)
	}
	if err := os.Chmod(dir+"/x/y/z.txt", 0o751); err != nil {
		t.Fatal(err)
	}
	r = mustCall(t, env, Write{}, object{"file_path": "/w/x/y/z.txt", "content": "one\nTWO\n"})
	if r.Output != "Replaced x/y/z.txt: 8 bytes, 1 line added, 1 removed." ||
		r.Metadata["diff"] != "--- /w/x/y/z.txt\n+++ /w/x/y/z.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n" {
		t.Errorf("replaced: %+v", r)
	}
	if st, _ := os.Stat(dir + "/x/y/z.txt"); st.Mode() != 0o751 || contentOf(t, dir+"/x/y/z.txt") != "one\nTWO\n" {
		t.Errorf("mode %v, content %q", st.Mode(), contentOf(t, dir+"/x/y/z.txt"))
	}
	writeFile(t, dir+"/bom", "\xef\xbb\xbfold")
	mustCall(t, env, Write{}, object{"file_path": "bom", "content": "new"})
	if got := contentOf(t, dir+"/bom"); got != "\xef\xbb\xbfnew" {
		t.Errorf("byte order mark: %q", got)
	}
	for _, tt := range []struct{ old, content, want, says string }{
		{"a\r\nb\r\n", "c\nd\n", "c\r\nd\r\n", " Its lines end in CRLF, as before."},
		{"a\r\n", "c", "c", ""},
		{"a\r\nb\n", "c\n", "c\n", " Its lines ended in CRLF and LF before, and end in LF now."},
		{"a\n", "c\r\n", "c\r\n", " Its lines ended in LF before, and end in CRLF now."},
		{"a\r\n", "c\r\nd\n", "c\r\nd\n", " Its lines ended in CRLF before, and end in CRLF and LF now."},
		{"a\r\n", "c\rd\n", "c\rd\n", " Its lines ended in CRLF before, and end in LF now."},
		{"a\n", "c\n", "c\n", ""},
		{"\x00\r\n", "c\n", "c\n", ""},
	} {
		writeFile(t, dir+"/ends", tt.old)
		r := mustCall(t, env, Write{}, object{"file_path": "ends", "content": tt.content})
		if got := contentOf(t, dir+"/ends"); got != tt.want || !strings.HasSuffix(r.Output, " removed."+tt.says) {
			t.Errorf("%q over %q: %q, %q", tt.content, tt.old, got, r.Output)
		}
	}
	writeFile(t, dir+"/binary", "\x00\x01")
	mustCall(t, env, Write{}, object{"file_path": "binary", "content": ""})
	if got := contentOf(t, dir+"/binary"); got != "" {
		t.Errorf("binary: %q", got)
	}
	writeFile(t, dir+"/large", "")
	if err := os.Truncate(dir+"/large", 1<<40); err != nil {
		t.Fatal(err)
	}
	env.Settings = json.RawMessage(`{"durable": true}`)
	mustCall(t, env, Write{}, object{"file_path": "large", "content": "small"})
	if got := contentOf(t, dir+"/large"); got != "small" {
		t.Errorf("large: %q", got)
	}
	_, err := callTool(t, env, Write{}, object{"file_path": "x", "content": ""})
	expectCode(t, err, CodeNotRegularFile)
	env.Settings = json.RawMessage(`[]`)
	_, err = callTool(t, env, Write{}, object{"file_path": "new", "content": ""})
	expectCode(t, err, CodeInternal)
}

// A call that was judged on another content than the file now has is refused.
func TestStale(t *testing.T) {
	tests := []struct {
		name   string
		tool   Tool
		input  object
		before string // "" = the file is missing
		change func(path string)
	}{
		{"write over a change", Write{}, object{"content": "new"}, "old", func(p string) { os.WriteFile(p, []byte("OLD"), 0o644) }},
		{"write over a new file", Write{}, object{"content": "new"}, "", func(p string) { os.WriteFile(p, nil, 0o644) }},
		{"write where it was removed", Write{}, object{"content": "new"}, "old", func(p string) { os.Remove(p) }},
		{"write where it became a link", Write{}, object{"content": "new"}, "old", func(p string) { os.Remove(p); os.Symlink("other", p) }},
		{"edit of a change", Edit{}, object{"old_string": "old", "new_string": "new"}, "old", func(p string) { os.WriteFile(p, []byte("old!"), 0o644) }},
		{"edit of a file that grew", Edit{}, object{"old_string": "old", "new_string": "new"}, "old", func(p string) { os.Truncate(p, 1<<40) }},
		{"edit of a removed file", Edit{}, object{"old_string": "old", "new_string": "new"}, "old", func(p string) { os.Remove(p) }},
		{"create over a new file", Edit{}, object{"old_string": "", "new_string": "new"}, "", func(p string) { os.WriteFile(p, nil, 0o644) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/other", "other")
			if tt.before != "" {
				writeFile(t, dir+"/f", tt.before)
			}
			tt.input["file_path"] = "f"
			raw, _ := json.Marshal(tt.input)
			prep, err := tt.tool.Prepare(t.Context(), env, raw)
			if err != nil || prep.Result != nil || prep.Diff == "" {
				t.Fatalf("%+v, %v", prep, err)
			}
			tt.change(dir + "/f")
			_, err = tt.tool.Run(t.Context(), env, raw, prep)
			expectCode(t, err, CodeStale)
			if got := contentOf(t, dir+"/other"); got != "other" {
				t.Errorf("another file changed: %q", got)
			}
		})
	}
}

// Run without Prepare resolves by itself, and says the same.
func TestRunWithoutPrepare(t *testing.T) {
	env, dir := fileEnv(t)
	run := func(tool Tool, input object) (*Result, error) {
		raw, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		return tool.Run(t.Context(), env, raw, nil)
	}
	for _, step := range []struct {
		tool  Tool
		input object
	}{
		{Write{}, object{"file_path": "f", "content": "one\n"}},
		{Edit{}, object{"file_path": "f", "old_string": "one", "new_string": "two"}},
		{Read{}, object{"file_path": "f"}},
	} {
		r, err := run(step.tool, step.input)
		if err != nil || r.IsError || r.Title != "f" {
			t.Errorf("%s: %+v, %v", step.tool.Name(), r, err)
		}
	}
	if got := contentOf(t, dir+"/f"); got != "two\n" {
		t.Errorf("content %q", got)
	}
	for _, tool := range []Tool{Read{}, Write{}, Edit{}} {
		_, err := run(tool, object{"file_path": "", "content": "x", "old_string": "a", "new_string": "b"})
		expectCode(t, err, CodeInvalidPath)
		if _, err := tool.Run(t.Context(), env, json.RawMessage(`[]`), nil); err == nil {
			t.Errorf("%s took an array", tool.Name())
		}
		if _, err := tool.Prepare(t.Context(), env, json.RawMessage(`[]`)); err == nil {
			t.Errorf("%s prepared an array", tool.Name())
		}
	}
}

// A call whose time is over ends with that, not with a half-done change.
func TestEnded(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", "old")
	for _, tool := range []Tool{Read{}, Write{}, Edit{}} {
		raw := json.RawMessage(`{"file_path":"f","content":"new","old_string":"old","new_string":"new"}`)
		prep, err := tool.Prepare(t.Context(), env, raw)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = tool.Run(ctx, env, raw, prep)
		expectCode(t, err, CodeAborted)
		_, err = tool.Prepare(ctx, env, raw)
		expectCode(t, err, CodeAborted)
	}
	if got := contentOf(t, dir+"/f"); got != "old" {
		t.Errorf("content %q", got)
	}
}

// Links are judged and opened by where they lead, and only ever inside.
func TestFileToolsFollowLinks(t *testing.T) {
	env, dir := fileEnv(t)
	outside := t.TempDir()
	writeFile(t, outside+"/canary", "untouched")
	writeFile(t, dir+"/real/f", "x\n")
	links := map[string]string{"abs": "/w/real", "rel": "real/../real", "file": "/w/real/f", "out": outside, "loop": "loop", "dangling": "nothing"}
	for name, to := range links {
		if err := os.Symlink(to, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"abs/f", "rel/f", "file", "./abs/../f", "/../../w/file"} {
		if path == "./abs/../f" {
			path = "./abs/../real/f"
		}
		raw, _ := json.Marshal(object{"file_path": path, "content": "x\n", "old_string": "x", "new_string": "y"})
		for _, tool := range []Tool{Read{}, Write{}, Edit{}} {
			prep, err := tool.Prepare(t.Context(), env, raw)
			if err != nil || prep.Targets[0].Path != "/w/real/f" || prep.Targets[0].Asked != path || !prep.Targets[0].Exists {
				t.Errorf("%s %s: %+v, %v", tool.Name(), path, prep, err)
			}
		}
	}
	for _, path := range []string{"loop", "dangling", "out/canary", "loop/x"} {
		for _, tool := range []Tool{Read{}, Write{}, Edit{}} {
			_, err := callTool(t, env, tool, object{"file_path": path, "content": "HIT", "old_string": "u", "new_string": "HIT"})
			expectCode(t, err, CodeInvalidPath)
		}
	}
	if got := contentOf(t, outside+"/canary"); got != "untouched" {
		t.Errorf("the outside was changed: %q", got)
	}
	if st, err := os.Lstat(dir + "/file"); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("a link was replaced: %v, %v", st, err)
	}
}

// Memory is reserved for the file that is read, also when a larger one takes its
// place while it is looked for.
func TestMemoryOfASwappedFile(t *testing.T) {
	const size = 2 * maxGrowth
	env, dir := fileEnv(t)
	top := filepath.Dir(dir)
	r, err := root.New(root.Config{Dir: top, UID: -1, Memory: changeCopies * size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	env.Root = r
	writeFile(t, dir+"/f", "")
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := int64(0); ; n = size - n {
			select {
			case <-over:
				return
			default:
			}
			if err := os.Truncate(dir+"/f", n); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer func() { close(over); wg.Wait() }()
	large := 0
	// At least so often, and until the other goroutine had its turn.
	for i, end := 0, time.Now().Add(time.Minute); i < 3000 || large == 0 && time.Now().Before(end); i++ {
		w, _, err := lookWhole(t.Context(), &Env{Root: r, Worktree: env.Worktree}, json.RawMessage(`{"file_path":"f"}`))
		if err != nil && root.CodeOf(err) != root.TooLarge { // it has grown while it was read
			t.Fatal(err)
		}
		if w.info.Size == size {
			large++
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			v, err := r.Reserve(ctx, 1)
			cancel()
			if err == nil {
				v.Release()
				t.Fatal("memory is left while a file is held that takes all of it")
			}
		}
		w.release()
	}
	if large == 0 {
		t.Error("the file was never large")
	}
}
