package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run/root"
)

// searchEnv is an Env on a temporary worktree whose programs run on this host.
func searchEnv(t testing.TB) *Env {
	t.Helper()
	needs.OpenAt2(t)
	r, err := root.New(root.Config{Dir: "/", UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &Env{Root: r, Worktree: dir, Exec: hostExec, Patience: time.Minute}
}

// ripgreps are the ones that a sandbox may get, by what scripts/install-ripgrep calls
// their directories; none where they are not made.
var ripgreps = sync.OnceValue(func() map[string][]string {
	found := map[string][]string{}
	for _, name := range []string{"ripgrep", "ripgrep-debian"} {
		if dir, err := testrig.Bin(name); err == nil {
			found[name] = RipgrepIn(dir)
		}
	}
	return found
})

// needRipgrep skips a test where ripgrep is not there.
func needRipgrep(t testing.TB) {
	t.Helper()
	const get = "run make bin/ripgrep/rg bin/ripgrep-debian/rg"
	switch len(ripgreps()) {
	case 0:
		testrig.Skipf(t, "ripgrep", "there is neither bin/ripgrep nor bin/ripgrep-debian: "+get)
	case 1:
		t.Fatalf("of bin/ripgrep and bin/ripgrep-debian there is only %v: "+get, ripgreps())
	}
}

// ripgrepEnv is searchEnv for what starts ripgrep.
func ripgrepEnv(t testing.TB) *Env {
	t.Helper()
	needRipgrep(t)
	env := searchEnv(t)
	env.Ripgrep = ripgreps()["ripgrep"]
	return env
}

// withRipgreps runs a test with each ripgrep that a sandbox may get.
func withRipgreps(t *testing.T, test func(*testing.T, *Env)) {
	needRipgrep(t)
	for name, argv := range ripgreps() {
		t.Run(name, func(t *testing.T) {
			env := searchEnv(t)
			env.Ripgrep = argv
			test(t, env)
		})
	}
}

// hostExec is Env.Exec with what the searches need of it.
func hostExec(ctx context.Context, c Command) (*Exit, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			err = fs.ErrNotExist
		}
		return nil, err
	}
	done := make(chan struct{})
	reason := make(chan Reason, 1)
	go func() {
		select {
		case <-done:
			reason <- ReasonExit
		case <-time.After(c.Timeout):
			_ = cmd.Process.Signal(syscall.SIGTERM) // nobody, where it has ended
			reason <- ReasonTimeout
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM) // nobody, where it has ended
			reason <- ReasonAborted
		}
	}()
	_ = cmd.Wait()
	close(done)
	return &Exit{Code: cmd.ProcessState.ExitCode(), Reason: <-reason}, nil
}

// tree makes files below dir; a name that ends with "/" is a directory.
func tree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(path, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call runs a tool as a session does: Prepare, then Run with what it saw.
func call(t *testing.T, env *Env, tool Tool, input map[string]any) (*Result, error) {
	t.Helper()
	raw, err := json.Marshal(input)
	must(t, err)
	prep, err := tool.Prepare(t.Context(), env, raw)
	if err != nil {
		return nil, err
	}
	if prep.Result != nil {
		return prep.Result, nil
	}
	return tool.Run(t.Context(), env, raw, prep)
}

// answer is call for a call that must give a result; the worktree is written W.
func answer(t *testing.T, env *Env, tool Tool, input map[string]any) (string, *Result) {
	t.Helper()
	res, err := call(t, env, tool, input)
	must(t, err)
	if res.IsError {
		t.Fatalf("failed: %s", res.Output)
	}
	return strings.ReplaceAll(res.Output, env.Worktree, "W"), res
}

func wantCode(t *testing.T, err error, code Code, part string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, part) {
		t.Fatalf("got error %v, want %s with %q", err, code, part)
	}
}

func TestGrep(t *testing.T) { withRipgreps(t, testGrep) }

