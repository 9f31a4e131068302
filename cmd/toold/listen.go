package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/toold/toold/internal/config"
)

// passed are the sockets that systemd holds for this process. They can be taken once, and a process
// may be more than one daemon (serve).
var passed = sync.OnceValues(activation.Listeners)

// copied is a listener of the same socket, which can be closed by itself.
func copied(ln *net.UnixListener) (*net.UnixListener, error) {
	f, err := ln.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil //nolint:forcetypeassert // what a Unix socket gives
}

// listenAPI gives the API's socket: the one that systemd holds for us, or one made at
// cfg.Socket.
func listenAPI(cfg *config.Daemon) (*door, error) {
	passed, err := passed()
	if err != nil {
		return nil, fmt.Errorf("socket activation: %w", err)
	}
	switch len(passed) {
	case 0:
		return listenUnix(cfg)
	case 1:
		if ln, ok := passed[0].(*net.UnixListener); ok {
			again, err := copied(ln)
			if err != nil {
				return nil, fmt.Errorf("socket activation: %w", err)
			}
			return inherit(again), nil
		}
		return nil, errors.New("socket activation: toold serves a Unix stream socket only, never TCP: see ListenStream in toold.socket")
	}
	return nil, fmt.Errorf("socket activation: got %d sockets, want one", len(passed))
}

// listenUnix makes the socket: 0660 and the group's, in a directory that is ours.
func listenUnix(cfg *config.Daemon) (*door, error) {
	gid, err := groupID(cfg.SocketGroup)
	if err != nil {
		return nil, err
	}
	return openDoor(cfg.Socket, gid)
}

// socketDir makes the socket's directory 0750 and the group's. A directory that
// was there before toold and is not its run directory keeps its mode, as long as
// nobody else can put a socket into it. A gid of -1 leaves the group as it is.
func socketDir(dir string, gid int) error {
	made, err := makeOrCheck(dir, 0o750)
	if made && err == nil {
		err = os.Lchown(dir, -1, gid)
	}
	return err
}

func groupID(name string) (int, error) {
	if name == "" {
		return os.Getegid(), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("daemon.socket_group: there is no group %q on this host: create it (groupadd --system %s)", name, name)
	}
	return strconv.Atoi(g.Gid)
}

// removeStale removes a socket that a dead daemon of ours left at path, and
// refuses anything else that is there.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is not a socket (%s): remove it", path, info.Mode().Type())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("socket %s belongs to another user (uid %d): remove it", path, st.Uid)
	}
	c, err := net.DialTimeout("unix", path, 10*time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("another daemon answers at %s: stop it, or use another --socket", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("look whether a daemon answers at %s: %w", path, err)
	}
	return os.Remove(path)
}
