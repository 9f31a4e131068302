package apply

import (
	"slices"
	"testing"

	"github.com/toold/toold/client"
)

// Patterns of the configuration add to what is known, and take nothing from that.
func TestMoreSensitive(t *testing.T) {
	t.Parallel()
	g := begin(t, tree(t, map[string]string{"ops/old": "x", "keep/x.hcl": "x"}))
	write(t, g.work, map[string]string{
		"ops/new": "x", "ops/old": "y", "a/ops/x": "x", "x.hcl": "x", "b/y.hcl": "x", ".envrc": "x", "scripts/deploy.sh": "x", "c/scripts/deploy.sh": "x", "ok": "x",
	})
	remove(t, g.work, "keep/x.hcl")
	g.job.Sensitive = []string{"/ops/", "*.hcl", "scripts/deploy.sh", "!.envrc", "# none"}
	a := g.mustApply(client.ApplyRequest{})
	if want := []string{".envrc", "b/y.hcl", "keep/x.hcl", "ops/new", "ops/old", "scripts/deploy.sh", "x.hcl"}; !slices.Equal(a.Sensitive, want) {
		t.Errorf("left out is %q, want %q", a.Sensitive, want)
	}
	if want := []string{"a", "a/ops", "a/ops/x", "b", "c", "c/scripts", "c/scripts/deploy.sh", "ok", "scripts"}; !slices.Equal(a.Written, want) {
		t.Errorf("written is %q, want %q", a.Written, want)
	}
	if a = g.mustApply(client.ApplyRequest{IncludeSensitive: true}); a.SensitiveCount != 0 || a.WrittenCount != 6 || a.RemovedCount != 1 {
		t.Errorf("with all of them: %+v", a)
	}
}

// What programs of a host run or obey is left out and told, and so is what would become
// that.
func TestSensitive(t *testing.T) {
	bare := map[string]string{"HEAD": "ref: x", "objects/": "", "refs/heads/": "", "config": "[core]\n\tfsmonitor = x"}
	below := func(dir string, files map[string]string) map[string]string {
		m := make(map[string]string)
		for name, content := range files {
			m[dir+"/"+name] = content
		}
		return m
	}
	for name, tt := range map[string]struct {
		base, work map[string]string
		removed    []string
		sensitive  []string
		written    []string
	}{
		"git": {work: map[string]string{".git/hooks/pre-commit": "x", "a": "a"}, sensitive: []string{".git", ".git/hooks", ".git/hooks/pre-commit"}, written: []string{"a"}},
		"other spellings": {
			work:      map[string]string{"s/.GIT/config": "x", "s/git~1/config": "x", ".git. /x": "x", "s/.g\u200cit": "gitdir: x", "s/ok": "x"},
			sensitive: []string{`".git. "`, ".git. /x", "s/.GIT", "s/.GIT/config", `"s/.g\u200cit"`, "s/git~1", "s/git~1/config"}, written: []string{"s", "s/ok"},
		},
		"link": {work: map[string]string{".vscode": "-> /tmp/x", "a/.envrc": "-> x"}, sensitive: []string{".vscode", "a/.envrc"}, written: []string{"a"}},
		"removed": {
			base: map[string]string{".husky/pre-push": "x", "a/.gitattributes": "x", "a/b": "b"}, removed: []string{".husky", "a"},
			sensitive: []string{".husky", ".husky/pre-push", "a", "a/.gitattributes"},
		},
		"directory with one becomes a file": {
			base: map[string]string{"a/.envrc": "x", "a/b": "b"}, removed: []string{"a"}, work: map[string]string{"a": "f"}, sensitive: []string{"a", "a/.envrc"},
		},
		"new bare repository": {
			work: below("x/y", bare), sensitive: []string{"x/y", "x/y/HEAD", "x/y/config", "x/y/objects", "x/y/refs", "x/y/refs/heads"}, written: []string{"x"},
		},
		"bare repository that was there": {
			base: below("y", bare), work: map[string]string{"y/config": "x", "y/hooks/x": "x", "z/config": "x"},
			sensitive: []string{"y/config", "y/hooks", "y/hooks/x"}, written: []string{"z", "z/config"},
		},
		"completed": {
			base: map[string]string{"y/HEAD": "x", "y/objects/": "", "y/config": "x"}, work: map[string]string{"y/refs/x": "x"}, sensitive: []string{"y/refs", "y/refs/x"},
		},
		"admin directory of a worktree": {
			base: map[string]string{"y/HEAD": "x", "y/config": "x"}, work: map[string]string{"y/commondir": "../x"}, sensitive: []string{"y/commondir"},
		},
		"other case": {
			base: map[string]string{"y/HEAD": "x"}, work: map[string]string{"y/Objects/": "", "y/REFS/": ""}, sensitive: []string{"y/Objects", "y/REFS"},
		},
		"the top": {
			base: map[string]string{"HEAD": "x", "config": "x", "a": "x"}, work: map[string]string{"objects/x": "x", "refs/x": "x", "config": "y", "a": "y", "objects2": "x"},
			sensitive: []string{"config", "objects", "objects/x", "refs", "refs/x"}, written: []string{"a", "objects2"},
		},
		"some parts": {work: map[string]string{"y/HEAD": "x", "y/refs/x": "x"}, written: []string{"y", "y/HEAD", "y/refs", "y/refs/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := begin(t, tree(t, tt.base))
			remove(t, g.work, tt.removed...)
			write(t, g.work, tt.work)
			a := g.mustApply(client.ApplyRequest{})
			if !slices.Equal(a.Sensitive, tt.sensitive) || !slices.Equal(a.Written, tt.written) || a.SensitiveCount != len(tt.sensitive) {
				t.Errorf("sensitive %q, want %q\nwritten %q, want %q", a.Sensitive, tt.sensitive, a.Written, tt.written)
			}
			if again := g.mustApply(client.ApplyRequest{}); !slices.Equal(again.Sensitive, tt.sensitive) || again.WrittenCount+again.RemovedCount != 0 {
				t.Errorf("once more: %+v", again)
			}
			if a := g.mustApply(client.ApplyRequest{IncludeSensitive: true}); a.WrittenCount+a.RemovedCount != len(tt.sensitive) || a.SensitiveCount != 0 {
				t.Errorf("asked for: %+v", a)
			}
			if diffs := differ(look(t, g.source), look(t, g.work)); diffs != nil {
				t.Error(diffs)
			}
		})
	}
}