func testGrep(t *testing.T, env *Env) {
	const ignored = "\n(1 file matches that ignore files such as .gitignore exclude, for example W/f.log: set path to the file to search it; bash finds all such files.)\n"
	tree(t, env.Worktree, map[string]string{
		"a.go":               "package a\n\nfunc Foo() {}\nfunc bar() { Foo() }\n",
		"b/c.txt":            "nothing\nfoo.bar\nfooxbar\n",
		".hidden/d.go":       "Foo\r\n",
		".git/config":        "Foo\n",
		"sub/.git":           "gitdir: Foo\n",
		".gitignore":         "ignored/\n*.log\n",
		"ignored/e.go":       "Foo\n",
		"f.log":              "Foo\n",
		"-dash.txt":          "-e --pre x\n",
		"long":               strings.Repeat("y", 3000) + "LONG" + strings.Repeat("z", 3000) + "\nLONG\n",
		"wide":               strings.Repeat("ä", 3000) + "WIDE\n",
		"bad":                "BAD \xff\xfe\n",
		"new\nline/\x1b[31m": "NAMED\n",
		"\xff\xfe":           "NAMED\n",
		"bin":                "BIN 1\n\x00BIN\n",
		"call":               "f(x)\n",
		"crlf":               "RET\r\nRET x\r\n",
		"mixed":              "END\r\nEND\n",
		"ctx":                "1\n2\nCTX\n4\n5\n6\n7\nCTX\n9\n",
		"multi":              "begin\nmiddle\nend\n",
	})
	for _, tc := range []struct {
		name string
		in   map[string]any
		want string
	}{
		{
			"grouped",
			map[string]any{"pattern": "Foo"},
			"Found 3 matches.\n\nW/.hidden/d.go (CRLF line ends):\n  1: Foo\n\nW/a.go:\n  3: func Foo() {}\n  4: func bar() { Foo() }\n",
		},
		{"none", map[string]any{"pattern": "absent"}, "No matches found.\n"},
		{"regexp", map[string]any{"pattern": `foo.bar`}, "Found 2 matches.\n\nW/b/c.txt:\n  2: foo.bar\n  3: fooxbar\n"},
		{"literal", map[string]any{"pattern": `foo.bar`, "literal": true}, "Found 1 match.\n\nW/b/c.txt:\n  2: foo.bar\n"},
		{"ignore case", map[string]any{"pattern": `FOO\(\) \{\}`, "ignore_case": true}, "Found 1 match.\n\nW/a.go:\n  3: func Foo() {}\n"},
		{"include", map[string]any{"pattern": "Foo|foo", "include": "*.txt"}, "Found 2 matches.\n\nW/b/c.txt:\n  2: foo.bar\n  3: fooxbar\n"},
		{"include by path", map[string]any{"pattern": "Foo|foo", "include": "b/**"}, "Found 2 matches.\n\nW/b/c.txt:\n  2: foo.bar\n  3: fooxbar\n"},
		{"include does not bring back ignored", map[string]any{"pattern": "Foo", "include": "*.log"}, "No matches found.\n" + ignored},
		{"include not", map[string]any{"pattern": "Foo", "include": "!*.go"}, "No matches found.\n" + ignored},
		{
			"include of another kind",
			map[string]any{"pattern": "Foo", "include": "[!b].go", "output_mode": "files"},
			"Found 2 files with matches.\nW/.hidden/d.go\nW/a.go\n",
		},
		{"path", map[string]any{"pattern": "Foo", "path": ".hidden"}, "Found 1 match.\n\nW/.hidden/d.go (CRLF line ends):\n  1: Foo\n"},
		{
			"one file",
			map[string]any{"pattern": "Foo", "path": "a.go", "include": "*.txt"},
			"Found 2 matches.\n\nW/a.go:\n  3: func Foo() {}\n  4: func bar() { Foo() }\n",
		},
		{"an ignored file by name", map[string]any{"pattern": "Foo", "path": "f.log"}, "Found 1 match.\n\nW/f.log:\n  1: Foo\n"},
		{"files", map[string]any{"pattern": "Foo", "output_mode": "files"}, "Found 2 files with matches.\nW/.hidden/d.go\nW/a.go\n"},
		{"count", map[string]any{"pattern": "Foo", "output_mode": "count"}, "Found 2 files with matches.\nW/.hidden/d.go: 1\nW/a.go: 2\n"},
		{"a pattern like a flag", map[string]any{"pattern": "-e --pre"}, "Found 1 match.\n\nW/-dash.txt:\n  1: -e --pre x\n"},
		{"a path like a flag", map[string]any{"pattern": "pre", "path": "-dash.txt"}, "Found 1 match.\n\nW/-dash.txt:\n  1: -e --pre x\n"},
		{
			"long lines",
			map[string]any{"pattern": "LONG"},
			"Found 2 matches.\n\nW/long:\n  1: … " + strings.Repeat("y", 500) + "LONG" + strings.Repeat("z", 1496) + " … (line cut; the match is at column 3001)\n  2: LONG\n",
		},
		{"wide lines", map[string]any{"pattern": "WIDE"}, "Found 1 match.\n\nW/wide:\n  1: … " + strings.Repeat("ä", 500) + "WIDE … (line cut; the match is at column 6001)\n"},
		{"text that is not UTF-8", map[string]any{"pattern": "BAD"}, "Found 1 match.\n\nW/bad:\n  1: BAD \uFFFD\n"},
		{"a binary file", map[string]any{"pattern": "BIN", "path": "bin"}, "1 binary file matches.\n"},
		{"a binary file across lines", map[string]any{"pattern": "BIN", "path": "bin", "multiline": true}, "1 binary file matches.\n"},
		{"a binary file in a tree", map[string]any{"pattern": "BIN"}, "No matches found.\n\n(1 binary file matches, for example W/bin: bash with grep -a shows what matches.)\n"},
		{"a binary file that include leaves out", map[string]any{"pattern": "BIN", "include": "*.go"}, "No matches found.\n"},
		{"a file with CRLF", map[string]any{"pattern": "RET"}, "Found 2 matches.\n\nW/crlf (CRLF line ends):\n  1: RET\n  2: RET x\n"},
		{"and other lines", map[string]any{"pattern": "END$", "path": "mixed"}, "Found 2 matches.\n\nW/mixed (CRLF at the end of 1 of these lines):\n  1: END\n  2: END\n"},
		{"context", map[string]any{"pattern": "CTX", "context": 1}, "Found 2 matches.\n\nW/ctx:\n  2- 2\n  3: CTX\n  4- 4\n  --\n  7- 7\n  8: CTX\n  9- 9\n"},
		{"multiline", map[string]any{"pattern": "begin.*end", "multiline": true}, "Found 3 matches.\n\nW/multi:\n  1: begin\n  2: middle\n  3: end\n"},
		{"alternatives with a backslash", map[string]any{"pattern": `absent\|fooxbar`}, "No matches found.\n\n(With the pattern \"absent|fooxbar\" 1 file matches, for example W/b/c.txt.)\n"},
		{"a text as a pattern", map[string]any{"pattern": "f(x)"}, "No matches found.\n\n(With literal 1 file matches, for example W/call.)\n"},
		{"a text in a file", map[string]any{"pattern": "f(x)", "path": "call"}, "No matches found.\n\n(With literal 1 file matches, for example W/call.)\n"},
		{"another case", map[string]any{"pattern": "PACKAGE"}, "No matches found.\n\n(With ignore_case 1 file matches, for example W/a.go.)\n"},
		{"an extension", map[string]any{"pattern": "Foo", "include": "go"}, "No matches found.\n\n(With include \"*.go\" 2 files match, for example W/.hidden/d.go.)\n"},
		{"a list", map[string]any{"pattern": "foo", "include": "*.go;*.txt"}, "No matches found.\n\n(With include \"{*.go,*.txt}\" 1 file matches, for example W/b/c.txt.)\n"},
		{"nothing in any form", map[string]any{"pattern": "ABSENT(x)", "include": "go"}, "No matches found.\n"},
		{"not multiline", map[string]any{"pattern": "begin.*end"}, "No matches found.\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := answer(t, env, Grep{}, tc.in); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
	t.Run("hostile names", func(t *testing.T) {
		got, _ := answer(t, env, Grep{}, map[string]any{"pattern": "NAMED"})
		got = strings.ReplaceAll(got, "\""+env.Worktree, "\"W")
		want := "Found 2 matches.\n\n\"W/new\\nline/\\x1b[31m\":\n  1: NAMED\n\n\"W/\\xff\\xfe\":\n  1: NAMED\n"
		if got != want {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	})
}

func TestGrepMore(t *testing.T) { withRipgreps(t, testGrepMore) }

func testGrepMore(t *testing.T, env *Env) {
	files := map[string]string{"one": strings.Repeat("x\n", 100), "dir/": ""}
	for i := range 30 {
		files[fmt.Sprintf("dir/f%02d", i)] = "y\nz\ny\n"
	}
	tree(t, env.Worktree, files)
	for _, tc := range []struct {
		in      map[string]any
		matches int
		more    bool
	}{
		{map[string]any{"pattern": "x"}, 100, false},
		{map[string]any{"pattern": "x", "limit": 99}, 99, true},
		{map[string]any{"pattern": "x", "limit": 101}, 100, false},
		{map[string]any{"pattern": "y", "limit": 60}, 60, false},
		{map[string]any{"pattern": "y", "limit": 59, "context": 2}, 59, true},
		{map[string]any{"pattern": "y", "output_mode": "files", "limit": 30}, 30, false},
		{map[string]any{"pattern": "y", "output_mode": "files", "limit": 29}, 29, true},
		{map[string]any{"pattern": "y", "output_mode": "count", "limit": 29}, 29, true},
		{map[string]any{"pattern": "x|y", "limit": 160}, 160, false},
		{map[string]any{"pattern": "x|y", "limit": 159}, 159, true},
	} {
		out, res := answer(t, env, Grep{}, tc.in)
		if res.Metadata["matches"] != tc.matches || res.Metadata["more"] != tc.more {
			t.Errorf("%v: got %v, want %d matches, more %v", tc.in, res.Metadata, tc.matches, tc.more)
		}
		if strings.Contains(out, "more than") != tc.more {
			t.Errorf("%v: output says %.60q", tc.in, out)
		}
	}
}

// A file that turns out to be binary after matches makes ripgrep write a line
// about it between the records.
func TestGrepBinaryMessage(t *testing.T) { withRipgreps(t, testGrepBinaryMessage) }

func testGrepBinaryMessage(t *testing.T, env *Env) {
	files := map[string]string{}
	for i := range 5 {
		files[fmt.Sprintf("late%d", i)] = "FOO\n" + strings.Repeat("y\n", 200000) + "\x00\nFOO\n"
		files[fmt.Sprintf("text%d", i)] = "FOO\n"
	}
	tree(t, env.Worktree, files)
	got, res := answer(t, env, Grep{}, map[string]any{"pattern": "FOO"})
	want := "Found 10 matches.\n"
	for _, kind := range []string{"late", "text"} {
		for i := range 5 {
			want += fmt.Sprintf("\nW/%s%d:\n  1: FOO\n", kind, i)
		}
	}
	want += "\n(5 binary files match, of which not all matches are shown.)\n"
	if got != want || res.Metadata["binary_files"] != 5 {
		t.Errorf("got %v\n%s\nwant\n%s", res.Metadata, got, want)
	}
	_, res = answer(t, env, Grep{}, map[string]any{"pattern": "FOO", "include": "text*"})
	if res.Metadata["matches"] != 5 || res.Metadata["binary_files"] != nil {
		t.Errorf("with include got %v", res.Metadata)
	}
}

func TestGrepRefuses(t *testing.T) { withRipgreps(t, testGrepRefuses) }

func testGrepRefuses(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{"a": "x\n", "dir/": ""})
	must(t, syscall.Mkfifo(filepath.Join(env.Worktree, "fifo"), 0o644))
	for _, tc := range []struct {
		name string
		in   map[string]any
		want []string
	}{
		{"pattern", map[string]any{"pattern": "a(b"}, []string{"does not take this pattern", "unclosed group", "literal"}},
		{"bomb", map[string]any{"pattern": "((a{1000}){1000}){1000}"}, []string{"size limit", "fewer or smaller"}},
		{"line break", map[string]any{"pattern": "a\nb"}, []string{"does not take"}},
		{"missing", map[string]any{"pattern": "x", "path": "no/such"}, []string{"does not exist"}},
	} {
		res, err := call(t, env, Grep{}, tc.in)
		if err != nil || !res.IsError {
			t.Fatalf("%s: got %v, %v, want a failed result", tc.name, res, err)
		}
		for _, part := range tc.want {
			if !strings.Contains(res.Output, part) {
				t.Errorf("%s: got %q, want %q in it", tc.name, res.Output, part)
			}
		}
	}
	must(t, os.Truncate(filepath.Join(env.Worktree, "a"), 1<<40))
	res, err := call(t, env, Grep{}, map[string]any{"pattern": "x", "path": "a", "multiline": true})
	if err != nil || !res.IsError || !strings.Contains(res.Output, "Leave multiline out") {
		t.Errorf("a file that is too large for multiline: got %v, %v", res, err)
	}
	// As one of many it is left out.
	if out, _ := answer(t, env, Grep{}, map[string]any{"pattern": "x", "multiline": true}); out != "No matches found.\n" {
		t.Errorf("got %q", out)
	}
	_, err = call(t, env, Grep{}, map[string]any{"pattern": "x", "path": "fifo"})
	wantCode(t, err, CodeNotRegularFile, "fifo")
	_, err = call(t, env, Grep{}, map[string]any{"pattern": "x", "path": "/dev/zero"})
	wantCode(t, err, CodeNotRegularFile, "device")
	_, err = call(t, env, Grep{}, map[string]any{"pattern": "x", "include": "{a"})
	wantCode(t, err, CodeInvalidInput, "not a valid glob")
	_, err = call(t, env, Grep{}, map[string]any{"pattern": "x", "include": strings.Repeat("{a,b}", 9)})
	wantCode(t, err, CodeInvalidInput, "more than 256")
	_, err = Grep{}.Run(t.Context(), env, json.RawMessage(`{"pattern":1}`), nil)
	wantCode(t, err, CodeInvalidInput, "cannot be read")
}

// Neither a configuration file nor the environment can add flags, and patterns
// of any kind come to an end.
func TestGrepConfigAndBombs(t *testing.T) { withRipgreps(t, testGrepConfigAndBombs) }

func testGrepConfigAndBombs(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{"a": strings.Repeat("a", 1<<20) + "\n", "rc": "--pre=/bin/false\n--invert-match\n"})
	t.Setenv("RIPGREP_CONFIG_PATH", filepath.Join(env.Worktree, "rc"))
	if _, res := answer(t, env, Grep{}, map[string]any{"pattern": "absent"}); res.Metadata["matches"] != 0 {
		t.Errorf("the configuration was read: %v", res.Metadata)
	}
	words := make([]string, 6000)
	for i := range words {
		words[i] = fmt.Sprintf("w%d", i)
	}
	for _, pattern := range []string{"(a+)+$", "(a|a)*b", "^.*.*.*.*b", strings.Join(words, "|")} {
		if _, err := call(t, env, Grep{}, map[string]any{"pattern": pattern}); err != nil {
			t.Errorf("%.20s: %v", pattern, err)
		}
	}
}

// A worktree may be a part of a repository, or a copy without its history.
func TestIgnoreFilesWithoutGit(t *testing.T) { withRipgreps(t, testIgnoreFilesWithoutGit) }

func testIgnoreFilesWithoutGit(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{
		".gitignore": "out/\n", "out/a": "x\n", "sub/.gitignore": "*.tmp\n", "sub/b.tmp": "x\n", "sub/c": "x\n",
	})
	if got, _ := answer(t, env, Grep{}, map[string]any{"pattern": "x", "output_mode": "files"}); got != "Found 1 file with matches.\nW/sub/c\n" {
		t.Errorf("grep got %s", got)
	}
	if got, _ := answer(t, env, Glob{}, map[string]any{"pattern": "[a-z]*"}); got != "W/sub/c\n" {
		t.Errorf("glob got %s", got)
	}
}

