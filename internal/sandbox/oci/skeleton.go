package oci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// skeletonWriter makes files below a fresh directory; after an error it does
// nothing more. All that it makes belongs to the host's root and can be read by
// everyone: in the sandbox it is nobody's.
type skeletonWriter struct {
	root string
	err  error
}

func skeletonDir(root string) *skeletonWriter { return &skeletonWriter{root: root} }

func (s *skeletonWriter) dir(path string) {
	if s.err != nil {
		return
	}
	full := filepath.Join(s.root, path)
	if _, err := os.Lstat(full); err == nil {
		return
	}
	if path != "/" {
		s.dir(filepath.Dir(path))
	}
	if s.err == nil {
		s.err = os.Mkdir(full, 0o755)
	}
	if s.err == nil { // whatever the umask
		s.err = os.Chmod(full, 0o755)
	}
}

func (s *skeletonWriter) file(path string, data []byte) {
	s.dir(filepath.Dir(path))
	if s.err != nil {
		return
	}
	full := filepath.Join(s.root, path)
	f, err := os.OpenFile(full, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		s.err = err
		return
	}
	_, err = f.Write(data)
	s.err = errors.Join(err, f.Chmod(0o644), f.Close())
}

// same makes a file that another skeleton has too: a second name of it, since a
// copy would take time and memory with each session.
func (s *skeletonWriter) same(path, other string) {
	s.dir(filepath.Dir(path))
	if s.err == nil {
		s.err = os.Link(filepath.Join(other, path), filepath.Join(s.root, path))
	}
}

func (s *skeletonWriter) link(path, target string) {
	s.dir(filepath.Dir(path))
	if s.err != nil {
		return
	}
	if err := os.Symlink(target, filepath.Join(s.root, path)); !errors.Is(err, fs.ErrExist) {
		s.err = err
	}
}

// opaque hides what the layers below an overlay's layer have in a directory.
func (s *skeletonWriter) opaque(path string) {
	if s.err != nil {
		return
	}
	full := filepath.Join(s.root, path)
	if err := unix.Setxattr(full, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		s.err = &fs.PathError{Op: "setxattr", Path: full, Err: err}
	}
}