// A request names paths and patterns. What it names is done and no more, but for the
// directories that it needs.
func TestChosen(t *testing.T) {
	base := map[string]string{"a/x": "x", "a/y": "y", "b/c/d": "d", "f": "f", "log/1": "1"}
	work := map[string]string{"a/x": "new", "new/deep/p": "p", "new/q": "q", "f/in": "i", "log/1": "2", "log/2": "2", "n.log": "n", "keep.log": "k"}
	removed := []string{"a/y", "b", "f"}
	for _, tt := range []struct {
		name string
		r    client.ApplyRequest
		want map[string]string // of the source then, where it differs
		gone []string
	}{
		{name: "a file", r: client.ApplyRequest{Paths: []string{"a/x"}}, want: map[string]string{"a/x": "new"}},
		{name: "a directory", r: client.ApplyRequest{Paths: []string{"a"}}, want: map[string]string{"a/x": "new"}, gone: []string{"a/y"}},
		{name: "in a new directory", r: client.ApplyRequest{Paths: []string{"new/deep/p"}}, want: map[string]string{"new/deep/p": "p"}},
		{name: "in what was a file", r: client.ApplyRequest{Paths: []string{"f/in"}}, want: map[string]string{"f/in": "i"}, gone: []string{"f"}},
		{name: "a part of what is removed", r: client.ApplyRequest{Paths: []string{"b/c/d"}}, gone: []string{"b/c/d"}},
		{name: "a directory that is removed", r: client.ApplyRequest{Paths: []string{"b"}}, gone: []string{"b"}},
		{name: "nothing that is there", r: client.ApplyRequest{Paths: []string{"nope"}}},
		{name: "a name's beginning", r: client.ApplyRequest{Paths: []string{"ne"}}},
		{name: "the top", r: client.ApplyRequest{Paths: []string{"."}, Exclude: []string{"log", "*.log", "new", "f", "b"}}, want: map[string]string{"a/x": "new"}, gone: []string{"a/y"}},
		{name: "patterns", r: client.ApplyRequest{Exclude: []string{"*.log", "!keep.log", "/log/", "/f", "deep/", "# x", "d"}}, want: map[string]string{
			"a/x": "new", "new/q": "q", "keep.log": "k",
		}, gone: []string{"a/y"}},
		{name: "both", r: client.ApplyRequest{Paths: []string{"new", "a"}, Exclude: []string{"q", "y"}}, want: map[string]string{"a/x": "new", "new/deep/p": "p"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := begin(t, tree(t, base))
			remove(t, g.work, removed...)
			write(t, g.work, work)
			want := tree(t, base)
			remove(t, want, tt.gone...)
			write(t, want, tt.want)
			a := g.mustApply(tt.r)
			if diffs := differ(look(t, g.source), look(t, want)); diffs != nil {
				t.Errorf("%q\n%+v", diffs, a)
			}
		})
	}
	g := begin(t, tree(t, nil))
	for _, bad := range []string{"/etc", "../x", "a/../b", "a/", ""} {
		if _, err := g.apply(client.ApplyRequest{Paths: []string{bad}}); err == nil {
			t.Errorf("%q is taken for a path", bad)
		}
	}
}
