package run

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/internal/plain"
)

// TestListPreparesWhatIsJudged: without a path the call names ".", and what that
// leads to must be known by this name, or nobody could allow it.
func TestListPreparesWhatIsJudged(t *testing.T) {
	env := searchEnv(t)
	for input, asked := range map[string]string{`{}`: ".", `{"path":"."}`: "."} {
		prep, err := List{}.Prepare(t.Context(), env, json.RawMessage(input))
		must(t, err)
		if len(prep.Targets) != 1 || prep.Targets[0].Asked != asked || prep.Targets[0].Path != env.Worktree {
			t.Errorf("%s: got %+v, want %q to lead to %s", input, prep.Targets, asked, env.Worktree)
		}
	}
}

func TestList(t *testing.T) {
	env := ripgrepEnv(t)
	tree(t, env.Worktree, map[string]string{
		"z.txt": "", "a.txt": "", "src/main.go": "", "src/deep/x.go": "", "docs/a.md": "", "docs/img/": "",
		"node_modules/m/i.js": "", ".git/HEAD": "", "build/out": "", "src/build": "a file", "x.log": "", "src/deep/y.log": "",
		".gitignore": "/build/\nnode_modules\n*.log\n", "bin/tool": "", "made/.gitignore": "*\n!.gitignore\n", "made/x": "",
		".env": "", "empty/": "", "new\nline": "", "\x1b[31mred/": "", "\xff": "", "two words": "", `"quoted"`: "",
	})
	for name, to := range map[string]string{"link": "src", "up": "/etc", "lost": "nowhere", "loop": "loop"} {
		must(t, os.Symlink(to, filepath.Join(env.Worktree, name)))
	}
	must(t, syscall.Mkfifo(filepath.Join(env.Worktree, "pipe"), 0o644))
	for _, tc := range []struct {
		name string
		in   map[string]any
		want string
	}{
		{"worktree", map[string]any{}, `W/
  "\x1b[31mred"/
  bin/
    tool
  docs/
    img/
    a.md
  empty/
  made/
    .gitignore
  src/
    deep/
      x.go
    build
    main.go
  "\"quoted\""
  .env
  .gitignore
  a.txt
  link -> src
  loop -> (leads nowhere)
  lost -> (leads nowhere)
  "new\nline"
  pipe (fifo)
  two words
  up -> /etc
  z.txt
  "\xff"

(Left out, since ignore files such as .gitignore exclude it or version control keeps it for itself: .git/, build/, made/x, node_modules/, src/deep/y.log, x.log. To see into a directory give it as path.)
`},
		{"path", map[string]any{"path": "src"}, "W/src/\n  deep/\n    x.go\n  build\n  main.go\n\n(Left out, since ignore files such as .gitignore exclude it or version control keeps it for itself: deep/y.log. To see into a directory give it as path.)\n"},
		{"by a link", map[string]any{"path": "link"}, "W/src/\n  deep/\n    x.go\n  build\n  main.go\n\n(Left out, since ignore files such as .gitignore exclude it or version control keeps it for itself: deep/y.log. To see into a directory give it as path.)\n"},
		{"excluded by name", map[string]any{"path": "node_modules"}, "W/node_modules/\n  m/\n    i.js\n"},
		{"empty", map[string]any{"path": env.Worktree + "/empty"}, "W/empty/\n  (empty)\n"},
		{"ignore", map[string]any{"path": "src", "ignore": []string{"*.go"}}, "W/src/\n  deep/\n  build\n\n(Left out by ignore: 2 entries.)\n\n(Left out, since ignore files such as .gitignore exclude it or version control keeps it for itself: deep/y.log. To see into a directory give it as path.)\n"},
		{"ignore by path", map[string]any{"path": "src", "ignore": []string{"deep/*.go", "build"}}, "W/src/\n  deep/\n  main.go\n\n(Left out by ignore: 2 entries.)\n\n(Left out, since ignore files such as .gitignore exclude it or version control keeps it for itself: deep/y.log. To see into a directory give it as path.)\n"},
		{"ignore a directory", map[string]any{"path": "src", "ignore": []string{"deep/"}}, "W/src/\n  build\n  main.go\n\n(Left out by ignore: 1 entry.)\n"},
		{"ignore below a directory", map[string]any{"path": "docs", "ignore": []string{"img/**"}}, "W/docs/\n  a.md\n\n(Left out by ignore: 1 entry.)\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := answer(t, env, List{}, tc.in); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		in   map[string]any
		code Code
		want string
	}{
		{map[string]any{"path": "a.txt"}, CodeNotRegularFile, "is a file, not a directory"},
		{map[string]any{"path": "pipe"}, CodeNotRegularFile, "is a fifo"},
		{map[string]any{"path": "lost"}, CodeInvalidPath, ""},
		{map[string]any{"ignore": []string{"!*.go"}}, CodeInvalidInput, "leave it out"},
		{map[string]any{"ignore": []string{"[a"}}, CodeInvalidInput, "not a valid glob"},
	} {
		_, err := call(t, env, List{}, tc.in)
		wantCode(t, err, tc.code, tc.want)
	}
	res, err := call(t, env, List{}, map[string]any{"path": "missing"})
	if err != nil || !res.IsError || !strings.Contains(res.Output, "does not exist") {
		t.Errorf("missing: got %v, %v", res, err)
	}
	_, err = List{}.Run(t.Context(), env, json.RawMessage(`[]`), nil)
	wantCode(t, err, CodeInvalidInput, "cannot be read")
}

func TestListMore(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files func(add func(format string, args ...any))
		count int
		more  bool
		has   []string // lines that must be there
	}{
		{"just the limit", func(add func(string, ...any)) {
			for i := range 100 {
				add("f%03d", i)
			}
		}, 100, false, []string{"  f000", "  f099"}},
		{"one more", func(add func(string, ...any)) {
			for i := range 101 {
				add("f%03d", i)
			}
		}, 100, true, []string{"  f000", "  f099"}},
		{"one more below", func(add func(string, ...any)) {
			for i := range 99 {
				add("f%03d", i)
			}
			add("d/x")
		}, 100, true, []string{"  d/", "  f098"}},
		{"only what is excluded below", func(add func(string, ...any)) {
			for i := range 99 {
				add("f%03d", i)
			}
			add("d/.git/x")
		}, 100, false, []string{"  d/"}},
		{"upper levels first", func(add func(string, ...any)) {
			for i := range 200 {
				add("a/f%03d", i)
			}
			add("b/x")
			add("z")
		}, 100, true, []string{"  a/", "    f096", "  b/", "  z"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := ripgrepEnv(t)
			files := map[string]string{}
			tc.files(func(format string, args ...any) { files[fmt.Sprintf(format, args...)] = "" })
			tree(t, env.Worktree, files)
			out, res := answer(t, env, List{}, map[string]any{})
			if res.Metadata["count"] != tc.count || res.Metadata["more"] != tc.more {
				t.Errorf("got %v, want %d and more %v", res.Metadata, tc.count, tc.more)
			}
			for _, line := range tc.has {
				if !strings.Contains(out, line+"\n") {
					t.Errorf("no line %q in\n%s", line, out)
				}
			}
		})
	}
}