// What is in a repository is not left out by the rules for git of another one around
// it, wherever the search begins; other rules go on.
func TestIgnoreFilesAroundARepository(t *testing.T) {
	withRipgreps(t, testIgnoreFilesAroundARepository)
}

func testIgnoreFilesAroundARepository(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{
		".git/": "", ".gitignore": "f\n", ".ignore": "g\n", "repo/.git/": "", "repo/sub/dir/f": "x\n", "repo/sub/dir/g": "x\n", "sub/dir/f": "x\n",
	})
	for path, want := range map[string]string{".": "W/repo/sub/dir/f\n", "repo": "W/repo/sub/dir/f\n", "repo/sub/dir": "W/repo/sub/dir/f\n", "sub/dir": "No files found.\n\n(1 file matches that ignore files such as .gitignore exclude, for example W/sub/dir/f: read and edit open it by its name; bash finds all such files.)\n"} {
		if got, _ := answer(t, env, Glob{}, map[string]any{"pattern": "[fg]", "path": path}); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// A hidden file right below where a search begins has its whole name for the rules of
// the directories above.
func TestHiddenFilesBelowOthersRules(t *testing.T) {
	withRipgreps(t, func(t *testing.T, env *Env) {
		tree(t, env.Worktree, map[string]string{".gitignore": "env\n.gone\n", "dir/.env": "x\n", "dir/env": "x\n", "dir/.gone": "x\n"})
		if got, _ := answer(t, env, Glob{}, map[string]any{"pattern": "*", "path": "dir"}); got != "W/dir/.env\n" {
			t.Errorf("got %s", got)
		}
	})
}

func TestGrepPreparedPathMoved(t *testing.T) { withRipgreps(t, testGrepPreparedPathMoved) }

func testGrepPreparedPathMoved(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{"dir/a": "x\n", "other/secret": "x\n"})
	raw := json.RawMessage(`{"pattern":"x","path":"dir"}`)
	prep, err := Grep{}.Prepare(t.Context(), env, raw)
	must(t, err)
	must(t, os.Rename(filepath.Join(env.Worktree, "dir"), filepath.Join(env.Worktree, "was")))
	must(t, os.Symlink("other", filepath.Join(env.Worktree, "dir")))
	_, err = Grep{}.Run(t.Context(), env, raw, prep)
	wantCode(t, err, CodeStale, "another place")
}

