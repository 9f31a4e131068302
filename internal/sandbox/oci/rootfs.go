package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/state"
)

// defaultHostPaths are shown by Rootfs "host" where they exist. None of them is
// below /home, /root, /var or /run, and none holds a secret.
var defaultHostPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt",
	"/etc/alternatives", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted",
	"/etc/ca-certificates", "/etc/ca-certificates.conf",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/mime.types", "/etc/protocols", "/etc/services",
}

// Programs reports whether host paths show no more than those that a session sees without any.
func Programs(hostPaths []string) bool {
	return !slices.ContainsFunc(hostPaths, func(p string) bool {
		return !slices.ContainsFunc(defaultHostPaths, func(dir string) bool { return inside.Within(p, dir) })
	})
}

// forbiddenHostPaths must not be shown, nor anything below them.
var forbiddenHostPaths = []string{"/home", "/root", "/var", "/run", "/proc", "/sys", "/dev", "/tmp", "/boot"}

// entry is one thing of the root filesystem as the skeleton shows it.
type entry struct {
	path   string // inside
	source string // host path to bind read-only; "" for a link or file
	dir    bool   // of a bind: it is a directory
	link   string // target of a symbolic link
	data   []byte // content of a small file, copied instead of bound
}

// rootfs says what the root of a sandbox shows. It is read once.
type rootfs struct {
	entries []entry
	etc     map[string]string // the files that are the sandbox's own, path to content
	image   bool              // it lies over an image, see imageroot.go
	shared  string            // the common skeleton, see share
	places  []entry           // where a session sees the kernel's files, see cgroup.Views
}

// privateDir is the agent's own: no tool may pass it.
const privateDir = "/run/toold/private"

// maxCopied bounds the files that are copied into a skeleton instead of bound: a
// mount costs more than writing such a file.
const maxCopied = 256 << 10

func newRootfs(kind string, hostPaths []string) (*rootfs, error) {
	if kind != "host" && kind != "" {
		return dirRootfs(kind)
	}
	optional := len(hostPaths) == 0
	if optional {
		hostPaths = defaultHostPaths
	}
	r := &rootfs{etc: inside.Etc}
	for _, p := range hostPaths {
		if err := checkHostPath(p); err != nil {
			return nil, err
		}
		if err := r.add(p, p); errors.Is(err, fs.ErrNotExist) && optional {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("host path: %w", err)
		}
	}
	if optional {
		if err := r.addEtc("/"); err != nil {
			return nil, fmt.Errorf("files of /etc: %w", err)
		}
	}
	return r, nil
}

func checkHostPath(p string) error {
	if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" || p == "/etc" {
		return fmt.Errorf("host path %q: must be an absolute, clean path below /, and not all of /etc", p)
	}
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		real = p // what does not exist is dealt with by the caller
	}
	for _, f := range forbiddenHostPaths {
		if inside.Within(p, f) || inside.Within(real, f) {
			return fmt.Errorf("host path %s: nothing below %s may be shown to sandboxes", p, f)
		}
	}
	return nil
}

// dirRootfs shows each top-level entry of a directory. Binding the entries and
// not the directory keeps /dev, /proc and the like ours, whatever it contains.
func dirRootfs(dir string) (*rootfs, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("rootfs %q: must be \"host\" or an absolute directory", dir)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("rootfs: %w", err)
	}
	r := &rootfs{etc: inside.Etc}
	for _, e := range list {
		p := "/" + e.Name()
		if slices.Contains(inside.Reserved, p) || p == "/home" || p == "/etc" {
			continue
		}
		if err := r.add(p, filepath.Join(dir, e.Name())); err != nil {
			return nil, fmt.Errorf("rootfs: %w", err)
		}
	}
	// The parts of /etc, one by one: passwd, hosts and the like are ours.
	etc, err := os.ReadDir(filepath.Join(dir, "etc"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rootfs: %w", err)
	}
	for _, e := range etc {
		p := "/etc/" + e.Name()
		if _, own := inside.Etc[p]; own {
			continue
		}
		if err := r.add(p, filepath.Join(dir, p)); err != nil {
			return nil, fmt.Errorf("rootfs: %w", err)
		}
	}
	return r, nil
}

func (r *rootfs) add(path, source string) error {
	fi, err := os.Lstat(source)
	if err != nil {
		return err
	}
	e := entry{path: path}
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		e.link, err = os.Readlink(source)
	case fi.IsDir():
		e.source, e.dir = source, true
	case !fi.Mode().IsRegular() || fi.Mode()&0o004 == 0:
		return nil // devices, sockets and private files are left out
	case fi.Size() <= maxCopied:
		e.data, err = os.ReadFile(source)
	default:
		e.source = source
	}
	if err != nil {
		return err
	}
	r.entries = append(r.entries, e)
	return nil
}

// skeleton builds a root directory: what is mounted where is in the bundle's
// config, here are only the places for it.
func (r *rootfs) skeleton(root string, targets []string) error {
	s := skeletonDir(root)
	for _, d := range append([]string{"/", "/etc", sandbox.OutputDir, sandbox.ControlDir, sandbox.RipgrepDir, sandbox.TreeDir, sandbox.JournalDir, privateDir}, inside.Reserved...) {
		s.dir(d)
	}
	if !r.image { // which has its own, or none
		s.dir("/var")
		s.link("/var/tmp", "../tmp")
		s.link("/var/run", "../run")
	}
	s.link("/etc/mtab", "../proc/self/mounts")
	s.file(sandbox.AgentPath, nil)
	s.file(sandbox.MarkerFile, []byte(inside.Marker))
	for p, data := range r.etc {
		s.file(p, []byte(data))
	}
	for _, e := range r.entries {
		switch {
		case e.link != "":
			s.link(e.path, e.link)
		case e.dir:
			s.dir(e.path)
		case r.shared != "" && e.source == "":
			s.same(e.path, r.shared)
		default:
			s.file(e.path, e.data)
		}
	}
	for _, t := range targets {
		s.dir(t)
	}
	for _, e := range r.places {
		if e.dir {
			s.dir(e.path)
		} else {
			s.file(e.path, nil)
		}
	}
	if r.image {
		for _, d := range inside.Reserved {
			s.opaque(d)
		}
	}
	return s.err
}

// share builds the skeleton that all sandboxes with nothing but a worktree at
// the usual place have in common; dir is above it. Making one takes milliseconds
// on a disk, and no sandbox can write to it. Its name is the hash of what is in
// it, so that one that is in use is never changed.
func (r *rootfs) share(dir string) error {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %t %q", inside.Reserved, []string{sandbox.ControlDir, sandbox.TreeDir, sandbox.JournalDir, privateDir}, r.etc, r.image, sandbox.Workspace)
	for _, e := range slices.Concat(r.entries, r.places) {
		fmt.Fprintf(hash, " %q %t %t %q %x", e.path, e.dir, e.source != "", e.link, sha256.Sum256(e.data))
	}
	shared := filepath.Join(dir, hex.EncodeToString(hash.Sum(nil))[:32])
	if _, err := os.Lstat(shared); err == nil {
		r.shared = shared
		return nil
	}
	err := state.MakeDir(shared, func(tmp string) error {
		return errors.Join(r.skeleton(tmp, []string{sandbox.Workspace}), os.Chmod(tmp, 0o755))
	})
	if err != nil && !errors.Is(err, state.ErrTaken) {
		return err
	}
	r.shared = shared
	return nil
}
