package trees

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/worktree/layers"
)

// A live overlay does not follow what somebody does in the source below it: it goes on to show what
// was moved away, has not what came, or cannot say what is there. So what differs is the session's
// own doing only where a layer of its tree says so. All else is the source's.

// cover knows of paths whether a layer says something of them: it has an entry there, or hides what
// the source has there, because a directory above was removed, replaced, made anew or moved.
type cover struct {
	opened *layers.Opened
	at     []*coverAt
}

// coverAt is a layer, and the directory of it that was looked at last.
type coverAt struct {
	root, fd int // of the layer, and of the directory; fd is -1 where that is not there
	dir      string
	hidden   bool // the layer hides what the source has in the directory
}

// coverOf is of open layers, which it closes in the end.
func coverOf(opened *layers.Opened) (*cover, error) {
	c := &cover{opened: opened}
	for _, l := range opened.Files {
		root, err := openRoot(l)
		if err != nil {
			c.close()
			return nil, err
		}
		if root >= 0 {
			c.at = append(c.at, &coverAt{root: root, fd: root, dir: "."})
		}
	}
	return c, nil
}

// openRoot opens what a layer has of a tree; -1 for one that was never mounted.
func openRoot(layer *os.File) (fd int, err error) {
	fd, err = beneath.Open(int(layer.Fd()), "root", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return -1, nil
	}
	return fd, err
}

func (c *cover) close() {
	for _, l := range c.at {
		l.top()
		_ = unix.Close(l.root) // it was read alone
	}
	c.opened.Close()
}

// has reports whether a layer says something of a path. It is quick where the paths come in the
// order of a walk.
func (c *cover) has(ctx context.Context, p string) (bool, error) {
	for _, l := range c.at {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		if is, err := l.has(p); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

// begun gives the handle of the directory that the source had at a path when the tree first changed
// something there; nil where the layers do not say it. It is an apply.Begun.
func (c *cover) begun(dir string) (handle []byte, err error) {
	for _, l := range c.at { // each may have copied that of the one below; the lowest has the source's
		if err := l.enter(dir); err != nil {
			return nil, err
		}
		if l.hidden {
			return nil, nil
		}
		if l.fd < 0 {
			continue
		}
		is, err := layers.Origin(l.fd)
		if err != nil {
			return nil, err
		}
		handle = is
	}
	return handle, nil
}

func (l *coverAt) has(p string) (bool, error) {
	if err := l.enter(path.Dir(p)); err != nil || l.hidden || l.fd < 0 {
		return l.hidden, err
	}
	_, err := beneath.Lstat(l.fd, path.Base(p))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENAMETOOLONG) {
		return false, nil
	}
	return err == nil, err
}

// top goes back to the top of the layer.
func (l *coverAt) top() {
	if l.fd >= 0 && l.fd != l.root {
		_ = unix.Close(l.fd)
	}
	l.fd, l.dir, l.hidden = l.root, ".", false
}

// enter goes to a directory.
func (l *coverAt) enter(dir string) error {
	if dir == l.dir {
		return nil
	}
	if l.dir != "." && !strings.HasPrefix(dir, l.dir+"/") {
		l.top()
	}
	rest := dir
	if l.dir != "." {
		rest = dir[len(l.dir)+1:]
	}
	l.dir = dir
	if rest == "." {
		return nil
	}
	for name := range strings.SplitSeq(rest, "/") {
		if l.hidden || l.fd < 0 {
			return nil
		}
		if err := l.down(name); err != nil {
			l.top()
			return err
		}
	}
	return nil
}

func (l *coverAt) down(name string) error {
	fd, err := beneath.Open(l.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENAMETOOLONG):
		fd = -1
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		l.hidden = true // something else is there, or nothing is to be
		return nil
	case err != nil:
		return err
	}
	if l.fd != l.root {
		_ = unix.Close(l.fd)
	}
	if l.fd = fd; fd < 0 {
		return nil
	}
	opaque, moved, err := layers.Hides(fd)
	l.hidden = opaque || moved
	return err
}
