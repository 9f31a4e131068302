package main

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/config"
)

func mustNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("got error %v, want one with %q", err, part)
	}
}

// socketIn gives a socket's path in a fresh directory that is short enough.
func socketIn(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "td") // its names are too long for a socket
	mustNil(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "s.sock")
}

func TestListenModes(t *testing.T) {
	path := socketIn(t)
	ln, err := listenUnix(&config.Daemon{Socket: path})
	mustNil(t, err)
	defer ln.Close()
	for p, want := range map[string]fs.FileMode{path: fs.ModeSocket | 0o660, filepath.Dir(path): fs.ModeDir | 0o750} {
		info, err := os.Lstat(p)
		mustNil(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", p, info.Mode(), want)
		}
	}
}

func TestListenTakesOverFromADeadDaemon(t *testing.T) {
	path := socketIn(t)
	old, err := listenUnix(&config.Daemon{Socket: path})
	mustNil(t, err)
	mustNil(t, old.ln.Close()) // as SIGKILL leaves it
	ln, err := listenUnix(&config.Daemon{Socket: path})
	mustNil(t, err)
	mustNil(t, ln.Close())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after a clean end: %v", err)
	}
}

func TestListenRefusesWhatIsNotItsOwn(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		put        func(t *testing.T, path string)
	}{
		{"a living daemon", "another daemon answers at", func(t *testing.T, path string) {
			ln, err := net.Listen("unix", path)
			mustNil(t, err)
			t.Cleanup(func() { ln.Close() })
		}},
		{"a file", "is not a socket", func(t *testing.T, path string) { mustNil(t, os.WriteFile(path, nil, 0o600)) }},
		{"a symbolic link", "is not a socket", func(t *testing.T, path string) { mustNil(t, os.Symlink("/run/other.sock", path)) }},
		{"a symbolic link to a dead socket", "is not a socket", func(t *testing.T, path string) {
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + "2", Net: "unix"})
			mustNil(t, err)
			ln.SetUnlinkOnClose(false)
			mustNil(t, ln.Close())
			mustNil(t, os.Symlink(path+"2", path))
		}},
		{"a directory that others write", "can be written by others", func(t *testing.T, path string) {
			mustNil(t, os.Chmod(filepath.Dir(path), 0o777))
		}},
		{"somebody's directory", "belongs to another user", func(t *testing.T, path string) {
			needRoot(t)
			mustNil(t, os.Chown(filepath.Dir(path), 4711, -1))
		}},
		{"somebody's socket", "belongs to another user", func(t *testing.T, path string) {
			needRoot(t)
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			mustNil(t, err)
			ln.SetUnlinkOnClose(false)
			mustNil(t, ln.Close())
			mustNil(t, os.Chown(path, 4711, -1))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := socketIn(t)
			mustNil(t, os.Mkdir(filepath.Dir(path), 0o750))
			tt.put(t, path)
			before, beforeErr := os.Lstat(path)
			ln, err := listenUnix(&config.Daemon{Socket: path})
			if err == nil {
				ln.Close()
			}
			wantError(t, err, tt.want)
			after, afterErr := os.Lstat(path)
			if (beforeErr == nil) != (afterErr == nil) || beforeErr == nil && !os.SameFile(before, after) {
				t.Errorf("what was there has changed: %v, then %v", before, after)
			}
		})
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others")
	}
}

func TestListenUnknownGroup(t *testing.T) {
	_, err := listenUnix(&config.Daemon{Socket: socketIn(t), SocketGroup: "no-such-group-here"})
	wantError(t, err, `there is no group "no-such-group-here"`)
}

func TestOwnDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	mustNil(t, ownDir(dir, 0o711))
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("got %v, %v, want mode 0711", info.Mode(), err)
	}
	mustNil(t, ownDir(dir, 0o700))
	link := filepath.Join(t.TempDir(), "link")
	mustNil(t, os.Symlink(dir, link))
	wantError(t, ownDir(link, 0o700), "a symbolic link is none")
	mustNil(t, os.Chmod(dir, 0o770))
	wantError(t, ownDir(dir, 0o700), "can be written by others")
	if os.Geteuid() == 0 {
		mustNil(t, os.Chmod(dir, 0o700))
		mustNil(t, os.Chown(dir, 4711, -1))
		wantError(t, ownDir(dir, 0o700), "somebody made it before toold did")
	}
}

func TestOneDaemonPerDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDir(dir)
	mustNil(t, err)
	_, err = lockDir(dir)
	wantError(t, err, "another toold uses "+dir)
	mustNil(t, first.Close())
	second, err := lockDir(dir)
	mustNil(t, err)
	mustNil(t, second.Close())
}
