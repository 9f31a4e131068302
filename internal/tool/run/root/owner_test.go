package root

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A failure for want of rights says whose the file is, where it is another's.
func TestForeignOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of others")
	}
	dir := t.TempDir()
	for name, uid := range map[string]int{"other": 4321, "nobody": 65534, "own": 1000, "dir/in": 4321} {
		if err := os.MkdirAll(dir+"/dir", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir+"/"+name, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{os.Chown(dir+"/dir", 4321, 4321), os.Chmod(dir+"/own", 0), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(dir+"/readable", nil, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for parent := dir; parent != "/"; parent = parent[:max(strings.LastIndexByte(parent, '/'), 1)] {
		if info, err := os.Stat(parent); err != nil || info.Mode()&0o001 == 0 {
			t.Skipf("%s cannot be entered: %v", parent, err)
		}
	}
	r, err := New(Config{Dir: dir, UID: 1000, GID: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	open := func(path string) error {
		f, err := r.Open(t.Context(), path)
		if err == nil {
			_ = f.Close()
		}
		return err
	}
	list := func(path string) error { return r.ReadDir(t.Context(), path, func(Entry) bool { return true }) }
	change := func(path string) error {
		p, err := r.Begin(t.Context(), path, BeginOptions{})
		if err != nil {
			return err
		}
		defer p.Close()
		_, err = p.Commit(t.Context(), []byte("y"), CommitOptions{})
		return err
	}
	const other = "belongs to user 4321, who is not in this session; the owner can give access"
	for _, tt := range []struct {
		do         func(string) error
		path, says string
	}{
		{open, "/other", other},
		{open, "/nobody", "belongs to a user of the host, who is not"},
		{open, "/own", "permission denied"},
		{list, "/dir", other},
		{change, "/other", other},
		{change, "/readable", "belongs to user 0, who"},
	} {
		err := tt.do(tt.path)
		if CodeOf(err) != Denied || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "belongs") != strings.Contains(tt.says, "belongs") {
			t.Errorf("%s: %v, want %q", tt.path, err, tt.says)
		}
	}
}
