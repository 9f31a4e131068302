package main

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/testrig"
)

// guarded watches over a door as a daemon does, which answers with "here".
func guarded(t *testing.T, d *door) *syncBuffer {
	t.Helper()
	said := &syncBuffer{}
	d.every = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { d.watch(ctx, slog.New(slog.NewTextHandler(said, nil))) })
	wg.Go(func() {
		for {
			c, err := d.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "here")
			_ = c.Close()
		}
	})
	t.Cleanup(func() { cancel(); _ = d.Close(); wg.Wait() })
	return said
}

func answers(path string) bool {
	c, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer c.Close()
	text, _ := io.ReadAll(c)
	return string(text) == "here"
}

// deadSocket leaves a socket at path that nobody listens at.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	mustNil(t, err)
	ln.SetUnlinkOnClose(false)
	mustNil(t, ln.Close())
}

// removeDir removes a directory in which the daemon may make its socket again at any moment.
func removeDir(t *testing.T, dir string) {
	t.Helper()
	mustNil(t, os.Rename(dir, dir+".gone"))
	mustNil(t, os.RemoveAll(dir+".gone"))
}

// TestSocketComesBack: whatever happens to the socket's file, clients reach the daemon again, as
// the same users; also where systemd has made the socket.
func TestSocketComesBack(t *testing.T) {
	for name, hurt := range map[string]func(t *testing.T, path string){
		"removed":   func(t *testing.T, path string) { mustNil(t, os.Remove(path)) },
		"moved":     func(t *testing.T, path string) { mustNil(t, os.Rename(path, path+".old")) },
		"dead one":  func(t *testing.T, path string) { deadSocket(t, path+".d"); mustNil(t, os.Rename(path+".d", path)) },
		"directory": func(t *testing.T, path string) { removeDir(t, filepath.Dir(path)) },
		"file in its place": func(t *testing.T, path string) {
			mustNil(t, os.WriteFile(path+".new", []byte("mine"), 0o600))
			mustNil(t, os.Rename(path+".new", path))
		},
	} {
		for _, systemd := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " under systemd"}[systemd], func(t *testing.T) {
				t.Parallel()
				path := socketIn(t)
				d, err := listenUnix(&config.Daemon{Socket: path})
				mustNil(t, err)
				if systemd {
					d = inherit(d.ln)
				}
				before, err := os.Lstat(path)
				mustNil(t, err)
				said := guarded(t, d)
				testrig.Eventually(t, "it answers", func() bool { return answers(path) })
				hurt(t, path)
				if name == "file in its place" {
					testrig.Eventually(t, "it is complained of", func() bool { return strings.Contains(said.String(), "is not a socket") })
					if text, err := os.ReadFile(path); string(text) != "mine" {
						t.Fatalf("somebody's file is gone: %q, %v", text, err)
					}
					mustNil(t, os.Remove(path))
				}
				testrig.Eventually(t, "it answers again", func() bool { return answers(path) })
				after, err := os.Lstat(path)
				mustNil(t, err)
				b, a := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
				if before.Mode() != after.Mode() || b.Uid != a.Uid || b.Gid != a.Gid {
					t.Errorf("%v of %d:%d was made as %v of %d:%d", before.Mode(), b.Uid, b.Gid, after.Mode(), a.Uid, a.Gid)
				}
				advised := func() bool { return strings.Contains(said.String(), "systemctl restart toold.socket") }
				if systemd { // it answers first
					testrig.Eventually(t, "it says what to do", advised)
				} else if advised() {
					t.Errorf("without systemd it says:\n%s", said)
				}
				mustNil(t, d.Close())
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("the socket is still there after a clean end: %v", err)
				}
			})
		}
	}
}

// TestInheritedUnreachable: systemd passes on a socket whose file was removed while no daemon ran.
func TestInheritedUnreachable(t *testing.T) {
	for name, there := range map[string]func(t *testing.T, path string){
		"nothing there": func(*testing.T, string) {}, "dead socket there": deadSocket,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := socketIn(t)
			mustNil(t, os.Mkdir(filepath.Dir(path), 0o750))
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			mustNil(t, err)
			mustNil(t, os.Remove(path))
			there(t, path)
			guarded(t, inherit(ln))
			testrig.Eventually(t, "it answers", func() bool { return answers(path) })
		})
	}
}

// TestDoorOfAnother: a daemon that ends leaves what another has put there.
func TestDoorOfAnother(t *testing.T) {
	path := socketIn(t)
	d, err := listenUnix(&config.Daemon{Socket: path})
	mustNil(t, err)
	mustNil(t, os.Remove(path))
	deadSocket(t, path)
	mustNil(t, d.Close())
	if fi, err := os.Lstat(path); err != nil || fi.Mode().Type() != fs.ModeSocket {
		t.Errorf("what another has made is gone: %v", err)
	}
}

// TestDaemonMakesItsSocketAgain: the real program, with a client that has found nobody.
func TestDaemonMakesItsSocketAgain(t *testing.T) {
	d := newPlace(t).command().start().ready()
	removeDir(t, filepath.Dir(d.socket))
	d.ready()
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
