package control

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var nonce = []byte(strings.Repeat("n", 32))

func prepared(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "control")
	if err := Prepare(dir, os.Getuid(), os.Getgid(), nonce); err != nil {
		t.Fatal(err)
	}
	return dir
}

func listening(t *testing.T, dir string, peer func(*unix.Ucred) error) *Listener {
	t.Helper()
	l, err := Listen(dir, peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// agentDials connects as an agent does.
func agentDials(t *testing.T, dir string) *net.UnixConn {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"})
		if errors.Is(err, unix.EAGAIN) && time.Now().Before(end) {
			continue // the socket's queue is full, and an agent tries again
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func got(t *testing.T, l *Listener) *net.UnixConn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := l.Dial(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// talks checks that a and b are the ends of one connection.
func talks(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestPrepare(t *testing.T) {
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 70000, 70001
	}
	dir := filepath.Join(t.TempDir(), "control")
	if err := Prepare(dir, uid, gid, nonce); err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]os.FileMode{".": 0o700, "nonce": 0o400} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, file), &st); err != nil {
			t.Fatal(err)
		}
		if int(st.Uid) != uid || int(st.Gid) != gid || os.FileMode(st.Mode&0o7777) != mode {
			t.Errorf("%s is %d:%d %o, want %d:%d %o", file, st.Uid, st.Gid, st.Mode&0o7777, uid, gid, mode)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "nonce")); err != nil || string(b) != string(nonce) {
		t.Errorf("nonce %q, %v", b, err)
	}
	if err := Prepare(dir, uid, gid, nonce); err == nil {
		t.Error("the same directory twice")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(link, uid, gid, nonce); err == nil {
		t.Error("a link was followed")
	}
	if _, err := Listen(link, nil); err == nil {
		t.Error("a link was followed to listen")
	}
}

func TestDial(t *testing.T) {
	dir := prepared(t)
	l := listening(t, dir, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Dial(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody has dialled: %v", err)
	}
	a := agentDials(t, dir)
	talks(t, got(t, l), a)
	// One that is dead by now is not given.
	agentDials(t, dir).Close()
	time.Sleep(50 * time.Millisecond)
	b := agentDials(t, dir)
	talks(t, got(t, l), b)
	// Nor one that speaks first.
	rude := agentDials(t, dir)
	if _, err := rude.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if c, err := l.Dial(ctx, nil); err == nil {
		c.Close()
		t.Error("got a connection that spoke first")
	}
}

func TestNewestWins(t *testing.T) {
	dir := prepared(t)
	l := listening(t, dir, nil)
	var last *net.UnixConn
	for range 20 {
		last = agentDials(t, dir)
	}
	c := got(t, l)
	for !reaches(c, last) { // the last ones may not have been accepted yet
		c = got(t, l)
	}
}

func reaches(c, a *net.UnixConn) bool {
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	return !silent(a) // what is written is there at once
}

// A daemon that comes next takes over, whether the one before has closed or died.
func TestTakesThePlace(t *testing.T) {
	dir := prepared(t)
	for range 3 {
		l := listening(t, dir, nil)
		talks(t, agentDials(t, dir), got(t, l))
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("directory holds %v, %v; want nonce and socket", entries, err)
	}
}

func TestPeer(t *testing.T) {
	dir := prepared(t)
	var uid atomic.Int64
	l := listening(t, dir, func(c *unix.Ucred) error {
		if int64(c.Uid) != uid.Load() {
			return errors.New("not the agent")
		}
		return nil
	})
	uid.Store(int64(os.Getuid()) + 1)
	c := agentDials(t, dir)
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stranger was let in: %v", err)
	}
	uid.Store(int64(os.Getuid()))
	talks(t, agentDials(t, dir), got(t, l))
}

func TestClose(t *testing.T) {
	dir := prepared(t)
	l := listening(t, dir, nil)
	failed := make(chan error, 1)
	go func() {
		_, err := l.Dial(context.Background(), nil)
		failed <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v, want closed", err)
	}
}

// However often an agent dials, the daemon takes its time.
func TestPause(t *testing.T) {
	dir := prepared(t)
	var asked atomic.Int64
	listening(t, dir, func(*unix.Ucred) error { asked.Add(1); return nil })
	const many = 40
	began := time.Now()
	for asked.Load() < many {
		if c, err := net.Dial("unix", filepath.Join(dir, "socket")); err == nil {
			c.Close()
		}
	}
	if took := time.Since(began); took < (many-1)*pause {
		t.Errorf("%d connections were taken in %v", many, took)
	}
}
