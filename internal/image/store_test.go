package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// addPlain imports an image of one file.
func addPlain(t testing.TB, s *Store, name, content string) *client.Image {
	t.Helper()
	img, err := s.Import(t.Context(), name, bytes.NewReader(tarOf(t, file("f", content))))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestOpenMakesAPrivatePlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir, Limits{})
	if st := statOf(t, dir); st.Mode&0o7777 != 0o700 {
		t.Errorf("mode %o, want 700", st.Mode&0o7777)
	}
}

func TestOpenFailures(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if _, err := openKeeping(filepath.Join(dir, "a", "b"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a parent: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openKeeping(filepath.Join(dir, "file"), 1); err == nil {
		t.Error("a file was opened as a store")
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "other"), 0o700), os.Chown(filepath.Join(dir, "other"), 1000, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := openKeeping(filepath.Join(dir, "other"), 1); err == nil || !strings.Contains(err.Error(), "1000") {
		t.Errorf("another user's directory: %v", err)
	}
	openStore(t, filepath.Join(dir, "images"), Limits{})
	if _, err := openKeeping(filepath.Join(dir, "images"), 1); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
}

// TestReopen: everything is there again, and what nobody finished is not.
func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := openStore(t, dir, Limits{})
	img := addPlain(t, s, "one:1", "1")
	two := addPlain(t, s, "two:2", "2")
	s.Close()
	for _, p := range []string{tmpDir + "/new-x/rootfs/etc", imagesDir + "/sha256-half/rootfs"} {
		if err := os.MkdirAll(filepath.Join(dir, p), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// One that says that it is another.
	raw, err := os.ReadFile(filepath.Join(dir, folder(two.Digest), configFile))
	if err != nil {
		t.Fatal(err)
	}
	swapped := bytes.ReplaceAll(raw, []byte(two.Digest), []byte(img.Digest))
	if err := os.WriteFile(filepath.Join(dir, folder(two.Digest), configFile), swapped, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Limits{})
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Digest != img.Digest || !slices.Equal(list[0].Names, []string{"one:1"}) || !list[0].Added.Equal(*img.Added) {
		t.Errorf("got %+v, %v; want %+v", list, err, img)
	}
	checkNothingLeft(t, s, 1)
}

func TestReopenDamagedNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := openStore(t, dir, Limits{})
	addPlain(t, s, "one:1", "1")
	s.Close()
	if err := os.WriteFile(filepath.Join(dir, namesFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openKeeping(dir, 1); err == nil || !strings.Contains(err.Error(), namesFile) {
		t.Errorf("got %v, want the name of the file", err)
	}
}

func TestAcquire(t *testing.T) {
	s := newStore(t)
	img := addPlain(t, s, "one:1", "content")
	hex := strings.TrimPrefix(img.Digest, "sha256:")
	for _, ref := range []string{"one:1", "index.docker.io/library/one:1", img.Digest, hex[:12], "sha256:" + hex[:20], hex} {
		h, err := s.Acquire(t.Context(), ref)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if got := listing(t, procPath(int(h.Root.Dir.Fd()))+"/."); len(got) != 2 || got[1] != "- 0644 0:0 f content" {
			t.Errorf("%s: it holds %q", ref, got)
		}
		flags, err := unix.FcntlInt(h.Root.Dir.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_PATH == 0 {
			t.Errorf("flags %x, %v; want O_PATH", flags, err)
		}
		if h.Digest != img.Digest {
			t.Errorf("%s: got %s", ref, h.Digest)
		}
		h.Release()
		h.Release()
	}
	for ref, want := range map[string]error{
		"one:2": ErrNotFound, "sha256:" + strings.Repeat("0", 64): ErrNotFound, "0123456789ab": ErrNotFound, hex[:11]: ErrNotFound,
		"one@sha256:" + strings.Repeat("0", 64): ErrNotFound, "": ErrInvalid, "A": ErrInvalid,
	} {
		if _, err := s.Acquire(t.Context(), ref); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", ref, err, want)
		}
	}
	if err := s.Remove(t.Context(), img.Digest); err != nil {
		t.Errorf("after all was released: %v", err)
	}
}

func TestRemove(t *testing.T) {
	s := newStore(t)
	ctx := t.Context()
	img := addPlain(t, s, "one:1", "x")
	addPlain(t, s, "alias:1", "x")
	h, err := s.Acquire(t.Context(), "alias:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(ctx, "one:1"); err != nil {
		t.Errorf("one of two names: %v", err)
	}
	for _, ref := range []string{"alias:1", img.Digest} {
		if err := s.Remove(ctx, ref); !errors.Is(err, ErrInUse) {
			t.Errorf("%s while it is held: %v", ref, err)
		}
	}
	if err := s.Remove(ctx, "one:1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a name that was removed: %v", err)
	}
	h.Release()
	if err := s.Remove(ctx, "alias:1"); err != nil {
		t.Errorf("the last name: %v", err)
	}
	checkNothingLeft(t, s, 0)
	if list, err := s.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("got %+v, %v", list, err)
	}
}

// TestRename: a name means what was last given it.
func TestRename(t *testing.T) {
	s := newStore(t)
	first := addPlain(t, s, "tool", "1")
	second := addPlain(t, s, "tool", "2")
	h, err := s.Acquire(t.Context(), "tool")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	list, err := s.List(t.Context())
	if err != nil || h.Digest != second.Digest || len(list) != 2 || len(list[1].Names) != 0 || list[1].Digest != first.Digest {
		t.Errorf("got %+v, %v", list, err)
	}
}

func TestClosed(t *testing.T) {
	s := newStore(t)
	img := addPlain(t, s, "one:1", "1")
	h, err := s.Acquire(t.Context(), "one:1")
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	ctx := t.Context()
	_, errAcquire := s.Acquire(t.Context(), "one:1")
	_, errList := s.List(ctx)
	_, errImport := s.Import(ctx, "x", bytes.NewReader(nil))
	_, errPull := s.Pull(ctx, client.ImagePull{Ref: "localhost:1/x"}, quiet)
	for i, err := range []error{errAcquire, errList, errImport, errPull, s.Remove(ctx, img.Digest)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	if _, err := unix.FcntlInt(h.Root.Dir.Fd(), unix.F_GETFD, 0); err != nil {
		t.Errorf("what was held is not usable any more: %v", err)
	}
	h.Release()
}

// blockingReader gives its bytes, then waits.
type blockingReader struct {
	r       *bytes.Reader
	reached chan struct{}
	release chan struct{}
	once    sync.Once
}

func (b *blockingReader) Read(p []byte) (int, error) {
	if b.r.Len() == 0 {
		b.once.Do(func() { close(b.reached) })
		<-b.release
	}
	return b.r.Read(p)
}

// TestCloseWaits: what is under way is ended, and has cleaned up when Close
// returns.
func TestCloseWaits(t *testing.T) {
	s := newStore(t)
	r := &blockingReader{r: bytes.NewReader(tarOf(t, file("a", "x"))), reached: make(chan struct{}), release: make(chan struct{})}
	failed := make(chan error, 1)
	go func() {
		_, err := s.Import(context.Background(), "x", r)
		failed <- err
	}()
	<-r.reached
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	<-s.stopping.Done()
	close(r.release)
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	<-closed
	checkNothingLeft(t, s, 0)
}

// TestOnceForTwo: two who want the same image at the same time get one.
func TestOnceForTwo(t *testing.T) {
	s, host := newStore(t), newTestRegistry(t)
	push(t, host+"/base:v1", simpleImage(t))
	var mu sync.Mutex
	unpacked := 0
	progress := func(p client.ImageProgress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Stage == stageCommit {
			unpacked++
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.Pull(t.Context(), client.ImagePull{Ref: host + "/base:v1"}, progress); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if unpacked != 1 {
		t.Errorf("it was made %d times", unpacked)
	}
	checkNothingLeft(t, s, 1)
}

// TestWaitingEndsWithContext: who waits for another's work need not.
func TestWaitingEndsWithContext(t *testing.T) {
	s := newStore(t)
	done, err := s.turns.Take(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	if _, err := s.turns.Take(ctx, "x"); !errors.Is(err, reason) {
		t.Errorf("a turn: %v", err)
	}
	for range cap(s.jobs) {
		s.jobs <- struct{}{}
	}
	if _, err := s.job(ctx); !errors.Is(err, reason) {
		t.Errorf("a job: %v", err)
	}
	if _, err := s.List(ctx); !errors.Is(err, reason) {
		t.Errorf("a list: %v", err)
	}
}

// TestDiskFloor: a disk that would become too full is left alone.
func TestDiskFloor(t *testing.T) {
	needRoot(t)
	s, err := openKeeping(filepath.Join(t.TempDir(), "images"), 1<<60)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Import(t.Context(), "x", bytes.NewReader(tarOf(t, file("a", ""))))
	if !errors.Is(err, errFloor) {
		t.Errorf("got %v", err)
	}
	checkNothingLeft(t, s, 0)
}

// TestFullDisk: on a file system with room for a few MiB, an image that needs
// more fails cleanly, and the room is there again.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	big := func(n int) []tarEntry { return []tarEntry{file("big", strings.Repeat("x", n))} }
	var many []tarEntry
	for i := range 2000 {
		many = append(many, numbered(i))
	}
	for name, tt := range map[string]struct {
		size, inodes string
		minFree      int64
		entries      []tarEntry
	}{
		"bytes, received":   {"24m", "20000", 1, big(30 << 20)},
		"bytes, by a floor": {"64m", "20000", 20 << 20, big(40 << 20)},
		"bytes, unpacked":   {"24m", "20000", 1, big(15 << 20)},
		"inodes":            {"64m", "11000", 1, many},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := openKeeping(filepath.Join(detachedTmpfs(t, tt.size, tt.inodes), "images"), tt.minFree)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, err = s.Import(t.Context(), "x", bytes.NewReader(tarOf(t, tt.entries...)))
			if want := map[bool]error{true: errFloor, false: ErrNoSpace}[tt.minFree > 1]; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			checkNothingLeft(t, s, 0)
			var fs unix.Statfs_t
			if err := unix.Fstatfs(int(s.fd.Fd()), &fs); err != nil || fs.Blocks-fs.Bfree > 16 {
				t.Errorf("%d pages are in use, %v", fs.Blocks-fs.Bfree, err)
			}
		})
	}
}

// TestRemoveFromFullDisk: images are removed where there is no room for anything.
func TestRemoveFromFullDisk(t *testing.T) {
	needRoot(t)
	s, err := openKeeping(filepath.Join(detachedTmpfs(t, "8m", "20000"), "images"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	addPlain(t, s, "one:1", "x")
	addPlain(t, s, "two:1", "y")
	if err := s.dir.WriteFile("ballast", make([]byte, 16<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := s.Remove(t.Context(), "one:1"); err != nil {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), "one:1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("once more: %v", err)
	}
	checkNothingLeft(t, s, 1)
	if raw, err := s.dir.ReadFile(namesFile); err != nil || strings.Contains(string(raw), "one") || !strings.Contains(string(raw), "two") {
		t.Errorf("the names are %s, %v", raw, err)
	}
}

// numbered is a directory.
func numbered(i int) tarEntry { return dir(fmt.Sprintf("d%d/", i)) }

const crashVariable = "TOOLD_IMAGE_TEST_CRASH"

// TestMain makes the test binary a process that can be killed in the middle of
// its work.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashVariable); dir != "" {
		os.Exit(crashing(dir))
	}
	os.Exit(m.Run())
}

// crashing imports what comes on its standard input, for ever if need be.
func crashing(dir string) int {
	s, err := openKeeping(dir, 1)
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	_, err = s.importing(context.Background(), "crash", os.Stdin, func(p client.ImageProgress) {
		os.Stdout.WriteString(p.Stage + "\n")
	})
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	return 0
}

// TestKilled: whenever the process is killed, the next one finds a store that
// has the image or has nothing of it.
func TestKilled(t *testing.T) {
	needRoot(t)
	var entries []tarEntry
	for i := range 3000 {
		entries = append(entries, numbered(i), file(numbered(i).Name+"f", strings.Repeat("x", 2000)))
	}
	raw := tarOf(t, entries...)
	for name, at := range map[string]struct {
		stage string
		after time.Duration
	}{
		"receiving": {stageReceive, 0}, "unpacking": {stageUnpack, 0}, "unpacking a bit": {stageUnpack, 20 * time.Millisecond},
		"writing": {stageCommit, 0}, "writing a bit": {stageCommit, 3 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(detachedTmpfs(t, "512m", "200000"), "images")
			killAt(t, dir, raw, at.stage, at.after)
			s := openStore(t, dir, Limits{})
			list, err := s.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			checkNothingLeft(t, s, len(list))
			if len(list) == 1 && list[0].Files != 6001 {
				t.Errorf("half an image: %+v", list[0])
			}
			if _, err := s.Import(t.Context(), "again", bytes.NewReader(raw)); err != nil {
				t.Errorf("after that: %v", err)
			}
		})
	}
}

// killAt runs an import in another process, and kills that when it is at stage.
func killAt(t *testing.T, dir string, raw []byte, stage string, after time.Duration) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), crashVariable+"="+dir)
	cmd.Stdin = bytes.NewReader(raw)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := ""
	buf := make([]byte, 64)
	for !strings.Contains(seen, stage) {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("it ended before it was at %s: %v", stage, err)
		}
		seen += string(buf[:n])
	}
	time.Sleep(after)
	cmd.Process.Kill()
	cmd.Wait()
}
