package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// watched makes a repository, marks it, changes it, and gives what Changes says.
func watched(t *testing.T, change func(dir string), more ...string) Changed {
	t.Helper()
	env, dir := fileEnv(t)
	env.Watch = new(Watch)
	for name, content := range map[string]string{
		".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n\tbare = false\n", ".git/index": "i",
		".git/hooks/pre-commit.sample": "#!/bin/sh\n", ".git/info/exclude": "", ".git/objects/ab/cdef": "o",
		".git/refs/heads/main": "0\n", ".git/modules/lib/HEAD": "ref: refs/heads/main\n", ".git/modules/lib/config": "[core]\n",
		".git/modules/lib/objects/ab/cdef": "o", ".vscode/settings.json": "{}", ".gitattributes": "* text\n",
		"lib/.git": "gitdir: ../.git/modules/lib\n", "sub/.envrc": "true\n", "Makefile": "all:\n", "main.go": "package main\n",
		"tools/hooks/pre-push": "#!/bin/sh\n", "fixture/HEAD": "ref: refs/heads/main\n", "fixture/refs/x": "", "fixture/config": "[core]\n",
	} {
		writeFile(t, dir+"/"+name, content)
	}
	awaitTick()
	if change == nil {
		change = func(string) {}
	} else {
		env.Watch.Mark(t.Context(), env)
	}
	change(dir)
	r := mustCall(t, env, Changes{}, object{"more": more})
	var c Changed
	if err := json.Unmarshal([]byte(r.Output), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitTick waits until the clock that file systems use, which counts in ticks, is
// past all that has happened so far.
func awaitTick() {
	for begun := time.Now().UnixNano(); coarseNow() <= begun; {
		runtime.Gosched()
	}
}

func TestWatch(t *testing.T) {
	write := func(name, content string) func(string) {
		return func(dir string) {
			if err := os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755); err != nil {
				panic(err)
			}
			if err := os.WriteFile(dir+"/"+name, []byte(content), 0o644); err != nil {
				panic(err)
			}
		}
	}
	do := func(steps ...func(dir string) error) func(string) {
		return func(dir string) {
			for _, f := range steps {
				if err := f(dir); err != nil {
					panic(err)
				}
			}
		}
	}
	rename := func(from, to string) func(string) error {
		return func(dir string) error { return os.Rename(dir+"/"+from, dir+"/"+to) }
	}
	link := func(to, name string) func(string) error {
		return func(dir string) error { return os.Symlink(to, dir+"/"+name) }
	}
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.RemoveAll(dir + "/" + name) }
	}
	mkdir := func(name string) func(string) error {
		return func(dir string) error { return os.MkdirAll(dir+"/"+name, 0o755) }
	}
	tests := []struct {
		name   string
		change func(dir string)
		want   []string // sensitive
		build  []string
	}{
		{name: "nothing", change: do()},
		{name: "sources", change: write("main.go", "package other\n")},
		{name: "git's own work", change: func(dir string) {
			for _, f := range []string{
				".git/HEAD", ".git/index", ".git/ORIG_HEAD", ".git/COMMIT_EDITMSG", ".git/objects/12/3456", ".git/refs/heads/x",
				".git/logs/HEAD", ".git/packed-refs", ".git/index.lock", ".git/modules/lib/FETCH_HEAD",
			} {
				write(f, "new")(dir)
			}
		}},
		{name: "the same again", change: write(".git/config", "[core]\n\tbare = false\n")},
		{name: "config", change: write(".git/config", "[core]\n\tfsmonitor = /tmp/x\n"), want: []string{".git/config"}},
		{name: "config.worktree", change: write(".git/config.worktree", "x"), want: []string{".git/config.worktree"}},
		{name: "commondir", change: write(".git/commondir", "../x"), want: []string{".git/commondir"}},
		{name: "attributes of git's", change: write(".git/info/attributes", "* filter=x"), want: []string{".git/info/attributes"}},
		{name: "hook", change: write(".git/hooks/pre-commit", "#!/bin/sh\n"), want: []string{".git/hooks/pre-commit"}},
		{name: "hook made executable", change: do(func(dir string) error { return os.Chmod(dir+"/.git/hooks/pre-commit.sample", 0o755) }), want: []string{".git/hooks/pre-commit.sample"}},
		{name: "hooks replaced by a link", change: do(remove(".git/hooks"), link("../tools/hooks", ".git/hooks")), want: []string{
			".git/hooks", ".git/hooks -> /w/tools/hooks", ".git/hooks -> /w/tools/hooks/pre-push", ".git/hooks/pre-commit.sample",
		}},
		{name: "config removed", change: do(remove(".git/config")), want: []string{".git/config"}},
		{name: "rebase to be continued", change: write(".git/rebase-merge/git-rebase-todo", "exec x"), want: []string{".git/rebase-merge", ".git/rebase-merge/git-rebase-todo"}},
		{name: "submodule's config", change: write(".git/modules/lib/config", "x"), want: []string{".git/modules/lib/config"}},
		{name: "submodule called objects", change: write(".git/modules/objects/config", "x"), want: []string{".git/modules/objects", ".git/modules/objects/config"}},
		{name: "another repository in its place", change: do(rename(".git", "old"), mkdir("fixture/objects"), rename("fixture", ".git")), want: []string{
			".git/config", ".git/hooks", ".git/info", ".git/modules",
		}},
		{name: "pointer", change: do(rename(".git", "old"), func(dir string) error { return os.WriteFile(dir+"/.git", []byte("gitdir: old\n"), 0o644) }), want: []string{".git"}},
		{name: "link", change: do(rename(".git", "old"), link("old", ".git")), want: []string{".git", ".git -> /w/old"}},
		{name: "attributes", change: write(".gitattributes", "* filter=x"), want: []string{".gitattributes"}},
		{name: "attributes below", change: write("a/b/.gitattributes", "* filter=x"), want: []string{"a/b/.gitattributes"}},
		{name: "modules", change: write(".gitmodules", "x"), want: []string{".gitmodules"}},
		{name: "submodule's pointer", change: write("lib/.git", "gitdir: ../evil\n"), want: []string{"lib/.git"}},
		{name: "repository within", change: write("vendor/x/.git/config", "x"), want: []string{"vendor/x/.git", "vendor/x/.git/config"}},
		{name: "other case", change: write("a/.GIT/config", "x"), want: []string{"a/.GIT", "a/.GIT/config"}},
		{name: "short name", change: write("a/git~1/config", "x"), want: []string{"a/git~1", "a/git~1/config"}},
		{name: "other case at the top", change: write(".Husky/pre-commit", "x"), want: []string{".Husky", ".Husky/pre-commit"}},
		{name: "bare repository", change: do(mkdir("fixture/objects")), want: []string{"fixture"}},
		{name: "bare by commondir", change: write("fixture/commondir", "../x"), want: []string{"fixture", "fixture/commondir"}},
		{name: "worktree that is bare", change: do(mkdir("objects"), mkdir("refs"), func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/HEAD", []byte("ref: x"), 0o644), os.WriteFile(dir+"/config", nil, 0o644))
		}), want: []string{"HEAD", "config"}},
		{name: "envrc", change: write(".envrc", "x"), want: []string{".envrc"}},
		{name: "envrc below", change: write("sub/.envrc", "x"), want: []string{"sub/.envrc"}},
		{name: "editor", change: write(".vscode/tasks.json", "x"), want: []string{".vscode/tasks.json"}},
		{name: "CI", change: write(".github/workflows/x.yml", "x"), want: []string{".github", ".github/workflows", ".github/workflows/x.yml"}},
		{name: "hooks of the tree", change: write(".husky/pre-commit", "x"), want: []string{".husky", ".husky/pre-commit"}},
		{name: "name with controls", change: write("a\x1b[2J\n/.envrc", "x"), want: []string{`"a\x1b[2J\n/.envrc"`}},
		{name: "build files", change: func(dir string) { write("Makefile", "x")(dir); write("web/package.json", "{}")(dir) }, build: []string{"Makefile", "web/package.json"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := watched(t, tt.change)
			for _, want := range tt.want {
				if !slices.Contains(c.Sensitive, want) {
					t.Errorf("sensitive = %q, without %q", c.Sensitive, want)
				}
			}
			if tt.want == nil && c.Sensitive != nil {
				t.Errorf("sensitive = %q, want none", c.Sensitive)
			}
			if !slices.Equal(c.Build, tt.build) {
				t.Errorf("build = %q, want %q", c.Build, tt.build)
			}
			if c.More != 0 || c.Unchecked != "" {
				t.Errorf("more = %d, unchecked = %q", c.More, c.Unchecked)
			}
		})
	}
}

