package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// linkedSession is a session on a repository with a list of linked worktrees, changed by
// change in that directory.
func linkedSession(t *testing.T, change func(list string) error) (Session, string) {
	t.Helper()
	f := repository(t, func(dir string) error {
		list := dir + "/.git/worktrees"
		return errors.Join(os.MkdirAll(list+"/one", 0o755), os.WriteFile(list+"/one/HEAD", []byte("x"), 0o644), change(list))
	})
	w := sandbox.Worktree{Source: f, Target: "/work", UID: 41, GID: 42, Linked: []sandbox.Linked{{List: ".git/worktrees"}}}
	return Session{Claim: &sandbox.Claim{Worktree: w}, ToolUID: 7001, ToolGID: 7002, Staging: t.TempDir()}, f.Name() + "/.git/worktrees"
}

// within runs f where the mounts of a session are; at is its worktree.
func within(t *testing.T, s Session, f func(at string) error) (notes string) {
	t.Helper()
	set, err := s.Detach()
	if err != nil {
		t.Fatal(err)
	}
	defer closeSet(set)
	places := t.TempDir()
	if err := Stage(places, set.Mounts, func() error { return f(filepath.Join(places, "0")) }); err != nil {
		t.Error(err)
	}
	return strings.Join(set.Notes, "\n")
}

// Whatever the entries are, what has none of the host's rights, or is removed in a session, stays
// on the host.
func TestLinkedEntries(t *testing.T) {
	long := strings.Repeat("n", 255)
	tests := []struct {
		name   string
		change func(list string) error
		locked []string
		notes  []string
	}{
		{"one", func(string) error { return nil }, []string{"one"}, []string{"(.git/worktrees: 1, locked here)"}},
		{"none", func(list string) error { return os.RemoveAll(list + "/one") }, nil, []string{"(.git/worktrees: 0, locked here)"}},
		{"strange names", func(list string) error {
			return errors.Join(os.Mkdir(list+"/a\nb", 0o755), os.Mkdir(list+"/-x", 0o755), os.Mkdir(list+"/\xff;$(x)", 0o755), os.Mkdir(list+"/"+long, 0o755))
		}, []string{"one", "a\nb", "-x", "\xff;$(x)", long}, nil},
		{"locked there", func(list string) error { return os.WriteFile(list+"/one/locked", []byte("mine"), 0o644) }, []string{"one"}, nil},
		{"locked by a directory", func(list string) error { return os.Mkdir(list+"/one/locked", 0o755) }, []string{"one"}, nil},
		{"locked by a link", func(list string) error { return os.Symlink("/etc/passwd", list+"/one/locked") }, []string{"one"}, nil},
		{"a link and a file", func(list string) error {
			return errors.Join(os.Symlink("/etc", list+"/link"), os.WriteFile(list+"/file", nil, 0o644))
		}, []string{"one"}, []string{"(.git/worktrees: 1, locked here)", "could not be locked"}},
		{"too many", func(list string) error {
			for i := range maxLinked + 5 {
				if err := os.Mkdir(fmt.Sprintf("%s/%d", list, i), 0o755); err != nil {
					return err
				}
			}
			return nil
		}, nil, []string{"(.git/worktrees: 1000, locked here)", "could not be locked"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, list := linkedSession(t, tt.change)
			before := onHost(t, list)
			notes := within(t, s, func(at string) error {
				for _, name := range tt.locked {
					if _, err := os.Lstat(filepath.Join(at, ".git/worktrees", name, "locked")); err != nil {
						t.Error(err)
					}
				}
				if tt.locked != nil {
					var st unix.Stat_t
					if err := unix.Stat(at+"/.git/worktrees/one", &st); err != nil || st.Uid != 7001 || st.Gid != 7002 || st.Mode&0o777 != 0o755 {
						t.Errorf("the entry is %d:%d %o, %v", st.Uid, st.Gid, st.Mode, err)
					}
				}
				dir, err := os.ReadDir(at + "/.git/worktrees")
				for _, e := range dir {
					err = errors.Join(err, os.RemoveAll(at+"/.git/worktrees/"+e.Name()))
				}
				return errors.Join(err, os.Mkdir(at+"/.git/worktrees/new", 0o755))
			})
			for _, want := range tt.notes {
				if !strings.Contains(notes, want) {
					t.Errorf("notes %s, want %s", notes, want)
				}
			}
			if after := onHost(t, list); after != before {
				t.Errorf("on the host %s, before %s", after, before)
			}
		})
	}
}

func onHost(t *testing.T, list string) string {
	t.Helper()
	all, err := filepath.Glob(list + "/*")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob(list + "/*/*")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%q", append(all, below...))
}

// What is the session's own is written to as it is, in spite of what lies over the list.
func TestLinkedOwn(t *testing.T) {
	s, list := linkedSession(t, func(list string) error {
		return errors.Join(os.Mkdir(list+"/mine", 0o755), os.WriteFile(list+"/mine/HEAD", nil, 0o644))
	})
	s.Worktree.Linked[0].Own = []string{"mine", "gone", "one/HEAD"}
	within(t, s, func(at string) error {
		return errors.Join(os.WriteFile(at+"/.git/worktrees/mine/HEAD", []byte("m"), 0o644), os.WriteFile(at+"/.git/worktrees/one/HEAD", []byte("m"), 0o644))
	})
	for name, want := range map[string]string{"mine": "m", "one": "x"} {
		if b, err := os.ReadFile(list + "/" + name + "/HEAD"); err != nil || string(b) != want {
			t.Errorf("HEAD of %s is %q, %v", name, b, err)
		}
	}
}

