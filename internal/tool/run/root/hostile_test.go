package root

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
)

// needRoot skips what only root can set up.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		testrig.Skipf(t, "root", "only root can set this up")
	}
}

// A process that is killed at any moment while it replaces a file leaves the old
// content or the new, and what else it leaves is swept by the next one.
func TestKilled(t *testing.T) {
	needs.OpenAt2(t)
	kills := 500
	if testing.Short() {
		kills = 50
	}
	for _, named := range []string{"", "1"} {
		t.Run("named="+named, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(dir+"/f", content('a'), 0o640); err != nil {
				t.Fatal(err)
			}
			left := 0
			// Where there is much else to do, a writer may get to work only rarely
			// before it is killed.
			end := time.Now().Add(time.Minute)
			for n := 0; n < kills || named != "" && left == 0 && time.Now().Before(end); n++ {
				killOneWriter(t, dir, named)
				got, err := os.ReadFile(dir + "/f")
				if err != nil || !bytes.Equal(got, content('a')) && !bytes.Equal(got, content('b')) {
					t.Fatalf("%d bytes, %v", len(got), err)
				}
				names, _ := filepath.Glob(dir + "/.toold-*")
				left = max(left, len(names))
			}
			if named != "" && left == 0 {
				t.Error("no kill hit a temporary file: the sweep is not proven")
			}
			r := openRoot(t, Config{Dir: dir, UID: -1})
			var names []os.DirEntry
			// A file that its maker had just made is left to a later sweep.
			for end := time.Now().Add(10 * makingTime); len(names) != 1 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if _, err := replace(t, r, "/f", "end"); err != nil {
					t.Fatal(err)
				}
				names, _ = os.ReadDir(dir)
			}
			if len(names) != 1 {
				t.Errorf("left over: %v", names)
			}
			if st, _ := os.Stat(dir + "/f"); st.Mode() != 0o640 {
				t.Errorf("mode %v", st.Mode())
			}
		})
	}
}

func killOneWriter(t *testing.T, dir, named string) {
	t.Helper()
	cmd := runHelper(t, "writer", "DIR="+dir, "NAMED="+named)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the writer said %q, %v", line, err)
	}
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	_ = cmd.Process.Kill()
	err = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() {
		t.Fatalf("the writer ended by itself: %v", err)
	}
}

