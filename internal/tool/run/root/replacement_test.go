package root

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Both ways of making temporary files create and replace, of any size and from
// memory or from another file, and leave nothing else behind.
func TestWaysToReplace(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, named := range []bool{false, true} {
		r, dir := newRoot(t)
		r.named = named
		put(t, dir+"/src", string(big))
		for _, path := range []string{"/f", "/f", "/new"} {
			p, err := r.Begin(t.Context(), path, BeginOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.ReadOld(t.Context(), 1<<30); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Commit(t.Context(), big, CommitOptions{Durable: true}); err != nil {
				t.Fatalf("named %v: %v", named, err)
			}
			p.Close()
		}
		src, err := r.Open(t.Context(), "/src")
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.Begin(t.Context(), "/copy", BeginOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Info().Exists || p.Info().Path != "/copy" {
			t.Errorf("info %+v", p.Info())
		}
		if err := p.AppendFile(t.Context(), src); err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(0o705)
		done, err := p.Commit(t.Context(), nil, CommitOptions{Mode: &mode})
		if err != nil || done.Info.Mode != 0o705 || done.Info.Size != int64(len(big)) {
			t.Errorf("%+v, %v", done, err)
		}
		src.Close()
		p.Close()
		for _, name := range []string{"/f", "/new", "/copy"} {
			if got, err := os.ReadFile(dir + name); !bytes.Equal(got, big) {
				t.Errorf("named %v: %s has %d bytes, %v", named, name, len(got), err)
			}
		}
		if names, _ := os.ReadDir(dir); len(names) != 4 {
			t.Errorf("left over: %v", names)
		}
		p, err = r.Begin(t.Context(), "/late", BeginOptions{})
		if err != nil {
			t.Fatal(err)
		}
		put(t, dir+"/late", "theirs")
		if _, err := p.Commit(t.Context(), big, CommitOptions{}); CodeOf(err) != Stale {
			t.Errorf("named %v: created over a file: %v", named, err)
		}
		p.Close()
		if names, _ := os.ReadDir(dir); len(names) != 5 {
			t.Errorf("left over: %v", names)
		}
	}
}

func TestReplaceLimitsAndPaths(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/small", "12345")
	put(t, dir+"/large", strings.Repeat("x", prefetch+1))
	for path, limit := range map[string]int64{"/small": 4, "/large": prefetch} {
		p, err := r.Begin(t.Context(), path, BeginOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.ReadOld(t.Context(), limit); CodeOf(err) != TooLarge {
			t.Errorf("%s: %v, want too_large", path, err)
		}
		p.Close()
	}
	link(t, "/small", dir+"/link")
	link(t, ".", dir+"/dirlink")
	for path, want := range map[string]Code{
		"/": NotRegular, "/.": NotRegular, "": InvalidPath, "/link": Stale, "/dirlink/x": Stale,
		"/none/x": NotExist, "/small/x": NotRegular, "/" + strings.Repeat("n", 256): InvalidPath,
	} {
		p, err := r.Begin(t.Context(), path, BeginOptions{})
		if CodeOf(err) != want {
			t.Errorf("Begin(%.20q): %v, want %s", path, err, want)
		}
		if err == nil {
			p.Close()
		}
	}
	if _, err := r.Begin(t.Context(), "/dirlink/y/x", BeginOptions{Parents: true}); CodeOf(err) != Stale {
		t.Errorf("parents through a link: %v", err)
	}
	if _, err := os.Lstat(dir + "/y"); err == nil {
		t.Error("a directory was made behind a link")
	}
}

func TestLook(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/d/f", "content")
	link(t, "d/f", dir+"/link")
	info, f, err := r.Look(t.Context(), "/link")
	if err != nil || info.Path != "/d/f" {
		t.Fatalf("%+v, %v", info, err)
	}
	if b, err := f.ReadAll(t.Context(), 7); string(b) != "content" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	f.Close()
	for path, exists := range map[string]bool{"/d": true, "/none": false} {
		if info, f, err := r.Look(t.Context(), path); err != nil || f != nil || info.Exists != exists {
			t.Errorf("Look(%s) = %+v, %v, %v", path, info, f, err)
		}
	}
	if _, _, err := r.Look(t.Context(), ""); CodeOf(err) != InvalidPath {
		t.Errorf("empty path: %v", err)
	}
}

// testACL has owner rw-, user 1000 r--, group r--, mask r--, others ---.
const testACL = "\x02\x00\x00\x00" +
	"\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\xe8\x03\x00\x00" +
	"\x04\x00\x04\x00\xff\xff\xff\xff" + "\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff"

// setACL sets testACL where the file system can.
func setACL(t *testing.T, path, name string) {
	t.Helper()
	err := unix.Setxattr(path, name, []byte(testACL), 0)
	if err == unix.EOPNOTSUPP {
		t.Skipf("%s has no access control lists", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file without an access control list does not get the one that new files of
// its directory have.
func TestDirectoryACL(t *testing.T) {
	for _, named := range []bool{false, true} {
		r, dir := newRoot(t)
		r.named = named
		put(t, dir+"/f", "x")
		if err := os.Chmod(dir+"/f", 0o640); err != nil {
			t.Fatal(err)
		}
		setACL(t, dir, "system.posix_acl_default")
		if _, err := replace(t, r, "/f", "y"); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Getxattr(dir+"/f", aclName, nil); err != unix.ENODATA {
			t.Errorf("named %v: the file has a list of %d bytes, %v", named, n, err)
		}
		if st, err := os.Stat(dir + "/f"); err != nil || st.Mode() != 0o640 {
			t.Errorf("named %v: mode %v, %v", named, st.Mode(), err)
		}
	}
}

// An access control list that cannot be set again keeps the file as it is.
func TestForeignACL(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	put(t, dir+"/f", "old")
	setACL(t, dir+"/f", aclName)
	cmd := runHelper(t, "acl", "DIR="+dir)
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
	only := []syscall.SysProcIDMap{{Size: 1}}
	cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = only, only
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if b, err := os.ReadFile(dir + "/f"); string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
}

// Where the group cannot be kept its rights go to nobody else.
func TestForeignGroup(t *testing.T) {
	needRoot(t)
	const uid, foreign = 65533, 65532
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	r := openRoot(t, Config{Dir: dir, UID: uid, GID: uid})
	for was, want := range map[os.FileMode]os.FileMode{0o640: 0o600, 0o664: 0o644, 0o604: 0o600, 0o755: 0o755, 0o777: 0o777, 0o671: 0o611} {
		put(t, dir+"/f", "x")
		if err := errors.Join(os.Chown(dir+"/f", uid, foreign), os.Chmod(dir+"/f", was)); err != nil {
			t.Fatal(err)
		}
		done, err := replace(t, r, "/f", "y")
		if err != nil || len(done.NotKept) != 1 || done.NotKept[0] != "group 65532" {
			t.Fatalf("%v: %+v, %v", was, done, err)
		}
		if st, err := os.Stat(dir + "/f"); err != nil || st.Mode() != want {
			t.Errorf("%v became %v, want %v", was, st.Mode(), want)
		}
	}
	if err := os.Chown(dir+"/f", uid, foreign); err != nil {
		t.Fatal(err)
	}
	setACL(t, dir+"/f", aclName)
	if _, err := replace(t, r, "/f", "z"); CodeOf(err) != Denied {
		t.Errorf("with an access control list: %v", err)
	}
}

// Attributes of the user and access control lists stay; an empty value is one.
func TestXattrs(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/f", "x")
	set := map[string][]byte{"user.a": []byte("value"), "user.empty": nil, aclName: []byte(testACL)}
	for name, value := range set {
		if err := unix.Setxattr(dir+"/f", name, value, 0); err == unix.EOPNOTSUPP {
			delete(set, name)
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	before, _ := os.Stat(dir + "/f")
	if _, err := replace(t, r, "/f", "y"); err != nil {
		t.Fatal(err)
	}
	for name, want := range set {
		buf := make([]byte, 100)
		if n, err := unix.Getxattr(dir+"/f", name, buf); err != nil || !bytes.Equal(buf[:n], want) {
			t.Errorf("%s = %q, %v", name, buf[:max(n, 0)], err)
		}
	}
	if after, _ := os.Stat(dir + "/f"); after.Mode() != before.Mode() {
		t.Errorf("mode %v, was %v", after.Mode(), before.Mode())
	}
}
