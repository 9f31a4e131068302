package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
)

// stubs are the programs of the corpus that a session may not have, or that would take long.
const stubs = "npm npx node yarn pnpm cargo go gofmt python3 pip ruff black make gcc tsc curl docker psql jq rg tree lsof ss ps sqlite3 unzip file xxd"

// corpusTree is a directory with the files of the corpus, in a repository.
func corpusTree(t *testing.T, corpus string) string {
	t.Helper()
	dir := t.TempDir()
	a, err := txtar.ParseFile(filepath.Join(corpus, "tree.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		file := filepath.Join(dir, f.Name)
		testrig.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testrig.Must(t, os.WriteFile(file, f.Data, 0o755))
	}
	for name := range strings.FieldsSeq(stubs) {
		testrig.Must(t, os.Symlink("stub", filepath.Join(dir, ".programs", name)))
	}
	for _, args := range []string{
		"init -q -b main --template=", "config user.name Ada", "config user.email ada@example.com", "add .", "commit -q -m one",
		"rm -q b.c", "commit -q -m two", "revert --no-edit HEAD",
	} {
		cmd := exec.Command("git", strings.Fields(args)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	testrig.Must(t, os.WriteFile(filepath.Join(dir, "internal/server/routes.go"), []byte("package server\n"), 0o644))
	return dir
}

// again makes dir a copy of from.
func again(t *testing.T, dir, from string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		testrig.Must(t, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	testrig.Must(t, os.CopyFS(dir, os.DirFS(from)))
}

// TestRealCorpus: the commands as agents write them do in a session what they do elsewhere, and nothing of them is asked about: with the profile, that is denied.
func TestRealCorpus(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	const corpus = "../policy/testdata/corpus"
	from, all := corpusTree(t, corpus), testrig.Corpus(t, corpus)
	t.Run("parts", func(t *testing.T) { // the daemon ends after them
		const parts = 4
		for i := range parts {
			dir := realTree(t, m, "", nil)
			t.Run("", func(t *testing.T) {
				t.Parallel()
				s, err := m.Create(t.Context(), mounter, client.SessionCreate{
					Profile: "ci", Worktree: client.Worktree{Source: dir}, Env: map[string]string{"PATH": "/workspace/.programs:/usr/bin:/bin"},
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range all[i*len(all)/parts : (i+1)*len(all)/parts] {
					again(t, dir, from)
					got := realCall(t, m, s.ID, "bash", object{"command": c.Text})
					if got.Error != nil || got.Metadata["exit_code"] != int64(c.Status) {
						t.Errorf("%s\n%+v, exit code %v, want %d:\n%s", c.Text, got.Error, got.Metadata["exit_code"], c.Status, got.Output)
					}
				}
			})
		}
	})
}

// TestRealAlone: about a path that is only known at run time is asked where it may be a person's:
// in a session with a cache that others write, and with a mount that cannot be kept from the command.
func TestRealAlone(t *testing.T) {
	needs.Landlock(t, 3)
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, "", map[string]string{"f": "hello\n", "x/f": ""})
	set := *m.settings.Load()
	set.MountRoots = []string{dir}
	for name, mode := range map[string]client.CacheMode{"own": client.CacheCow, "all": client.CacheShared} {
		c := builtin.Cache{Name: name, Dirs: []builtin.Dir{{Name: name}}}
		set.Caches = append(set.Caches, cache.Setting{Cache: c, Path: "/caches/" + name, Mode: mode, Size: 32 << 20})
	}
	m.Reload(set)
	for _, tt := range []struct {
		name    string
		request client.SessionCreate
		denied  bool
	}{
		{"a worktree", client.SessionCreate{}, false},
		{"a cache of its own", client.SessionCreate{Caches: []client.CacheUse{{Name: "own"}}}, false},
		{"a cache that others write", client.SessionCreate{Caches: []client.CacheUse{{Name: "all"}}}, true},
		{"a mount to read", client.SessionCreate{Mounts: []client.Mount{{Source: dir, Target: "/mnt/x"}}}, false},
		{"a mount, and such a cache", client.SessionCreate{Mounts: []client.Mount{{Source: dir, Target: "/mnt/x"}}, Caches: []client.CacheUse{{Name: "all"}}}, true},
		{"a mount in the worktree", client.SessionCreate{Mounts: []client.Mount{{Source: dir, Target: "/workspace/x"}}}, true},
	} {
		tt.request.Profile, tt.request.Worktree = "ci", client.Worktree{Source: dir}
		s, err := m.Create(t.Context(), mounter, tt.request)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for _, command := range []string{"cat $(echo f)", "d=$(pwd); cd $d && cat f"} {
			c := realCall(t, m, s.ID, "bash", object{"command": command})
			if denied := c.Error != nil && c.Error.Code == client.CodeDenied; denied != tt.denied || !denied && c.Output != "hello\n" {
				t.Errorf("with %s, %s: %+v %q", tt.name, command, c.Error, c.Output)
			}
		}
	}
}
