package thread

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// status gives the lines of the calling thread that say whose it is.
func status(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid()))
	if err != nil {
		t.Error(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		for _, name := range []string{"Uid:", "Gid:", "Groups:", "CapEff:"} {
			if strings.HasPrefix(line, name) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return strings.Join(lines, "; ")
}

// The kernel judges by the user's ids alone, on that thread alone, and the thread is
// not used again.
func TestAssume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can work as others")
	}
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		name     string
		uid, gid int
		mode     os.FileMode
	}{{"mine", 4001, 4001, 0o600}, {"groups", 0, 4003, 0o040}, {"supplementary", 0, 70004, 0o040}, {"roots", 0, 0, 0o600}, {"others", 4002, 4002, 0o600}, {"all", 0, 0, 0o644}} {
		name := filepath.Join(dir, f.name)
		if err := errors.Join(os.WriteFile(name, nil, 0), os.Chown(name, f.uid, f.gid), os.Chmod(name, f.mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		user  User
		reads string
		who   string
	}{
		{User{UID: 4001, GID: 4003}, "all groups mine", "Uid: 0 4001 0 4001; Gid: 0 4003 0 4003; Groups:; CapEff: 0000000000000000"},
		{User{UID: 4001, GID: 4001, Groups: []uint32{70004, 4003, 4003}}, "all groups mine supplementary", "Uid: 0 4001 0 4001; Gid: 0 4001 0 4001; Groups: 4003 4003 70004; CapEff: 0000000000000000"},
		{User{UID: 4009, GID: 4009}, "all", "Uid: 0 4009 0 4009; Gid: 0 4009 0 4009; Groups:; CapEff: 0000000000000000"},
	} {
		before := status(t)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				who, err := Run(func() (string, error) {
					if err := tt.user.Assume(); err != nil {
						return "", err
					}
					var reads []string
					entries, err := os.ReadDir(dir)
					for _, e := range entries {
						f, err := os.Open(filepath.Join(dir, e.Name()))
						if err == nil {
							f.Close()
							reads = append(reads, e.Name())
						} else if !errors.Is(err, fs.ErrPermission) {
							t.Error(err)
						}
					}
					if got := strings.Join(reads, " "); got != tt.reads {
						t.Errorf("%+v reads %s, want %s", tt.user, got, tt.reads)
					}
					return status(t), err
				})
				if err != nil || who != tt.who {
					t.Errorf("%+v: %v, on the thread %q, want %q", tt.user, err, who, tt.who)
				}
			})
		}
		wg.Wait()
		if after := status(t); after != before {
			t.Errorf("another thread was %s and is %s", before, after)
		}
	}
}

// A thread that is not the user's is not taken for it.
func TestAssumeReadsBack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can work as others")
	}
	for name, change := range map[string]func() error{
		"uid":    func() error { return raw(unix.SYS_SETFSUID, 4002) },
		"gid":    func() error { return raw(unix.SYS_SETFSGID, 4002) },
		"groups": func() error { return raw(unix.SYS_SETGROUPS, 0) },
	} {
		_, err := Run(func() (struct{}, error) {
			user := User{UID: 4001, GID: 4001, Groups: []uint32{4003}}
			// What follows still needs root's capabilities.
			if err := errors.Join(raw(unix.SYS_SETGROUPS, 0), raw(unix.SYS_SETFSGID, 4001), raw(unix.SYS_SETFSUID, 4001)); err != nil {
				return struct{}{}, err
			}
			if name != "groups" {
				user.Groups = nil
			}
			return struct{}{}, errors.Join(change(), user.check())
		})
		if err == nil || !strings.Contains(err.Error(), "instead of") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Ids alone, with capabilities that the change has left.
	_, err := Run(func() (struct{}, error) {
		return struct{}{}, errors.Join(raw(unix.SYS_SETGROUPS, 0), raw(unix.SYS_SETFSGID, 4001), raw(unix.SYS_SETFSUID, 4001), User{UID: 4001, GID: 4001}.check())
	})
	if err == nil || !strings.Contains(err.Error(), "capabilities") {
		t.Errorf("capabilities: %v", err)
	}
}

// raw is for calls that succeed or say nothing.
func raw(call, arg uintptr) error {
	_, _, e := unix.RawSyscall(call, arg, 0, 0)
	if call == unix.SYS_SETGROUPS && e != 0 {
		return e
	}
	return nil
}