// What the configuration of the host names is told too, where it was changed.
func TestWatchMore(t *testing.T) {
	c := watched(t, func(dir string) {
		for _, name := range []string{"ops/deep/x.conf", "main.go", "sub/deploy.sh", "other", "kept.hcl"} {
			writeFile(t, dir+"/"+name, "changed")
		}
	}, "ops/", "*.sh", "/main.go", "*.hcl", "!kept.hcl", "Makefile")
	if want := []string{"main.go", "ops", "ops/deep", "sub/deploy.sh", "ops/deep/x.conf"}; !slices.Equal(c.Sensitive, want) {
		t.Errorf("%q; want %q", c.Sensitive, want)
	}
}

// Where no call could write, nothing is looked at.
func TestWatchUnmarked(t *testing.T) {
	if c := watched(t, nil); c.Sensitive != nil || c.Build != nil || c.Unchecked != "" {
		t.Errorf("%+v", c)
	}
}

// What is looked at and what is told are bounded, and it is said when they were.
func TestWatchBounds(t *testing.T) {
	c := watched(t, func(dir string) {
		for i := range watchPaths + 7 {
			writeFile(t, fmt.Sprintf("%s/x/%d/.envrc", dir, i), "")
		}
		writeFile(t, dir+"/.git/hooks/"+strings.Repeat("é", 127), "")
	})
	if len(c.Sensitive) != watchPaths || c.More != 8 || c.Unchecked != "" {
		t.Errorf("%d, more %d, unchecked %q", len(c.Sensitive), c.More, c.Unchecked)
	}
	if want := ".git/hooks/" + strings.Repeat("é", 127); !slices.Contains(c.Sensitive, want) {
		t.Errorf("the top does not come first: %q", c.Sensitive)
	}
	c = watched(t, func(dir string) {
		for i := range watchFiles {
			if err := os.Link(dir+"/.git/config", fmt.Sprintf("%s/.git/hooks/%d", dir, i)); err != nil {
				t.Fatal(err)
			}
		}
	})
	if c.Unchecked == "" {
		t.Error("more than can be looked at, and nothing is said")
	}
}

// What a tool changes is seen: the watch looks before the first call of each that does.
func TestWriteTools(t *testing.T) {
	for _, tool := range Builtin() {
		_, changes := tool.(Direct)
		if _, marked := tool.(WriteTool); changes && !marked {
			t.Errorf("%s changes files, and the watch does not look before it", tool.Name())
		}
	}
}
