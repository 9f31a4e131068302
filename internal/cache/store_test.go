package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/layers"
)

// killedAt has a copy of the test kill itself at a step of a promotion.
const killedAt = "TOOLD_TEST_CACHE_KILL"

func TestMain(m *testing.M) {
	if at := os.Getenv(killedAt); at != "" {
		promoteAndDie(at)
		return
	}
	os.Exit(m.Run())
}

func open(t *testing.T) *Store {
	t.Helper()
	if os.Geteuid() != 0 {
		testrig.Skipf(t, "root", "overlays are mounted by root")
	}
	s, err := Open(filepath.Join(t.TempDir(), "caches"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// goUse asks for a cache of two directories, one of which is scratch.
func goUse() []Use {
	return []Use{{Name: "go", Mode: client.CacheCow, Dirs: []Dir{{Name: "build"}, {Name: "tmp", Scratch: true}}}}
}

// write is a session that writes files to its layers, as its tools do through the overlay.
func write(s *Store, session, tenant string, uses []Use, files map[string]string) error {
	o, err := s.Begin(session, tenant, uses)
	if err != nil {
		return err
	}
	defer o.Close()
	for _, l := range o.Layers {
		if err := mount.PrepareUpper(l.Upper, 12345, 12345, 0o755); err != nil {
			return err
		}
		for name, content := range files {
			dir, rest, _ := strings.Cut(name, "/")
			if dir != l.Dir {
				continue
			}
			path := fmt.Sprintf("/proc/self/fd/%d/root/%s", l.Upper.Fd(), rest)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
				return err
			}
		}
	}
	return nil
}

// base reads what is kept of a tenant's cache go.
func base(t *testing.T, s *Store, tenant string) map[string]string {
	t.Helper()
	o, err := s.Begin("ses_reader", tenant, goUse())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		o.Close()
		if err := s.End("ses_reader"); err != nil {
			t.Fatal(err)
		}
	}()
	got := map[string]string{}
	for _, l := range o.Layers {
		if l.Lower == nil {
			continue
		}
		root := fmt.Sprintf("/proc/self/fd/%d/root", l.Lower.Fd())
		err := filepath.WalkDir(root+"/", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			rel, _ := filepath.Rel(root, path)
			got[filepath.Join(l.Dir, rel)] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func wantBase(t *testing.T, s *Store, tenant string, want map[string]string) {
	t.Helper()
	if got := base(t, s, tenant); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("tenant %s begins with %v, want %v", tenant, got, want)
	}
}

// TestPromote: what a session wrote is nobody else's until it is promoted, then its
// tenant's alone, and scratch never is.
func TestPromote(t *testing.T) {
	s := open(t)
	files := map[string]string{"build/a/x": "1", "tmp/y": "2"}
	if err := write(s, "ses_a", "ci", goUse(), files); err != nil {
		t.Fatal(err)
	}
	wantBase(t, s, "ci", map[string]string{})
	if _, err := s.Promote(t.Context(), "ses_a", "npm"); !errors.Is(err, ErrNone) {
		t.Errorf("a cache that the session does not have: %v", err)
	}
	c, err := s.Promote(t.Context(), "ses_a", "go")
	if err != nil {
		t.Fatal(err)
	}
	if c.Session != "ses_a" || c.Tenant != "ci" || c.Files != 1 {
		t.Errorf("promoted %+v", c)
	}
	wantBase(t, s, "ci", map[string]string{"build/a/x": "1"})
	wantBase(t, s, "other", map[string]string{})

	// The next one adds to it, and what it removes is gone.
	if err := write(s, "ses_b", "ci", goUse(), map[string]string{"build/b": "3"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Promote(t.Context(), "ses_b", "go"); err != nil {
		t.Fatal(err)
	}
	wantBase(t, s, "ci", map[string]string{"build/a/x": "1", "build/b": "3"})
	if err := errors.Join(s.End("ses_a"), s.End("ses_b"), s.End("ses_b")); err != nil {
		t.Fatal(err)
	}
	wantDisks(t, s, 1)
	if err := s.Remove("ci", "go"); err != nil {
		t.Fatal(err)
	}
	wantDisks(t, s, 0)
	if err := s.Remove("ci", "go"); !errors.Is(err, ErrNone) {
		t.Errorf("removed twice: %v", err)
	}
}

func wantDisks(t *testing.T, s *Store, n int) {
	t.Helper()
	entries, err := os.ReadDir(s.at("disks"))
	if err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "disk-") })
	if len(entries) != n {
		t.Errorf("%d disks, want %d: %v", len(entries), n, entries)
	}
}

// TestOfUsers: a base belongs to root, with permission bits and times, whoever wrote it.
func TestOfUsers(t *testing.T) {
	s := open(t)
	if err := write(s, "ses_a", "ci", goUse(), map[string]string{"build/a": "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Promote(t.Context(), "ses_a", "go"); err != nil {
		t.Fatal(err)
	}
	o, err := s.Begin("ses_b", "ci", goUse())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	fi, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/root/a", o.Layers[0].Lower.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if st := fi.Sys().(*syscall.Stat_t); st.Uid != 0 || st.Gid != 0 || st.Mode != unix.S_IFREG|0o600 {
		t.Errorf("owner %d:%d, mode %o", st.Uid, st.Gid, st.Mode)
	}
}

// TestFrom: a session that begins with directories of the host sees nothing of the base,
// and a promotion has what lies below, unless another directory is at its path by now.
func TestFrom(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "h"), []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	from, err := worktree.SourceOf(dir, f)
	if err != nil {
		t.Fatal(err)
	}
	uses := goUse()
	uses[0].Dirs[0].From = &from
	if err := write(s, "ses_a", "ci", uses, map[string]string{"build/a": "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Promote(t.Context(), "ses_a", "go"); err != nil {
		t.Fatal(err)
	}
	wantBase(t, s, "ci", map[string]string{"build/a": "1", "build/h": "host"})
	// Another directory in its place is not taken for it.
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Promote(t.Context(), "ses_a", "go"); err == nil {
		t.Error("promoted what lies at the path of the host's directory by now")
	}
	wantBase(t, s, "ci", map[string]string{"build/a": "1", "build/h": "host"})
}

// TestHostileTree: links lead nowhere, and what is no file is counted.
func TestHostileTree(t *testing.T) {
	s := open(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(s, "ses_a", "ci", goUse(), map[string]string{"build/a\n\xff": "1"}); err != nil {
		t.Fatal(err)
	}
	root, err := s.open(having1(t, s, "ses_a").Disk)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("/proc/self/fd/%d/build/root/", root.Fd())
	err = errors.Join(os.Symlink(secret, at+"link"), os.Symlink("/", at+"top"), unix.Mkfifo(at+"fifo", 0o644),
		os.WriteFile(at+"suid", nil, 0o644), os.Chmod(at+"suid", 0o755|fs.ModeSetuid), root.Close())
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Promote(t.Context(), "ses_a", "go")
	if err != nil {
		t.Fatal(err)
	}
	if c.Skipped != 1 || c.Files != 4 {
		t.Errorf("%d files, %d skipped; want 4 and the FIFO", c.Files, c.Skipped)
	}
	o, err := s.Begin("ses_b", "ci", goUse())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	at = fmt.Sprintf("/proc/self/fd/%d/root/", o.Layers[0].Lower.Fd())
	if to, err := os.Readlink(at + "link"); err != nil || to != secret {
		t.Errorf("the link became %q, %v", to, err)
	}
	if fi, err := os.Lstat(at + "suid"); err != nil || fi.Mode() != 0o755 {
		t.Errorf("the setuid bit: %v, %v", fi, err)
	}
}

func having1(t *testing.T, s *Store, session string) Use {
	t.Helper()
	var h having
	if err := read(s.sessionFile(session), &h); err != nil {
		t.Fatal(err)
	}
	return h.Uses[0]
}

// TestShared: all sessions of a tenant have one directory, and others have another.
func TestShared(t *testing.T) {
	s := open(t)
	uses := func() []Use {
		return []Use{{Name: "go", Mode: client.CacheShared, Dirs: []Dir{{Name: "build"}}}}
	}
	stat := func(session, tenant string) unix.Stat_t {
		o, err := s.Begin(session, tenant, uses())
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(o.Layers[0].Source.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	a, b, c := stat("ses_a", "ci"), stat("ses_b", "ci"), stat("ses_c", "other")
	if a.Ino != b.Ino || a.Ino == c.Ino {
		t.Errorf("inodes %d and %d of one tenant, %d of another", a.Ino, b.Ino, c.Ino)
	}
	if _, err := s.Promote(t.Context(), "ses_a", "go"); !errors.Is(err, ErrShared) {
		t.Errorf("promoted: %v", err)
	}
	if err := s.End("ses_a"); err != nil {
		t.Fatal(err)
	}
	if d := stat("ses_d", "ci"); d.Ino != a.Ino {
		t.Error("a shared cache went with a session")
	}
}

// TestSweep: the least recently used go first, and what is too old.
func TestSweep(t *testing.T) {
	s := open(t)
	for i, name := range []string{"a", "b", "c"} {
		uses := goUse()
		uses[0].Name = name
		session := "ses_" + name
		if err := write(s, session, "ci", uses, map[string]string{"build/x": strings.Repeat("x", 1<<20)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Promote(t.Context(), session, name); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(time.Duration(i-3) * time.Hour)
		if err := errors.Join(s.End(session), os.Chtimes(s.baseFile("ci", name), when, when)); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := s.Sweep(time.Now(), 150*time.Minute, 1<<40)
	if err != nil || len(gone) != 1 || gone[0].Name != "a" {
		t.Errorf("too old: %v, %v", gone, err)
	}
	gone, err = s.Sweep(time.Now(), 0, 3<<19)
	if err != nil || len(gone) != 1 || gone[0].Name != "b" {
		t.Errorf("too much: %v, %v", gone, err)
	}
	wantDisks(t, s, 1)
}

// TestBounded: a disk that is full is no base, and the one before stays.
func TestBounded(t *testing.T) {
	t.Run("as this kernel", testBounded)
	t.Run("before 6.15", func(t *testing.T) {
		defer mount.LikeBefore615()()
		testBounded(t)
	})
}

func testBounded(t *testing.T) {
	s := open(t)
	trees, err := layers.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := trees.Bounded(); err != nil {
		testrig.Skipf(t, "loop", "no file systems in files: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large"), bytes.Repeat([]byte("x"), 20<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	from, err := worktree.SourceOf(dir, f)
	if err != nil {
		t.Fatal(err)
	}
	small := goUse()
	small[0].Size = 16 << 20
	if err := write(s, "ses_a", "ci", small, map[string]string{"build/a": "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Promote(t.Context(), "ses_a", "go"); err != nil {
		t.Fatal(err)
	}
	large := goUse()
	large[0].Size, large[0].Dirs[0].From = 16<<20, &from
	if err := write(s, "ses_b", "ci", large, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Promote(t.Context(), "ses_b", "go"); !errors.Is(err, ErrFull) {
		t.Errorf("promoted 20 MiB to a cache of 16: %v", err)
	}
	if unused, err := s.Unused(); err != nil || len(unused) > 0 {
		t.Errorf("left of it: %v, %v", unused, err)
	}
	if err := errors.Join(s.End("ses_a"), s.End("ses_b")); err != nil {
		t.Fatal(err)
	}
	wantBase(t, s, "ci", map[string]string{"build/a": "1"})
	wantDisks(t, s, 1)
}

// TestPromoteKilled: whatever step a daemon is killed at, later sessions begin with all of
// the old or all of the new, and nothing is left of the rest.
func TestPromoteKilled(t *testing.T) {
	s := open(t)
	old := map[string]string{"build/v": "1", "build/old": "x"}
	if err := write(s, "ses_old", "ci", goUse(), old); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Promote(t.Context(), "ses_old", "go"); err != nil {
		t.Fatal(err)
	}
	steps, last := 0, false
	for ; !last; steps++ {
		session := "ses_new" + strconv.Itoa(steps)
		files := map[string]string{"build/v": session, "build/" + session: "y"}
		if err := write(s, session, "ci", goUse(), files); err != nil {
			t.Fatal(err)
		}
		before := base(t, s, "ci")
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), killedAt+"="+s.dir+":"+session+":"+strconv.Itoa(steps))
		out, err := cmd.CombinedOutput()
		last = err == nil
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !last && status.Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v: %s", steps, err, out)
		}
		again, err := Open(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		after := base(t, again, "ci")
		whole := fmt.Sprint(after) == fmt.Sprint(before)
		if after["build/v"] == session {
			whole = after["build/"+session] == "y" && after["build/old"] == "x"
		}
		if !whole || last && after["build/v"] != session {
			t.Errorf("killed at step %d: %v, before it was %v", steps, after, before)
		}
		if err := again.End(session); err != nil {
			t.Fatal(err)
		}
		if left, err := again.Unused(); err != nil || len(left) > 0 {
			t.Errorf("killed at step %d: %v is left, %v", steps, left, err)
		}
	}
	if steps < 6 {
		t.Errorf("only %d steps", steps)
	}
	if err := s.End("ses_old"); err != nil {
		t.Fatal(err)
	}
	wantDisks(t, s, 1)
	if left, err := filepath.Glob(s.at(".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// promoteAndDie promotes the cache go of a session, and kills itself at the n-th step: at is
// DIR:SESSION:N.
func promoteAndDie(at string) {
	parts := strings.Split(at, ":")
	n, err := strconv.Atoi(parts[2])
	if err != nil {
		panic(err)
	}
	s, err := Open(parts[0])
	if err != nil {
		panic(err)
	}
	s.step = func(string) {
		if n--; n < 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if _, err := s.Promote(context.Background(), parts[1], "go"); err != nil {
		panic(err)
	}
}

// TestPromoteWithoutRoom: a promotion asks for as much as is there, and one for which there is no room
// any more leaves what was kept before. A hole stays one.
func TestPromoteWithoutRoom(t *testing.T) {
	s := open(t)
	if err := write(s, "ses_a", "ci", goUse(), map[string]string{"build/x": strings.Repeat("x", 100_000)}); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no room")
	var asked int64
	s.Writes = func(_ context.Context, bytes int64) (context.Context, func(), error) {
		asked = bytes
		return nil, nil, full
	}
	if _, err := s.Promote(t.Context(), "ses_a", "go"); !errors.Is(err, full) || asked < 100_000 {
		t.Errorf("asked for %d bytes: %v", asked, err)
	}
	wantDisks(t, s, 1)
	for _, at := range []string{"disk", "empty"} {
		s.Writes = func(ctx context.Context, _ int64) (context.Context, func(), error) {
			ctx, cancel := context.WithCancelCause(ctx)
			s.step = func(name string) {
				if name == at {
					cancel(full)
				}
			}
			return ctx, func() { cancel(nil) }, nil
		}
		if _, err := s.Promote(t.Context(), "ses_a", "go"); !errors.Is(err, full) {
			t.Errorf("stopped at %s: %v", at, err)
		}
		wantBase(t, s, "ci", map[string]string{})
		wantDisks(t, s, 1)
	}
	dir := t.TempDir()
	src, err := os.Create(filepath.Join(dir, "src"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	const size = 3 << 30
	if _, err := src.WriteAt([]byte("end"), size-3); err != nil {
		t.Fatal(err)
	}
	dst, err := os.Create(filepath.Join(dir, "dst"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if err := (&copier{ctx: t.Context()}).content(dst, src); err != nil {
		t.Fatal(err)
	}
	fi, err := dst.Stat()
	if err != nil || fi.Size() != size || fi.Sys().(*syscall.Stat_t).Blocks > 1000 {
		t.Errorf("%+v, %v", fi.Sys(), err)
	}
	end := make([]byte, 3)
	if _, err := dst.ReadAt(end, size-3); err != nil || string(end) != "end" {
		t.Errorf("%q, %v", end, err)
	}
}
