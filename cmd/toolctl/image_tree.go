package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// openTree gives the files of a directory as a tar archive, which is made while it
// is read. Links are not followed, sockets left out, and other file systems that
// are mounted below are empty directories.
func openTree(dir string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	t := &tree{root: root, w: tar.NewWriter(w), device: statOf(info).Dev, links: make(map[inode]string)}
	var writer sync.WaitGroup
	writer.Go(func() {
		err := fs.WalkDir(root.FS(), ".", t.add)
		if err == nil {
			err = t.w.Close()
		}
		w.CloseWithError(err) // nil is the end of the archive
	})
	return &treeReader{r, func() {
		r.CloseWithError(io.ErrClosedPipe)
		writer.Wait()
		_ = root.Close() // it was only read
	}}, nil
}

type treeReader struct {
	*io.PipeReader
	close func()
}

// Close implements io.Closer; it waits for the goroutine that writes.
func (r *treeReader) Close() error {
	r.close()
	return nil
}

// tree writes a directory to an archive.
type tree struct {
	root   *os.Root
	w      *tar.Writer
	device uint64
	links  map[inode]string // those with several names, to the first of them
}

// inode is which file a name is of. On an overlay a file's device is not that of its directory.
type inode struct{ device, number uint64 }

// removalPrefix begins the names by which an image says what it removes from the
// one that it is made of: a file with such a name would not be in the image, and
// another one might be missing.
const removalPrefix = ".wh."

// add is an fs.WalkDirFunc.
func (t *tree) add(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if strings.HasPrefix(d.Name(), removalPrefix) {
		return fmt.Errorf("%s: in an image, names that begin with %q mean a removal; rename it or leave it out", line(path), removalPrefix)
	}
	info, err := t.root.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = t.root.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	st := statOf(info)
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = filepath.ToSlash(path), int(st.Uid), int(st.Gid), "", ""
	h.Format = tar.FormatPAX
	// An archive's digest is the image's identity: that somebody has read a file
	// makes no other image.
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if info.IsDir() {
		h.Name += "/"
	}
	regular := info.Mode().IsRegular()
	if regular && st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first, seen := t.links[id]; seen {
			h.Typeflag, h.Linkname, h.Size, regular = tar.TypeLink, first, 0, false
		} else {
			t.links[id] = h.Name
		}
	}
	if err := t.w.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if regular {
		return t.copy(path, h.Size)
	}
	if info.IsDir() && st.Dev != t.device {
		return fs.SkipDir
	}
	return nil
}

func (t *tree) copy(path string, size int64) error {
	f, err := t.root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyN(t.w, f, size); err != nil {
		return fmt.Errorf("%s: it changed while it was read: %w", path, err)
	}
	return nil
}

func statOf(info fs.FileInfo) *syscall.Stat_t {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return new(syscall.Stat_t) // not on Linux
	}
	return st
}
