package run

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// linesOf is a file as read shows it: its lines without their endings, long ones cut.
func linesOf(content string) []string {
	content = strings.TrimPrefix(content, string(textfile.BOM))
	lines := strings.Split(content, "\n")
	if n := len(lines); lines[n-1] == "" {
		lines = lines[:n-1] // nothing stands behind the last line break
	}
	for i, l := range lines {
		l = strings.TrimSuffix(l, "\r")
		if r := []rune(l); len(r) > readColumns {
			l = string(r[:readColumns]) + fmt.Sprintf(" … (line cut at %d characters)", readColumns)
		}
		lines[i] = l
	}
	return lines
}

// joinPages follows next_offset from page to page and compares what they show with
// the file. Text that is not UTF-8 may be refused; nothing else may.
func joinPages(t *testing.T, content string, limit func() int, read func(offset, limit int) *Result) {
	t.Helper()
	want := linesOf(content)
	var got []string
	for offset := 1; ; {
		n := limit()
		r := read(offset, n)
		if r.IsError && !utf8.ValidString(content) {
			return
		}
		meta := r.Metadata
		first, last := meta["first_line"], meta["last_line"]
		if r.IsError || first != offset || last.(int)-offset+1 > n || meta["total_lines"] != len(want) || meta["total_exact"] != true {
			t.Fatalf("%q, page at %d of %d lines: %q %v", content, offset, n, r.Output, meta)
		}
		shown := strings.SplitAfterN(r.Output, "\n", last.(int)-offset+2)
		for i, l := range shown[:last.(int)-offset+1] {
			number, text, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
			if strings.TrimSpace(number) != strconv.Itoa(offset+i) {
				t.Fatalf("%q: line %d is shown as %q", content, offset+i, l)
			}
			got = append(got, text)
		}
		next, more := meta["next_offset"]
		if more != (len(got) < len(want)) || more && next != offset+len(shown)-1 {
			t.Fatalf("%q: page at %d of %d goes on at %v; %d of %d lines", content, offset, n, next, len(got), len(want))
		}
		if !more {
			break
		}
		offset = next.(int)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the pages show %q, the file has %q", got, want)
	}
}

// TestPagesAreTheFile: the pages of random files, one after the other, are the files.
func TestPagesAreTheFile(t *testing.T) {
	env := searchEnv(t)
	file := filepath.Join(env.Worktree, "f")
	seed := uint64(time.Now().UnixNano())
	for i := range testrig.Rounds(300) {
		c := newChooser(seed + uint64(i))
		var b strings.Builder
		b.WriteString(c.of("", "", string(textfile.BOM)))
		for range c.IntN(60) {
			b.WriteString(c.some(8, "a", "é", "€", "😀", "\t", " ", "\r", "(lines 1-2 of 3)", "…", "text", "\u2028", "\u200b"))
			if c.IntN(30) == 0 {
				b.WriteString(strings.Repeat(c.of("x", "é", "😀", "\r"), readColumns-1+c.IntN(3)))
			}
			if c.IntN(200) == 0 {
				b.WriteString(strings.Repeat("long ", 20000))
			}
			b.WriteString(c.of("\n", "\n", "\r\n", "\n\n", "\r"))
		}
		b.WriteString(c.of("", "no end", "\n"))
		if content := b.String(); c.IntN(5) == 0 && len(content) > textfile.SniffLen {
			b.WriteString("\x00\n\x00x")
		}
		must(t, os.WriteFile(file, []byte(b.String()), 0o644))
		joinPages(t, b.String(), func() int { return c.IntN(40) + 1 }, func(offset, limit int) *Result {
			r, err := call(t, env, Read{}, map[string]any{"file_path": file, "offset": offset, "limit": limit})
			must(t, err)
			return r
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed+uint64(i))
		}
	}
}

// FuzzPages: whatever the bytes, and however they arrive, the pages are the file.
func FuzzPages(f *testing.F) {
	f.Add([]byte("a\r\nb\n\nc"), uint8(1), uint8(3))
	f.Add([]byte("\xef\xbb\xbfa\x00\n\r\r\n"), uint8(2), uint8(1))
	f.Add([]byte(strings.Repeat("é", readColumns)+"\r\n\xff"), uint8(9), uint8(200))
	f.Fuzz(func(t *testing.T, data []byte, limit, chunk uint8) {
		size := int(chunk) + 1
		joinPages(t, string(data), func() int { return int(limit) + 1 }, func(offset, limit int) *Result {
			p := newPage(offset, limit, readBytes)
			rest := bytes.TrimPrefix(data, textfile.BOM)
			for len(rest) > 0 {
				n := min(size, len(rest))
				p.feed(rest[:n])
				rest = rest[n:]
			}
			p.end(true)
			if p.invalid {
				return notText("f", textfile.NotUTF8)
			}
			return p.result("f", "f", true)
		})
	})
}

