// Package loopdisk makes file systems in files, so that what is written to one is bounded in
// bytes and in inodes, and a full one is nobody else's matter: an ext4 in a sparse file, on
// a loop device that the kernel takes away with the last mount.
package loopdisk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/sandbox/state"
)

// Least is the smallest disk that is of any use.
const Least client.Size = 16 << 20

// maxTemplates is how many made file systems are kept, one for each size that
// sessions ask for: copying one takes a tenth of the time of making one.
const maxTemplates = 4

const (
	templatePrefix = "disk-"
	newTemplate    = state.NewPrefix + "template" // one that is being made
)

// ErrNone: this host has nothing to make a file system in a file with.
var ErrNone = errors.New("no file systems in files")

// Unnamed makes a file system for size bytes and mounts it nowhere yet. Its file has no
// name: the kernel gives its blocks back when the last mount is gone, whatever became of the
// daemon in between, and a restart of the host does too. dir is private to such disks.
func Unnamed(dir string, size client.Size) (*os.File, error) {
	file, err := newFile(dir, size)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	loop, err := attach(file)
	if err != nil {
		return nil, err
	}
	defer loop.Close() // the mount keeps the device
	return mount.New("ext4", loop.Name(), map[string]string{
		"errors": "remount-ro", // and never what the host's default is: that may be panic
		// The tables are holes of the file and read as zeros.
		"noinit_itable": "",
		// What a session removes is no longer used on the host's disk either.
		"discard": "",
	})
}

// attach makes a loop device of file. It is let go of by the kernel when
// the device, once opened here and then mounted, has no user any more.
func attach(file *os.File) (*os.File, error) {
	control, err := openDevice("loop-control")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	defer control.Close()
	config := unix.LoopConfig{
		Fd: uint32(file.Fd()), Size: block,
		// Direct: or the same page would be cached twice, once for nobody.
		Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO},
	}
	for range 100 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("%w: LOOP_CTL_GET_FREE: %w", ErrNone, err)
		}
		loop, err := openDevice("loop" + strconv.Itoa(n))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", ErrNone, err) // a /dev that the kernel does not fill
		} else if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) { // else somebody was quicker
			return nil, &fs.PathError{Op: "LOOP_CONFIGURE", Path: loop.Name(), Err: err}
		}
	}
	return nil, errors.New("no free loop device after 100 tries")
}

// block is the block size of devices and file systems.
const block = 4096

// newFile is a nameless file with an empty file system of size bytes.
func newFile(dir string, size client.Size) (*os.File, error) {
	made, err := template(dir, size)
	if err != nil {
		return nil, err
	}
	defer made.Close()
	file, err := unnamed(dir)
	if err != nil {
		return nil, err
	}
	if err := copySparse(file, made); err != nil {
		file.Close()
		return nil, fmt.Errorf("copy %s: %w", made.Name(), err)
	}
	return file, nil
}

// unnamed makes a file in dir that has no name, and so is gone when it is closed.
func unnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "unnamed")), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	f, err := os.CreateTemp(dir, state.NewPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// template opens the made file system of this size, and makes it first where
// there is none.
func template(dir string, size client.Size) (*os.File, error) {
	name := filepath.Join(dir, templatePrefix+strconv.FormatInt(int64(size), 10))
	if f, err := os.Open(name); !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	mkfs, err := findMkfs()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := state.Lock(dir, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if f, err := os.Open(name); !errors.Is(err, fs.ErrNotExist) {
		return f, err // somebody was quicker
	}
	// Each has a name of its own: a daemon that was killed may have left an mke2fs that
	// still writes to its one.
	if err := sweepTemplates(dir); err != nil {
		return nil, err
	}
	tmp := filepath.Join(dir, newTemplate+"-"+rand.Text())
	defer os.Remove(tmp) // of no effect after the rename
	if err := makeExt4(mkfs, tmp, size); err != nil {
		return nil, err
	}
	if err := errors.Join(pruneTemplates(dir), os.Rename(tmp, name)); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// sweepTemplates removes those that were never finished.
func sweepTemplates(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, newTemplate+"*"))
	for _, f := range old {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}

// pruneTemplates makes room for one more.
func pruneTemplates(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type made struct {
		path string
		when int64
	}
	var all []made
	for _, e := range entries {
		fi, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), templatePrefix) {
			all = append(all, made{filepath.Join(dir, e.Name()), fi.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(all, func(a, b made) int { return int(min(1, max(-1, a.when-b.when))) })
	for len(all) >= maxTemplates {
		if err := os.Remove(all[0].path); err != nil {
			return err
		}
		all = all[1:]
	}
	return nil
}

// findMkfs finds the program that makes ext4, also where PATH has no sbin.
func findMkfs() (string, error) {
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"} {
		p := filepath.Join(dir, "mke2fs")
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: mke2fs is not installed", ErrNone)
}

// makeExt4 makes a sparse file with an ext4 that has no journal, since nothing
// in it outlives its only mount, and nothing kept for root. What the host's
// mke2fs.conf says has no part in it.
func makeExt4(mkfs, path string, size client.Size) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(int64(size)), f.Close()); err != nil {
		return err
	}
	cmd := exec.Command(mkfs, "-q", "-F", "-t", "ext4", "-b", strconv.Itoa(block), "-I", "256", "-m", "0",
		"-N", strconv.FormatInt(inside.Inodes(size), 10),
		"-O", "none,extent,filetype,dir_index,sparse_super,large_file,huge_file,dir_nlink,extra_isize,ext_attr,flex_bg,64bit,metadata_csum",
		"-E", "lazy_itable_init=1,nodiscard", path)
	cmd.Env = []string{"MKE2FS_CONFIG=/dev/null", "LC_ALL=C"}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// copySparse copies what is not a hole.
func copySparse(to, from *os.File) error {
	fi, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(fi.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole to the end
		} else if err != nil {
			return err
		}
		if at, err = unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, at-start)); err != nil {
			return err
		}
	}
}