// A list that is closed to the tool user is so too under what lies over it.
func TestLinkedClosed(t *testing.T) {
	acl := []byte{ // user::rwx group::--- group:7:--- mask::rwx other::---
		2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 0, 0, 255, 255, 255, 255, 8, 0, 0, 0, 7, 0, 0, 0, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
	}
	for name, tt := range map[string]struct {
		change   func(list string) error
		uid, gid uint32
		mode     uint32
	}{
		"another's": {func(list string) error { return os.Chmod(list, 0o700) }, 99, 99, 0o700},
		"a list of who may": {func(list string) error {
			return errors.Join(os.Chmod(list, 0o770), unix.Setxattr(list, "system.posix_acl_access", acl, 0))
		}, 99, 42, 0o700},
	} {
		t.Run(name, func(t *testing.T) {
			s, list := linkedSession(t, func(string) error { return nil })
			if err := os.Chown(list, int(tt.uid), int(tt.gid)); err != nil {
				t.Fatal(err)
			}
			if err := tt.change(list); errors.Is(err, unix.EOPNOTSUPP) {
				t.Skip("no access control lists here")
			} else if err != nil {
				t.Fatal(err)
			}
			within(t, s, func(at string) error {
				var st unix.Stat_t
				err := unix.Stat(at+"/.git/worktrees", &st)
				if st.Uid == 7001 || st.Mode&0o777 != tt.mode {
					t.Errorf("it is %d:%d %o", st.Uid, st.Gid, st.Mode)
				}
				return err
			})
		})
	}
}

// What cannot be kept is no refusal: a note says so, and what to do. Who swaps the list before
// it is in its place fails the session.
func TestLinkedNot(t *testing.T) {
	t.Run("no place for layers", func(t *testing.T) {
		s, list := linkedSession(t, func(string) error { return nil })
		s.Staging = "/nonexistent"
		notes := within(t, s, func(at string) error { return os.Remove(at + "/.git/worktrees/one/HEAD") })
		if !strings.Contains(notes, "git worktree lock") {
			t.Errorf("notes %s", notes)
		}
		if _, err := os.Stat(list + "/one/HEAD"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the session wrote elsewhere: %v", err)
		}
	})
	t.Run("said by who looked", func(t *testing.T) {
		s, _ := linkedSession(t, func(string) error { return nil })
		s.Worktree.Linked[0].Why = "because"
		if notes := within(t, s, func(string) error { return nil }); !strings.Contains(notes, "(because)") {
			t.Errorf("notes %s", notes)
		}
	})
	t.Run("gone", func(t *testing.T) {
		s, _ := linkedSession(t, os.RemoveAll)
		if notes := within(t, s, func(string) error { return nil }); strings.Contains(notes, "linked") {
			t.Errorf("notes %s", notes)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		s, _ := linkedSession(t, func(string) error { return nil })
		s.ReadOnly = true
		if notes := within(t, s, func(at string) error { _, err := os.Stat(at + "/.git/worktrees/one/HEAD"); return err }); notes != "" {
			t.Errorf("notes %s", notes)
		}
	})
	for name, swap := range map[string]func(list string) error{
		"by a directory": func(list string) error { return os.Mkdir(list, 0o755) },
		"by a link":      func(list string) error { return os.Symlink("/etc", list) },
		"by none":        func(string) error { return nil },
	} {
		t.Run("swapped "+name, func(t *testing.T) {
			s, list := linkedSession(t, func(string) error { return nil })
			set, err := s.Detach()
			if err != nil {
				t.Fatal(err)
			}
			defer closeSet(set)
			if err := errors.Join(os.Rename(list, list+"-"), swap(list)); err != nil {
				t.Fatal(err)
			}
			if err := Stage(t.TempDir(), set.Mounts, func() error { return nil }); !errors.Is(err, sandbox.ErrMountTarget) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A file system without id maps is no reason not to keep the list.
func TestLinkedOneToOne(t *testing.T) {
	f := unmappable(t, 41, 42)
	for _, dir := range []string{".git", ".git/worktrees", ".git/worktrees/one"} {
		if err := unix.Mkdirat(int(f.Fd()), dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := sandbox.Worktree{Source: f, Target: "/work", UID: 41, GID: 42, Linked: []sandbox.Linked{{List: ".git/worktrees"}}}
	s := Session{Claim: &sandbox.Claim{Worktree: w}, Staging: t.TempDir(), OneToOne: func() error { return nil }}
	notes := within(t, s, func(at string) error { return os.RemoveAll(at + "/.git/worktrees/one") })
	if err := unix.Faccessat(int(f.Fd()), ".git/worktrees/one", unix.F_OK, 0); err != nil || !strings.Contains(notes, "1, locked") {
		t.Errorf("%v, notes %s", err, notes)
	}
}

// Kernels before 6.15 clone nothing that is attached nowhere, and take it for no layer.
func TestLinkedBefore615(t *testing.T) {
	s, list := linkedSession(t, func(string) error { return nil })
	defer LikeBefore615()()
	notes := within(t, s, func(at string) error { return os.RemoveAll(at + "/.git/worktrees/one") })
	if _, err := os.Stat(list + "/one/HEAD"); err != nil || !strings.Contains(notes, "1, locked") {
		t.Errorf("%v, notes %s", err, notes)
	}
}
