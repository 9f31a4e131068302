package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/internal/tool/run/root"
)

// What is kept of long lines, or of many long paths, is bounded, and whether
// there are more matches is told right all the same.
func TestGrepBytes(t *testing.T) { withRipgreps(t, testGrepBytes) }

func testGrepBytes(t *testing.T, env *Env) {
	long := strings.Repeat("é", grepLineRunes) + "\n"
	tree(t, env.Worktree, map[string]string{
		"many": strings.Repeat("x"+long, 400),
		"one":  "only\n" + strings.Repeat(long, 400),
		"dir/": "",
	})
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 15)
	for i := range 500 {
		tree(t, env.Worktree, map[string]string{fmt.Sprintf("dir/%s%d", deep, i): "y\n"})
	}
	for _, tc := range []struct {
		in     map[string]any
		atMost int
		more   bool
	}{
		{map[string]any{"pattern": "x", "path": "many", "limit": 1000}, 399, true},
		{map[string]any{"pattern": "x", "path": "many", "limit": 1000, "context": 50}, 399, true},
		{map[string]any{"pattern": "only", "path": "one", "limit": 1000, "context": 400}, 1, false},
		{map[string]any{"pattern": "y", "output_mode": "files", "limit": 1000}, 499, true},
		{map[string]any{"pattern": "y", "output_mode": "count", "limit": 1000}, 499, true},
	} {
		out, res := answer(t, env, Grep{}, tc.in)
		if len(out) > 2*grepBytes || res.Metadata["matches"].(int) > tc.atMost || res.Metadata["more"] != tc.more {
			t.Errorf("%v: %d bytes, %v; want at most %d matches, more %v", tc.in, len(out), res.Metadata, tc.atMost, tc.more)
		}
		if !strings.Contains(out, "its limit of 1024 KiB") {
			t.Errorf("%v: the answer does not say that it is cut", tc.in)
		}
	}
}

// Nothing that is put in the place of a directory after it was looked at leads
// ripgrep away: it is given no directory to go to by name.
func TestRipgrepStartsInTheDirectory(t *testing.T) {
	env := searchEnv(t)
	tree(t, env.Worktree, map[string]string{"dir/a": "x\n"})
	dir := filepath.Join(env.Worktree, "dir")
	var got Command
	env.Exec = func(_ context.Context, c Command) (*Exit, error) {
		got = c
		return &Exit{Code: 1, Reason: ReasonExit}, nil
	}
	for _, tc := range []struct {
		tool     Tool
		path     string
		dir, arg string
	}{
		{Grep{}, "dir", dir, "./"}, {Glob{}, "dir", dir, "./"}, {Grep{}, "dir/a", dir, "./a"}, {Grep{}, "/", "/", "./"},
	} {
		_, _ = answer(t, env, tc.tool, map[string]any{"pattern": "x", "path": tc.path})
		if last := got.Argv[len(got.Argv)-2:]; got.Dir != tc.dir || last[0] != "--" || last[1] != tc.arg {
			t.Errorf("%s %s: in %s with %q, want in %s with %q", tc.tool.Name(), tc.path, got.Dir, last, tc.dir, tc.arg)
		}
	}
}

func TestSearchRipgrepEnds(t *testing.T) {
	env := searchEnv(t)
	for _, tc := range []struct {
		name string
		exit *Exit
		err  error
		want string // in the output, or in the error
		code Code
	}{
		{"killed", &Exit{Code: -1, Reason: ReasonSignal, Signal: "SIGKILL"}, nil, "ended from outside (signal SIGKILL)", ""},
		{"unreadable", &Exit{Code: 2, Reason: ReasonExit}, nil, "could not be read", ""},
	} {
		env.Exec = func(context.Context, Command) (*Exit, error) { return tc.exit, tc.err }
		res, err := call(t, env, Grep{}, map[string]any{"pattern": "x"})
		if tc.code != "" {
			wantCode(t, err, tc.code, tc.want)
			continue
		}
		must(t, err)
		if !strings.Contains(res.Output, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, res.Output, tc.want)
		}
	}
	tree(t, env.Worktree, map[string]string{"f": "x"})
	env.Exec = func(context.Context, Command) (*Exit, error) { return &Exit{Code: 2, Reason: ReasonExit}, nil }
	if res, err := call(t, env, Grep{}, map[string]any{"pattern": "x", "path": "f"}); err != nil || !res.IsError || !strings.Contains(res.Output, "could not be read") {
		t.Errorf("a file that cannot be read: got %+v, %v", res, err)
	}
	for errno, want := range map[syscall.Errno]string{syscall.ELOOP: "stale", syscall.ENOENT: "stale", syscall.EACCES: ""} {
		env.Exec = func(context.Context, Command) (*Exit, error) {
			return nil, fmt.Errorf("working directory /w: %w", errno)
		}
		for _, tool := range []Tool{Grep{}, Glob{}} {
			res, err := call(t, env, tool, map[string]any{"pattern": "x"})
			if want != "" {
				wantCode(t, err, Code(want), "has changed")
			} else if err != nil || !res.IsError || !strings.Contains(res.Output, "permission denied") {
				t.Errorf("%s in a closed directory: got %+v, %v", tool.Name(), res, err)
			}
		}
	}
	env.Exec = func(context.Context, Command) (*Exit, error) { return nil, errors.New("no more processes") }
	if _, err := call(t, env, Glob{}, map[string]any{"pattern": "x"}); err == nil || !strings.Contains(err.Error(), "no more processes") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	env.Exec = func(context.Context, Command) (*Exit, error) { cancel(); return &Exit{Reason: ReasonAborted}, nil }
	_, err := Grep{}.Run(ctx, env, json.RawMessage(`{"pattern":"x"}`), nil)
	wantCode(t, err, CodeAborted, "aborted")
}