// A tree of any depth or width costs no more than its answer.
func TestListHuge(t *testing.T) {
	env := ripgrepEnv(t)
	wide := filepath.Join(env.Worktree, "wide")
	must(t, os.Mkdir(wide, 0o755))
	for i := range 20000 {
		must(t, os.Symlink("x", filepath.Join(wide, fmt.Sprintf("e%05d", i))))
	}
	_, res := answer(t, env, List{}, map[string]any{"path": "wide"})
	if res.Metadata["count"] != 100 || res.Metadata["more"] != true {
		t.Errorf("wide: got %v", res.Metadata)
	}
	deep := filepath.Join(env.Worktree, "deep")
	must(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", 1500)), 0o755))
	_, res = answer(t, env, List{}, map[string]any{"path": "deep"})
	if res.Metadata["count"] != 100 || res.Metadata["more"] != true {
		t.Errorf("deep: got %v", res.Metadata)
	}
}

func TestListNoTime(t *testing.T) {
	env := ripgrepEnv(t)
	tree(t, env.Worktree, map[string]string{"a/b": ""})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := List{}.Run(ctx, env, json.RawMessage(`{}`), nil)
	wantCode(t, err, CodeAborted, "stopped")

	l := &lister{root: env.Root, base: env.Worktree, partial: true}
	res := l.result(t.Context(), env, &listNode{path: env.Worktree})
	if res.Metadata["partial"] != true || !strings.Contains(res.Output, "incomplete") {
		t.Errorf("got %v %q", res.Metadata, res.Output)
	}
}

// A directory that goes away while the tree is read is shown with a note.
func TestListVanished(t *testing.T) {
	env := searchEnv(t)
	tree(t, env.Worktree, map[string]string{"a/b": ""})
	l := &lister{root: env.Root, base: env.Worktree}
	all := newFindings()
	all.add("a/b")
	top := &listNode{path: env.Worktree, found: all.top}
	must(t, l.read(t.Context(), top))
	must(t, os.RemoveAll(filepath.Join(env.Worktree, "a")))
	must(t, l.expand(t.Context(), top.children))
	want := env.Worktree + "/\n  a/ (cannot be listed)\n"
	if got := l.result(t.Context(), env, top).Output; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDisplayName(t *testing.T) {
	for in, want := range map[string]string{
		"plain.txt":     "plain.txt",
		"with space":    "with space",
		"ümläut 日本":     "ümläut 日本",
		"a\nb":          `"a\nb"`,
		"\x1b]0;x\a":    `"\x1b]0;x\a"`,
		"\xff":          `"\xff"`,
		`"a"`:           `"\"a\""`,
		"rtl\u202egpj":  `"rtl\u202egpj"`,
		"zero\u200bwid": `"zero\u200bwid"`,
	} {
		if got := plain.Name(in); got != want {
			t.Errorf("plain.Name(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestSelectorTypeGlob(t *testing.T) {
	for in, want := range map[string]string{
		"*.go":              "*.go",
		"src/**/*.{ts,tsx}": "*.{ts,tsx}",
		"src/**":            "",
		"{a/b,c}.go":        "",
		"[ab].go":           "",
		"a:b":               "",
		"*.{,go}":           "",
		"{a,{b,c}}":         "",
		"!*.go":             "",
		`\*`:                "",
	} {
		s, err := newSelector(in, "/w")
		must(t, err)
		if got := s.typeGlob(); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}