// The lock tells a dead maker's temporary file from a living one's, and a sweep
// leaves everything else alone.
func TestSweep(t *testing.T) {
	r, dir := newRoot(t)
	dead, alive, other := "/"+tempName(), "/"+tempName(), "/.toold-notes"
	for _, name := range []string{dead, alive, other} {
		put(t, dir+name, "x")
	}
	young := "/" + tempName()
	put(t, dir+young, "")
	if err := unix.Mkfifo(dir+"/"+tempName(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir + alive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := replace(t, r, "/new", "x"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{dead: false, alive: true, other: true, young: true} {
		if _, err := os.Lstat(dir + name); (err == nil) != want {
			t.Errorf("%s: %v, want there: %v", name, err, want)
		}
	}
	// The directory is looked through again, until the young one has grown old.
	for end := time.Now().Add(10 * makingTime); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := replace(t, r, "/new", "y"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(dir + young); err != nil {
			return
		}
	}
	t.Error("a file that nobody fills is never swept")
}

// A sweep beside it takes no temporary file away from its living maker, also not
// before that has locked it.
func TestSweepBesideMakers(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fd := int(dir.Fd())
	var over atomic.Bool
	var sweeps sync.WaitGroup
	for range 2 {
		sweeps.Go(func() {
			for !over.Load() {
				names, _ := filepath.Glob(dir.Name() + "/" + tempPrefix + "*")
				for _, name := range names {
					removeStale(fd, filepath.Base(name))
				}
			}
		})
	}
	for range 1000 {
		made, err := newTemp(fd, true, true)
		if err != nil {
			t.Error(err)
			break
		}
		if _, err := os.Lstat(dir.Name() + "/" + made.name); err != nil {
			t.Error(err)
		}
		made.close()
	}
	over.Store(true)
	sweeps.Wait()
}

// TestFullAndReadOnly fills and remounts file systems of its own.
func TestFullAndReadOnly(t *testing.T) {
	needRoot(t)
	cmd := runHelper(t, "mounts", "DIR="+t.TempDir())
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "operation not permitted") {
			testrig.Skipf(t, "root", "this root may not mount: %s", out)
		}
		t.Errorf("%v: %s", err, out)
	}
}

// The work is done with the tool user's ids on its own threads, and nothing else
// in the process changes.
func TestIdentity(t *testing.T) {
	needRoot(t)
	const uid, gid = 64321, 64322
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil { // the user has to get there
			t.Fatal(err)
		}
	}
	put(t, dir+"/secret", "root only")
	put(t, dir+"/shared", "readable")
	for path, mode := range map[string]os.FileMode{"/secret": 0o600, "/locked": 0o700 | os.ModeDir, "/own": 0o755 | os.ModeDir} {
		if mode.IsDir() {
			if err := os.Mkdir(dir+path, mode.Perm()); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir+path, mode.Perm()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir+"/own", uid, gid); err != nil {
		t.Fatal(err)
	}
	r := openRoot(t, Config{Dir: dir, UID: uid, GID: gid})
	if _, err := replace(t, r, "/own/sub/file", "mine"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/own/sub/file", "/own/sub"} {
		st, err := os.Stat(dir + path)
		if err != nil {
			t.Fatal(err)
		}
		if s := st.Sys().(*syscall.Stat_t); s.Uid != uid || s.Gid != gid {
			t.Errorf("%s belongs to %d:%d", path, s.Uid, s.Gid)
		}
	}
	if _, err := r.Open(t.Context(), "/secret"); CodeOf(err) != Denied {
		t.Errorf("a file of root's: %v", err)
	}
	if _, err := r.Resolve(t.Context(), "/locked/x"); CodeOf(err) != Denied {
		t.Errorf("in a directory of root's: %v", err)
	}
	if err := r.ReadDir(t.Context(), "/locked", func(Entry) bool { return true }); CodeOf(err) != Denied {
		t.Errorf("list a directory of root's: %v", err)
	}
	for _, path := range []string{"/new", "/locked/new", "/shared"} {
		if _, err := replace(t, r, path, "x"); CodeOf(err) != Denied {
			t.Errorf("write %s: %v", path, err)
		}
	}
	put(t, dir+"/own/foreign", "root's, but writable for all")
	if err := os.Chmod(dir+"/own/foreign", 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := replace(t, r, "/own/foreign", "x"); CodeOf(err) != Denied || !strings.Contains(err.Error(), "change its owner") {
		t.Errorf("a file of another user: %v", err)
	}
	// The group is kept where it can be, and otherwise named.
	put(t, dir+"/own/group", "x")
	if err := os.Chown(dir+"/own/group", uid, 1234); err != nil {
		t.Fatal(err)
	}
	done, err := replace(t, r, "/own/group", "y")
	if err != nil || len(done.NotKept) != 1 || done.NotKept[0] != "group 1234" {
		t.Errorf("%+v, %v", done, err)
	}
	if os.Geteuid() != 0 {
		t.Error("the process itself changed its user")
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !strings.Contains(string(status), "Uid:\t0\t0\t0\t0\n") {
		t.Errorf("the main thread changed its user: %v", err)
	}
}

// A thread that does not have the identity it must have ends all work.
func TestWrongIdentity(t *testing.T) {
	needRoot(t)
	r := openRoot(t, Config{Dir: "/", UID: 64321, GID: 64322, Threads: 1})
	err := r.do(t.Context(), func() error {
		// As if something in the process had changed the ids of all threads.
		_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep)
		if e != 0 {
			return e
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Resolve(t.Context(), "/"); CodeOf(err) != Broken {
			t.Errorf("error = %v, want broken", err)
		}
	}
	if r.Err() == nil {
		t.Error("Err is nil")
	}
	if _, err := New(Config{Dir: "/no/such/dir", UID: -1}); err == nil {
		t.Error("a missing root was opened")
	}
}

// racer swaps two paths as fast as it can until stop is called.
func racer(t *testing.T, a, b string) (stop func()) {
	t.Helper()
	var halt atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !halt.Load() {
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("swap: %v", err)
				return
			}
		}
	})
	stop = func() { halt.Store(true); wg.Wait() }
	t.Cleanup(stop) // before the directory goes
	return stop
}

// While files and directories on the way are swapped with links to the outside,
// nothing outside is ever read or written. The control, which looks first and
// opens then, is fooled by the same swaps.
func TestRacingSwaps(t *testing.T) {
	const inside, outside = "inside", "OUTSIDE"
	setups := map[string]func(t *testing.T, dir, out string) (a, b string){
		"file":        func(t *testing.T, d, o string) (string, string) { return d + "/x/y/f", o + "/x/y/f" },
		"parent":      func(t *testing.T, d, o string) (string, string) { return d + "/x/y", o + "/x/y" },
		"grandparent": func(t *testing.T, d, o string) (string, string) { return d + "/x", o + "/x" },
	}
	for name, paths := range setups {
		t.Run(name, func(t *testing.T) {
			r, dir := newRoot(t)
			out := t.TempDir()
			put(t, dir+"/x/y/f", inside)
			put(t, out+"/x/y/f", outside)
			swapped, target := paths(t, dir, out)
			link(t, target, swapped+".link")
			stop := racer(t, swapped, swapped+".link")

			escaped := false
			for end := time.Now().Add(time.Minute); !escaped && time.Now().Before(end); {
				escaped = lookThenRead(dir, dir+"/x/y/f") == outside
			}
			if !escaped {
				t.Error("the control was never fooled: this test proves nothing")
			}
			good, refused := 0, 0
			for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
				if got, err := readAt(t, r, "/x/y/f"); err != nil {
					refused++
				} else if got != inside {
					t.Fatalf("read %q", got)
				} else {
					good++
				}
				if _, err := replace(t, r, "/x/y/f", inside); err == nil {
					good++
				}
			}
			stop()
			t.Logf("%d good, %d refused", good, refused)
			if got, _ := os.ReadFile(out + "/x/y/f"); string(got) != outside {
				t.Errorf("the outside now has %q", got)
			}
			err := filepath.WalkDir(out, func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() && path != out+"/x/y/f" {
					err = fmt.Errorf("%s appeared outside", path)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// lookThenRead is how it must not be done: prove that the path stays inside,
// then open it.
func lookThenRead(dir, path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !strings.HasPrefix(real, dir) {
		return ""
	}
	b, _ := os.ReadFile(path)
	return string(b)
}

func readAt(t *testing.T, r *Root, path string) (string, error) {
	info, err := r.Resolve(t.Context(), path)
	if err != nil {
		return "", err
	}
	f, err := r.Open(t.Context(), info.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := f.ReadAll(t.Context(), 1000)
	return string(b), err
}

// A lock or a lease that another process holds is an error, never a wait
// without end.
func TestLocked(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/f", "x")
	f, err := os.OpenFile(dir+"/f", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	r.patient = 10 * lockPause
	if _, err := replace(t, r, "/f", "y"); CodeOf(err) != Failed || !strings.Contains(err.Error(), "lock") {
		t.Errorf("locked: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases here: %v", err)
	}
	for name, err := range map[string]error{
		"read": func() error { _, err := readAt(t, r, "/f"); return err }(),
		"write": func() error {
			_, err := replace(t, r, "/f", "y")
			return err
		}(),
	} {
		if CodeOf(err) != Failed {
			t.Errorf("%s under a lease: %v", name, err)
		}
	}
}

// Of many replacements at once each sees what the one before it wrote.
func TestReplacementsTakeTurns(t *testing.T) {
	r, dir := newRoot(t)
	r.patient = time.Minute // seven others have their turns meanwhile
	put(t, dir+"/f", "")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := 0; n < 10; {
				p, err := r.Begin(t.Context(), "/f", BeginOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				old, err := p.ReadOld(t.Context(), 1000)
				if err == nil {
					_, err = p.Commit(t.Context(), append(bytes.Clone(old), 'x'), CommitOptions{})
				}
				p.Close()
				if err != nil {
					t.Error(err)
					return
				}
				n++
			}
		})
	}
	wg.Wait()
	if got, _ := os.ReadFile(dir + "/f"); string(got) != strings.Repeat("x", 80) {
		t.Errorf("%d of 80 replacements are left", len(got))
	}
}

func TestReadDirAndLstat(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/d/a\nb", "x")
	put(t, dir+"/d/\xff", "x")
	put(t, dir+"/d/sub/x", "x")
	link(t, "nowhere", dir+"/d/link")
	if err := unix.Mkfifo(dir+"/d/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]Kind)
	if err := r.ReadDir(t.Context(), "/d", func(e Entry) bool { got[e.Name] = e.Kind; return true }); err != nil {
		t.Fatal(err)
	}
	want := map[string]Kind{"a\nb": KindFile, "\xff": KindFile, "sub": KindDir, "link": KindSymlink, "fifo": KindFIFO}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, kind := range want {
		info, err := r.Lstat(t.Context(), "/d/"+name)
		if err != nil || info.Kind != kind || !info.Exists {
			t.Errorf("Lstat(%q) = %+v, %v", name, info, err)
		}
	}
	if _, err := r.Lstat(t.Context(), "/d/none"); CodeOf(err) != NotExist {
		t.Errorf("Lstat of nothing: %v", err)
	}
	for path, code := range map[string]Code{"/d/link": Stale, "/d/fifo": NotRegular, "/none": NotExist, "": InvalidPath} {
		if err := r.ReadDir(t.Context(), path, func(Entry) bool { return true }); CodeOf(err) != code {
			t.Errorf("ReadDir(%q): %v, want %s", path, err, code)
		}
	}
	const many = 30000
	if err := os.Mkdir(dir+"/many", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		if err := unix.Mknod(fmt.Sprintf("%s/many/%d", dir, i), unix.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[string]bool)
	if err := r.ReadDir(t.Context(), "/many", func(e Entry) bool { seen[e.Name] = true; return true }); err != nil || len(seen) != many {
		t.Errorf("%d entries, %v", len(seen), err)
	}
	n := 0
	if err := r.ReadDir(t.Context(), "/many", func(Entry) bool { n++; return n < 10 }); err != nil || n != 10 {
		t.Errorf("stopped after %d, %v", n, err)
	}
}

func FuzzParseEntries(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x08name\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range parseEntries(b, nil, nil) {
			if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsRune(e.Name, 0) {
				t.Errorf("name %q", e.Name)
			}
		}
	})
}

// Files of /proc claim to be empty and regular; they are read by what they give.
func TestReadProc(t *testing.T) {
	r := openRoot(t, Config{Dir: "/", UID: -1})
	f, err := r.Open(t.Context(), "/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil || !strings.HasPrefix(string(b), "Linux") || f.Info().Size != 0 {
		t.Errorf("%q, %v", b, err)
	}
	if f, err := r.Open(t.Context(), "/proc/kmsg"); err == nil {
		buf := make([]byte, 1<<20)
		for err == nil { // until the log is read and more would have to be waited for
			_, err = f.Read(buf)
		}
		f.Close()
		if CodeOf(err) != NotRegular {
			t.Errorf("kmsg: %v", err)
		}
	}
	if _, err := r.Open(t.Context(), fmt.Sprintf("/proc/%d/maps", os.Getpid())); CodeOf(err) != InvalidPath {
		t.Errorf("the process itself: %v", err)
	}
}

// More work than threads waits, and work whose context ends while it waits is not done.
func TestThreads(t *testing.T) {
	r := openRoot(t, Config{Dir: "/", UID: -1, Threads: 2})
	release := make(chan struct{})
	var wg sync.WaitGroup
	var running sync.WaitGroup
	running.Add(2)
	for range 2 {
		wg.Go(func() {
			_ = r.do(t.Context(), func() error { running.Done(); <-release; return nil })
		})
	}
	running.Wait()
	ctx, cancel := contextWithCause(t)
	gaveUp := make(chan error)
	go func() { gaveUp <- r.do(ctx, func() error { t.Error("it ran"); return nil }) }()
	cancel(errEnough)
	if err := <-gaveUp; !errors.Is(err, errEnough) || CodeOf(err) != Aborted {
		t.Errorf("error = %v", err)
	}
	var done atomic.Int32
	for range 50 {
		wg.Go(func() {
			_ = r.do(t.Context(), func() error { done.Add(1); return nil })
		})
	}
	close(release)
	wg.Wait()
	if done.Load() != 50 {
		t.Errorf("%d of 50 were done", done.Load())
	}
	if _, err := r.Resolve(t.Context(), "/"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	r2, err := New(Config{Dir: "/", UID: -1})
	if err != nil {
		t.Fatal(err)
	}
	r2.Close()
	if err := r2.do(t.Context(), func() error { return nil }); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}