func TestGlob(t *testing.T) { withRipgreps(t, testGlob) }

func testGlob(t *testing.T, env *Env) {
	names := []string{"old.go", "src/mid.go", "src/deep/new.ts", ".hidden.go", "ignored/x.go", "src/y.log", ".git/z.go", "sp ace.go"}
	files := map[string]string{".gitignore": "ignored\n*.log\n"}
	for _, name := range names {
		files[name] = ""
	}
	tree(t, env.Worktree, files)
	for i, name := range names {
		when := time.Unix(int64(1000000+i), 0)
		must(t, os.Chtimes(filepath.Join(env.Worktree, name), when, when))
	}
	must(t, os.Symlink("old.go", filepath.Join(env.Worktree, "link.go")))
	for _, tc := range []struct {
		name string
		in   map[string]any
		want string
	}{
		{"by name, newest first", map[string]any{"pattern": "*.go"}, "W/sp ace.go\nW/.hidden.go\nW/src/mid.go\nW/old.go\n"},
		{"anywhere", map[string]any{"pattern": "**/*.go"}, "W/sp ace.go\nW/.hidden.go\nW/src/mid.go\nW/old.go\n"},
		{"anchored", map[string]any{"pattern": "src/*.go"}, "W/src/mid.go\n"},
		{"dot slash", map[string]any{"pattern": "./src/**"}, "W/src/deep/new.ts\nW/src/mid.go\n"},
		{"absolute", map[string]any{"pattern": env.Worktree + "/src/**/*.ts"}, "W/src/deep/new.ts\n"},
		{"directory", map[string]any{"pattern": "src/deep/"}, "W/src/deep/new.ts\n"},
		{"alternatives", map[string]any{"pattern": "src/**/*.{ts,go}"}, "W/src/deep/new.ts\nW/src/mid.go\n"},
		{"not", map[string]any{"pattern": "!*.go"}, "W/.gitignore\nW/src/deep/new.ts\n"},
		{"path", map[string]any{"pattern": "*.go", "path": "src"}, "W/src/mid.go\n"},
		{"ignored stays ignored", map[string]any{"pattern": "*.log"}, "No files found.\n\n(1 file matches that ignore files such as .gitignore exclude, for example W/src/y.log: read and edit open it by its name; bash finds all such files.)\n"},
		{"no git", map[string]any{"pattern": "z.go"}, "No files found.\n\n(1 file matches that ignore files such as .gitignore exclude, for example W/.git/z.go: set path to W/.git to find what is there.)\n"},
		{"none", map[string]any{"pattern": "nope"}, "No files found.\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "not" { // made last
				when := time.Unix(2000000, 0)
				must(t, os.Chtimes(filepath.Join(env.Worktree, ".gitignore"), when, when))
			}
			if got, _ := answer(t, env, Glob{}, tc.in); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
	_, err := call(t, env, Glob{}, map[string]any{"pattern": "[a"})
	wantCode(t, err, CodeInvalidInput, "not a valid glob")
	_, err = call(t, env, Glob{}, map[string]any{"pattern": "*", "path": "old.go"})
	wantCode(t, err, CodeNotRegularFile, "is a file, not a directory")
}

func TestGlobMore(t *testing.T) { withRipgreps(t, testGlobMore) }

func testGlobMore(t *testing.T, env *Env) {
	files := map[string]string{}
	for i := range 101 {
		files[fmt.Sprintf("d%d/f%03d.x", i%7, i)] = ""
		if i < 100 {
			files[fmt.Sprintf("f%03d.y", i)] = ""
		}
	}
	tree(t, env.Worktree, files)
	for pattern, more := range map[string]bool{"*.x": true, "*.y": false} {
		got, res := answer(t, env, Glob{}, map[string]any{"pattern": pattern})
		if res.Metadata["count"] != 100 || res.Metadata["more"] != more || strings.Contains(got, "more files") != more {
			t.Errorf("%s: got %v, want more %v", pattern, res.Metadata, more)
		}
	}
}

// slowExec is a program that prints something and then does not end in time.
func slowExec(output string) func(context.Context, Command) (*Exit, error) {
	return func(_ context.Context, c Command) (*Exit, error) {
		_, _ = io.WriteString(c.Stdout, output)
		return &Exit{Code: -1, Reason: ReasonTimeout}, nil
	}
}

func TestSearchDeadline(t *testing.T) {
	env := searchEnv(t)
	w := env.Worktree
	env.Exec = slowExec("./a\x003\x00:text\n./b\x004\x00:te")
	got, res := answer(t, env, Grep{}, map[string]any{"pattern": "t"})
	want := "Found 1 match.\n\nW/a:\n  3: text\n\n(The search is incomplete: it was ended after 30s. Search a smaller part.)\n"
	if got != want || res.Metadata["partial"] != true {
		t.Errorf("grep got\n%s\nwant\n%s", got, want)
	}
	tree(t, w, map[string]string{"a": "", "b": "", "c": ""})
	for _, name := range []string{"a", "b", "c"} {
		when := time.Unix(1000000, 0)
		must(t, os.Chtimes(filepath.Join(w, name), when, when))
	}
	env.Exec = slowExec("./b\x00./gone\x00./a\x00./c")
	got, res = answer(t, env, Glob{}, map[string]any{"pattern": "*"})
	want = "W/a\nW/b\n\n(The search is incomplete: it was ended after 30s. Search a smaller part.)\n"
	if got != want || res.Metadata["partial"] != true {
		t.Errorf("glob got\n%s\nwant\n%s", got, want)
	}
}

// Searches share nothing but the Env.
func TestSearchConcurrently(t *testing.T) { withRipgreps(t, testSearchConcurrently) }

func testSearchConcurrently(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{"a.go": "x\n", "b/c.go": "x\n"})
	var wg sync.WaitGroup
	for range 4 {
		for tool, in := range map[Tool]map[string]any{
			Grep{}: {"pattern": "x", "limit": 1}, Glob{}: {"pattern": "*.go"}, List{}: {},
		} {
			wg.Go(func() {
				raw, _ := json.Marshal(in)
				if res, err := tool.Run(t.Context(), env, raw, nil); err != nil || res.IsError {
					t.Errorf("%s: %v, %v", tool.Name(), res, err)
				}
			})
		}
	}
	wg.Wait()
}

// What waits for its age to be looked at is little, however long its path is.
func TestAgesBatches(t *testing.T) {
	for _, length := range []int{20, 4000} {
		a := &ages{ready: make(chan []string, 1000)}
		for range 1000 {
			a.ask(strings.Repeat("x", length))
		}
		a.wait()
		total := 0
		for batch := range a.ready {
			if total += len(batch); len(batch) > globBatch || (len(batch)-1)*length > globBatchBytes {
				t.Errorf("%d names of %d bytes in a batch", len(batch), length)
			}
		}
		if total != 1000 {
			t.Errorf("%d names came", total)
		}
	}
}
