package mount

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// repository is a directory with what git would make, changed by change.
func repository(t *testing.T, change func(dir string) error) *os.File {
	t.Helper()
	f := ownedDir(t, 41, 42)
	dir := f.Name()
	err := errors.Join(os.MkdirAll(dir+"/.git/hooks", 0o755), os.WriteFile(dir+"/.git/config", []byte("[core]\n"), 0o644),
		os.WriteFile(dir+"/.git/hooks/pre-commit", nil, 0o755), change(dir),
		filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Lchown(p, 41, 42)) }))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestGuardGit(t *testing.T) {
	tests := []struct {
		name   string
		change func(dir string) error
		mounts []string
		note   string
		err    string
	}{
		{name: "plain", change: func(string) error { return nil }, mounts: []string{"/work/.git/config", "/work/.git/hooks"}},
		{
			name: "with a worktree's own", change: func(dir string) error { return os.WriteFile(dir+"/.git/config.worktree", nil, 0o644) },
			mounts: []string{"/work/.git/config", "/work/.git/config.worktree", "/work/.git/hooks"},
		},
		{
			name: "no hooks", change: func(dir string) error { return os.RemoveAll(dir + "/.git/hooks") },
			mounts: []string{"/work/.git/config"}, note: "guard_git: the worktree has no .git/hooks to make read-only",
		},
		{
			name: "a pointer", change: func(dir string) error {
				return errors.Join(os.RemoveAll(dir+"/.git"), os.WriteFile(dir+"/.git", []byte("gitdir: /x\n"), 0o644))
			},
			note: "guard_git: the worktree has no .git/config to make read-only",
		},
		{
			name: "the config is a link", change: func(dir string) error {
				return errors.Join(os.Remove(dir+"/.git/config"), os.Symlink("/etc/passwd", dir+"/.git/config"))
			},
			err: "guard_git: .git/config: mount_target_not_plain",
		},
		{
			name: "git's directory is a link", change: func(dir string) error {
				return errors.Join(os.Rename(dir+"/.git", dir+"/x"), os.Symlink("x", dir+"/.git"))
			},
			err: "guard_git: .git/config: mount_target_not_plain",
		},
		{
			name: "the config is a FIFO", change: func(dir string) error {
				return errors.Join(os.Remove(dir+"/.git/config"), unix.Mkfifo(dir+"/.git/config", 0o644))
			},
			err: "guard_git: .git/config: mount_target_not_plain",
		},
		{
			name: "the hooks are a file", change: func(dir string) error {
				return errors.Join(os.RemoveAll(dir+"/.git/hooks"), os.WriteFile(dir+"/.git/hooks", nil, 0o644))
			},
			err: "guard_git: .git/hooks: mount_target_not_plain",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := sandbox.Worktree{Source: repository(t, tt.change), Target: "/work", UID: 41, GID: 42, GuardGit: true}
			set, err := Session{Claim: &sandbox.Claim{Worktree: w}, ToolUID: 7001, ToolGID: 7002}.Detach()
			if tt.err != "" {
				if err == nil || !errors.Is(err, sandbox.ErrMountTarget) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer closeSet(set)
			var got []string
			for _, m := range set.Mounts[1:] {
				got = append(got, m.Target)
			}
			if !slices.Equal(got, tt.mounts) {
				t.Errorf("mounts %q, want %q", got, tt.mounts)
			}
			if tt.note != "" && !slices.ContainsFunc(set.Notes, func(n string) bool { return strings.HasPrefix(n, tt.note) }) {
				t.Errorf("notes %q, want %q", set.Notes, tt.note)
			}
			for i, line := range described(t, set)[1:] {
				if !strings.HasSuffix(line, " ro nosuid nodev") {
					t.Errorf("mount %d: %s", i, line)
				}
			}
		})
	}
}

func closeSet(set *Set) {
	for _, m := range set.Mounts {
		m.File.Close()
	}
}

// What is guarded can neither be written, nor removed, nor replaced.
func TestGuardHolds(t *testing.T) {
	set, dir := guardedSet(t)
	defer closeSet(set)
	places := t.TempDir()
	err := Stage(places, set.Mounts, func() error {
		at := filepath.Join(places, "0")
		for name, err := range map[string]error{
			"write the config":   os.WriteFile(at+"/.git/config", []byte("x"), 0o644),
			"remove the config":  os.Remove(at + "/.git/config"),
			"replace the config": errors.Join(os.WriteFile(at+"/.git/new", nil, 0o644), os.Rename(at+"/.git/new", at+"/.git/config")),
			"add a hook":         os.WriteFile(at+"/.git/hooks/x", nil, 0o755),
			"move the hooks":     os.Rename(at+"/.git/hooks", at+"/.git/old"),
		} {
			if err == nil {
				t.Errorf("%s: it works", name)
			}
		}
		return os.WriteFile(at+"/.git/index", nil, 0o644) // and the rest of it can
	})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/.git/config"); err != nil || string(b) != "[core]\n" {
		t.Errorf("config %q, %v", b, err)
	}
}

// Another session swaps what is guarded before it is in its place.
func TestGuardSwapped(t *testing.T) {
	for name, swap := range map[string]func(dir string) error{
		"by a file": func(dir string) error { return os.WriteFile(dir+"/.git/config", []byte("[x]\n"), 0o644) },
		"by a link": func(dir string) error { return os.Symlink("/etc/passwd", dir+"/.git/config") },
		"by none":   func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			set, dir := guardedSet(t)
			defer closeSet(set)
			if err := errors.Join(os.Rename(dir+"/.git/config", dir+"/.git/aside"), swap(dir)); err != nil {
				t.Fatal(err)
			}
			err := Stage(t.TempDir(), set.Mounts, func() error { return nil })
			if !errors.Is(err, sandbox.ErrMountTarget) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func guardedSet(t *testing.T) (*Set, string) {
	t.Helper()
	f := repository(t, func(string) error { return nil })
	w := sandbox.Worktree{Source: f, Target: "/work", UID: 41, GID: 42, GuardGit: true}
	set, err := Session{Claim: &sandbox.Claim{Worktree: w}}.Detach() // root, who could do all of it, sees it
	if err != nil {
		t.Fatal(err)
	}
	return set, f.Name()
}
