package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often the daemon looks whether its socket is still there. Clients find no
// daemon for so long.
const lookEvery = 2 * time.Second

// door is the API's socket. It outlives its file: a program that cleans up /run may remove that
// under a daemon that lives on, and nobody would reach it any more.
type door struct {
	path     string
	uid, gid int           // of the file; -1 leaves it as it is
	mode     fs.FileMode   // of the file
	systemd  bool          // holds the first listener
	every    time.Duration // lookEvery

	mu     sync.Mutex // guards the fields below
	ln     *net.UnixListener
	file   fs.FileInfo // at path, whose inode lives as long as ln; nil when ln has none there
	made   bool        // file is ours to remove
	closed bool
}

// openDoor makes the socket's file, which must not be there, and the directory that it is in.
func openDoor(path string, gid int) (*door, error) {
	d := &door{path: path, uid: -1, gid: gid, mode: 0o660, every: lookEvery}
	return d, d.make()
}

// inherit is a door that systemd has made. Its file may have been removed before this daemon
// began: systemd passes on what nobody can reach.
func inherit(ln *net.UnixListener) *door {
	d := &door{path: ln.Addr().String(), uid: -1, gid: -1, mode: 0o660, every: lookEvery, systemd: true, ln: ln}
	fi, err := os.Lstat(d.path)
	if err != nil || fi.Mode().Type() != fs.ModeSocket || dead(d.path) {
		return d
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		d.file, d.uid, d.gid, d.mode = fi, int(st.Uid), int(st.Gid), fi.Mode().Perm()
	}
	return d
}

// dead reports whether nobody listens at a socket.
func dead(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// make makes the socket anew where there is none, and goes on there.
func (d *door) make() error {
	dir := filepath.Dir(d.path)
	if err := socketDir(dir, d.gid); err != nil {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	if err := removeStale(d.path); err != nil {
		return err
	}
	ln, err := listenClosed(d.path)
	if err != nil {
		return err
	}
	gid := d.gid
	if gid < 0 { // nobody knows what systemd's had: those who may enter the directory
		if gid, err = groupOf(dir); err != nil {
			return errors.Join(err, ln.Close())
		}
	}
	err = errors.Join(os.Lchown(d.path, d.uid, gid), os.Chmod(d.path, d.mode))
	fi, lerr := os.Lstat(d.path)
	if err = errors.Join(err, lerr); err != nil {
		return errors.Join(err, ln.Close())
	}
	ln.SetUnlinkOnClose(false) // the path may be another's by then
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.Join(net.ErrClosed, ln.Close(), os.Remove(d.path))
	}
	old := d.ln
	d.ln, d.file, d.made = ln, fi, true
	if old != nil {
		_ = old.Close() // Accept goes on with the new one
	}
	return nil
}

// listenClosed makes a socket that its owner alone may connect to from the first moment on.
// The kernel takes the mode of the file from the socket, so that no umask is needed, which is
// the whole process's.
func listenClosed(path string) (*net.UnixListener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	ln, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return ln.(*net.UnixListener), nil //nolint:forcetypeassert // what "unix" gives
}

func groupOf(dir string) (int, error) {
	fi, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("nobody knows whose %s is", dir)
	}
	return int(st.Gid), nil
}

// there reports whether the file at the path is that of the listener.
func (d *door) there() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	fi, err := os.Lstat(d.path)
	return err == nil && d.file != nil && os.SameFile(fi, d.file)
}

// watch makes the socket again whenever it is gone, until ctx ends. What is in its place and is
// not the daemon's own stays, and is complained of.
func (d *door) watch(ctx context.Context, log *slog.Logger) {
	if strings.HasPrefix(d.path, "@") {
		return // an abstract name has no file
	}
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	said := ""
	for ; ctx.Err() == nil; d.wait(ctx, tick) {
		if d.there() {
			said = ""
			continue
		}
		err := d.make()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil && err.Error() != said:
			said = err.Error()
			log.Error("nobody can reach this daemon: its socket is gone, and cannot be made again", "socket", d.path, "error", err)
		case err == nil && d.systemd:
			log.Warn("the socket was removed, and is made again by toold: systemd starts toold for nobody until \"systemctl restart toold.socket\"", "socket", d.path)
		case err == nil:
			log.Warn("the socket was removed, and is made again", "socket", d.path)
		}
	}
}

func (*door) wait(ctx context.Context, tick *time.Ticker) {
	select {
	case <-ctx.Done():
	case <-tick.C:
	}
}

func (d *door) now() *net.UnixListener {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ln
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		ln := d.now()
		c, err := ln.Accept()
		if err == nil || d.now() == ln {
			return c, err
		}
	}
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return &net.UnixAddr{Name: d.path, Net: "unix"} }

// Close implements net.Listener. It removes the file, if it is this door's and was made by it.
func (d *door) Close() error {
	ours := d.there()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	d.closed = true
	var err error
	if ours && d.made {
		err = os.Remove(d.path)
	}
	return errors.Join(err, d.ln.Close())
}