// TestListBesideFind: a tree shows what find does, each entry below its directory and with the mark of its kind.
func TestListBesideFind(t *testing.T) {
	if _, err := exec.LookPath("find"); err != nil {
		t.Skip("find is not installed")
	}
	env := ripgrepEnv(t)
	top := env.Worktree
	marks := map[string]string{"f": "", "d": "/", "p": " (fifo)"}
	seed := uint64(time.Now().UnixNano())
	for i := range testrig.Rounds(100) {
		c := newChooser(seed + uint64(i))
		env.Worktree = filepath.Join(top, strconv.Itoa(i))
		must(t, os.Mkdir(env.Worktree, 0o755))
		oddTree(t, c, env.Worktree, 0)
		out, err := exec.Command("find", env.Worktree, "-mindepth", "1", "-printf", `%y%P\0`).Output()
		must(t, err)
		want := make(map[string]string)
		for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if len(entry) > 1 { // below top itself
				want[entry[1:]] = marks[entry[:1]]
			}
		}
		text, r := answer(t, env, List{}, map[string]any{})
		got := map[string]string{}
		if r.Metadata["count"] != 0 {
			got = treeOf(t, text)
		}
		if r.Metadata["more"] == true {
			if len(got) != listLimit || len(want) <= listLimit {
				t.Errorf("seed %d: %d of %d entries", seed+uint64(i), len(got), len(want))
			}
			for name := range want {
				if _, ok := got[name]; !ok {
					delete(want, name)
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: got %q\nfind %q\n%s", seed+uint64(i), got, want, text)
		}
	}
}

// TestListBesideRipgrep: of a tree with ignore files list shows the files that searches
// find, and no others.
func TestListBesideRipgrep(t *testing.T) { withRipgreps(t, testListBesideRipgrep) }

func testListBesideRipgrep(t *testing.T, top *Env) {
	seed := uint64(time.Now().UnixNano())
	for i := range testrig.Rounds(200) {
		c := newChooser(seed + uint64(i))
		env := *top
		env.Worktree = filepath.Join(top.Worktree, strconv.Itoa(i))
		must(t, os.Mkdir(env.Worktree, 0o755))
		if c.IntN(2) == 0 { // too much for one thread
			tree(t, env.Worktree, map[string]string{"zz/.rgignore": "*\n"})
			for k := range smallTree {
				tree(t, env.Worktree, map[string]string{fmt.Sprintf("zz/%d", k): ""})
			}
		}
		oddTree(t, c, env.Worktree, 0)
		must(t, filepath.WalkDir(env.Worktree, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || c.IntN(3) > 0 {
				return err
			}
			rules := c.of("a*", "b", "/c", "tmp*/", "*.h", "**/é", "[x-z ]*", "vendor", "*") + "\n" + c.of("", "!a*\n", "!/b\n", "d e/**\n")
			return os.WriteFile(path+"/"+c.of(".gitignore", ".ignore", ".rgignore"), []byte(rules), 0o644)
		}))
		text, r := answer(t, &env, List{}, object{})
		if r.Metadata["more"] == true {
			continue
		}
		got := map[string]string{}
		if r.Metadata["count"] != 0 {
			got = treeOf(t, text)
		}
		maps.DeleteFunc(got, func(_, mark string) bool { return mark != "" })
		argv := slices.Concat(top.Ripgrep, []string{"--no-config", "--files", "--null", "--hidden", "--no-require-git", "--glob=!.git", "./"})
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = env.Worktree
		out, err := cmd.Output()
		if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == 1 {
			err = nil // there is none
		}
		must(t, err)
		want := map[string]string{}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if name != "" {
				want[strings.TrimPrefix(name, "./")] = ""
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: got %q\nwant %q\n%s", seed+uint64(i), got, want, text)
		}
	}
}

// oddTree makes files of most kinds with names of all kinds.
func oddTree(t *testing.T, c chooser, dir string, depth int) {
	t.Helper()
	for range c.IntN(7) {
		path := filepath.Join(dir, c.of("a", "b", "c", "d e", " x", "x ", "-", "tmp", "vendor", "é", "\xff", "line\nbreak", `"q"`, "(empty)", ".h", "\u202e")+c.of("", "", strconv.Itoa(c.IntN(30))))
		switch c.IntN(8) {
		case 0, 1, 2:
			if depth < 4 && os.Mkdir(path, 0o755) == nil {
				oddTree(t, c, path, depth+1)
			}
		case 3:
			_ = syscall.Mkfifo(path, 0o644)
		default:
			if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o644); err == nil { // it may be a FIFO
				must(t, f.Close())
			}
		}
	}
}

// treeOf reads list's answer back: path → mark.
func treeOf(t *testing.T, text string) map[string]string {
	t.Helper()
	got := make(map[string]string)
	var way []string
	_, body, _ := strings.Cut(text, "\n")
	body, _, _ = strings.Cut(body, "\n\n")
	for line := range strings.Lines(body) {
		entry := strings.TrimLeft(strings.TrimSuffix(line, "\n"), " ")
		depth := strings.Index(line, entry)/2 - 1
		name, mark := entry, ""
		if quoted, err := strconv.QuotedPrefix(entry); err == nil {
			name, err = strconv.Unquote(quoted)
			must(t, err)
			mark = entry[len(quoted):]
		} else {
			for _, m := range []string{"/", " (fifo)"} {
				if plain, ok := strings.CutSuffix(name, m); ok {
					name, mark = plain, m
				}
			}
		}
		if depth > len(way) {
			t.Fatalf("%q stands below nothing:\n%s", entry, text)
		}
		way = append(way[:depth], name)
		path := strings.Join(way, "/")
		if _, twice := got[path]; twice {
			t.Fatalf("%q is there twice:\n%s", path, text)
		}
		got[path] = mark
	}
	return got
}
