// Package loopdisk makes file systems in files, so that what is written to one is bounded in
// bytes and in inodes, and a full one is nobody else's matter: an ext4 in a sparse file, on
// a loop device that the kernel takes away with the last mount.
package loopdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/mount"
)

// Least is the smallest disk that is of any use.
const Least = inside.LeastDisk

// ErrNone: this host has nothing to make a file system in a file with.
var ErrNone = errors.New("no file systems in files")

// Unnamed makes a file system for size bytes and mounts it nowhere yet. Its file loses its
// name, which is for those who look at the loop devices, at once: the kernel gives its blocks
// back when the last mount is gone, whatever became of the daemon in between, and a restart of
// the host does too. dir is private to such disks.
func Unnamed(dir, name string, size client.Size) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := unnamed(dir, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := fill(file, dir, ephemeral, size); err != nil {
		return nil, err
	}
	loop, err := attach(file)
	if err != nil {
		return nil, err
	}
	defer loop.Close() // the mount keeps the device
	return mountLoop(loop, nil)
}

// Create makes a file with an empty file system of size bytes, for Mount, which is whole
// after a power cut. dir, where the file is too, is private to such disks.
func Create(dir, name string, size client.Size) error {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(fill(file, dir, lasting, size), file.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}

// Mount mounts the file system of a file that Create made, nowhere yet. One that is mounted
// already, be it by a process that has died, gets one more mount. No two may mount the same
// file at a time: a file on two devices would be lost.
func Mount(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	loop, err := attached(file)
	if loop == nil && err == nil {
		loop, err = attach(file)
	}
	if err != nil {
		return nil, err
	}
	defer loop.Close()
	f, err := mountLoop(loop, lastingOptions())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// lastingOptions are those of a disk with a journal. When the host has no room for what a program
// wrote, the kernel drops it and goes on. Here the disk becomes read-only instead, which shows.
// Before 6.15 the journal learns only of what it writes itself, which dioread_lock makes all of it
// (seen on 6.1 and 6.12).
func lastingOptions() map[string]string {
	return map[string]string{"data_err": "abort", "dioread_lock": ""}
}

// mountLoop mounts the file system on a device nowhere yet. more are options beside those that
// all have; the first mount of a device settles them.
func mountLoop(loop *os.File, more map[string]string) (*os.File, error) {
	options := map[string]string{
		"errors": "remount-ro", // and never what the host's default is: that may be panic
		// The tables are holes of the file and read as zeros.
		"noinit_itable": "",
		// What a session removes is no longer used on the host's disk either.
		"discard": "",
	}
	maps.Copy(options, more)
	f, err := mount.New("ext4", loop.Name(), options, unix.MOUNT_ATTR_NODEV)
	if errors.Is(err, unix.EBUSY) { // it is mounted, and has failed since: what is there can be read
		options["ro"] = ""
		f, err = mount.New("ext4", loop.Name(), options, unix.MOUNT_ATTR_NODEV)
	}
	return f, err
}

// attached opens the loop device that a file is attached to; nil where there is none.
func attached(file *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, err
	}
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		path, err := os.ReadFile(n)
		if err != nil || filepath.Base(strings.TrimSuffix(string(path), "\n")) != filepath.Base(file.Name()) {
			continue // another's, or it has just been let go of
		}
		loop, err := mount.OpenDevice(filepath.Base(filepath.Dir(filepath.Dir(n))))
		if errors.Is(err, unix.ENXIO) {
			continue // it is being let go of, and all is written
		}
		if err != nil {
			return nil, err
		}
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		if err == nil && info.Inode == st.Ino && info.Device == st.Dev {
			return loop, nil
		}
		if err := errors.Join(notGone(err), loop.Close()); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// notGone is nil for a device that nothing is attached to any more.
func notGone(err error) error {
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}

// attach makes a loop device of file. It is let go of by the kernel when
// the device, once opened here and then mounted, has no user any more.
func attach(file *os.File) (*os.File, error) {
	control, err := mount.OpenDevice("loop-control")
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
		loop, err := mount.OpenDevice("loop" + strconv.Itoa(n))
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

// ownPrefix begins the names of files that have lost them, and of those whose daemon was
// killed before that.
const ownPrefix = "own-"

// unnamed makes a file in dir that has a name no longer, and so is gone when it is closed.
func unnamed(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, ownPrefix+name)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if rmErr := os.Remove(path); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			return nil, errors.Join(rmErr, f.Close())
		}
		if err == nil {
			return f, nil
		}
	}
}