// The answer is known after the limit: ripgrep is stopped, whatever is left.
func TestGrepStopsRipgrep(t *testing.T) {
	env := searchEnv(t)
	var written int
	env.Exec = func(ctx context.Context, c Command) (*Exit, error) {
		line := []byte("./a\x001\x00:1\x00:x\n")
		for ctx.Err() == nil {
			n, err := c.Stdout.Write(line)
			if err != nil || n != len(line) {
				t.Errorf("Write: %d, %v", n, err)
			}
			written++
		}
		return &Exit{Code: -1, Reason: ReasonAborted}, nil
	}
	_, res := answer(t, env, Grep{}, map[string]any{"pattern": "x"})
	if written != 101 || res.Metadata["matches"] != 100 || res.Metadata["more"] != true || res.Metadata["partial"] != nil {
		t.Errorf("stopped after %d lines with %v", written, res.Metadata)
	}
}

func TestSplitter(t *testing.T) {
	input := "path\x0012\x00:text\nlonger path\x00" + strings.Repeat("9", 50) + "\x00:" + strings.Repeat("t", 50) + "\nrest"
	want := []string{"path|12|:text", "longer pa|99999|:tttttt"}
	for size := 1; size < 20; size++ {
		var got []string
		s := &splitter{
			fields: []splitField{{end: 0, keep: 9}, {end: 0, keep: 5}, {end: '\n', keep: 7}},
			visit: func(f [][]byte) bool {
				got = append(got, fmt.Sprintf("%s|%s|%s", f[0], f[1], f[2]))
				return true
			},
		}
		for chunk := range slices.Chunk([]byte(input), size) {
			n, err := s.Write(chunk)
			if n != len(chunk) || err != nil {
				t.Fatalf("Write: %d, %v", n, err)
			}
		}
		if !slices.Equal(got, want) || s.rest() != "rest" {
			t.Fatalf("in pieces of %d: got %q and rest %q, want %q", size, got, s.rest(), want)
		}
	}
}

// FuzzGrepOutput: no output, not even one that ripgrep would never write, makes
// grep panic or grow past what its bounds allow.
func FuzzGrepOutput(f *testing.F) {
	f.Add([]byte("./a\x001\x00:x\n./a: binary file matches (found \"\\0\" byte around offset 3)\n./b\x002\x00-y\n"), "content")
	f.Add([]byte("./a\x00./b\x00"), "files")
	f.Add([]byte("./a\x0012\n"), "count")
	f.Fuzz(func(t *testing.T, out []byte, mode string) {
		g := newGrepSearch(grepInput{Limit: 3, OutputMode: mode}, root.Info{Path: "/w", Kind: root.KindDir})
		s := g.splitter()
		s.enough = func() {}
		_, _ = s.Write(out)
		g.message(s.rest())
		res := g.result(searchEnd{})
		if g.matches > 3 {
			t.Errorf("%d matches", g.matches)
		}
		for _, r := range res.Output {
			if r == 0xFFFD && !strings.Contains(string(out), "\uFFFD") {
				return // replaced bytes
			}
		}
	})
}

// A field that is there only with its mark, and the beginning of one that is dropped,
// come out alike however the output is cut.
func TestSplitterColumns(t *testing.T) {
	input := "f\x00:3\x00:abcdef\nf\x00-abcdef\nf\x00:1\x00:\nf\x00:9\x00:abc\n"
	want := []string{"f|:3|cdef", "f||abcdef", "f|:1|", "f|:9|"}
	for size := 1; size < 20; size++ {
		var got []string
		s := &splitter{
			fields: []splitField{{end: 0, keep: 9}, {end: 0, keep: 5, only: ':'}, {end: '\n', keep: 7, drop: func(f [][]byte) int {
				n, _ := strconv.Atoi(strings.TrimPrefix(string(f[1]), ":"))
				return max(n, 1)
			}}},
			visit: func(f [][]byte) bool {
				got = append(got, fmt.Sprintf("%s|%s|%s", f[0], f[1], f[2]))
				return true
			},
		}
		for chunk := range slices.Chunk([]byte(input), size) {
			if _, err := s.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in chunks of %d: %q, want %q", size, got, want)
		}
	}
}
