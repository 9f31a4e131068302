package oci

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/mount"
)

// The root of a session with an image is an overlay of three layers:
//
//	the session's own    what it writes, in a file system of limits.disk
//	the skeleton         our directories, where anything is mounted, and our files
//	the image            as it was unpacked, shared by all, shown by an id map
//
// The skeleton lies over the image and all that it has are directories and small
// files of ours: where the image has a link in the place of one (/dev, /proc,
// /etc, the worktree's target or anything above them) the link is not seen, so
// that no image decides where something is mounted. Its own directories hide
// those of the image whole, but for /etc, which is the image's with our files in
// it.

// imageRoot makes the skeleton for an image.
func imageRoot(root *sandbox.Root) (*rootfs, error) {
	r := &rootfs{image: true, etc: maps.Clone(inside.Etc)}
	for name, fields := range map[string]int{"/etc/passwd": 7, "/etc/group": 4} {
		own, err := readImageFile(root.Dir, name)
		if err != nil {
			return nil, err
		}
		r.etc[name] += foreignNames(own, fields, r.etc[name])
	}
	return r, nil
}

// maxNames bounds the files of names that are taken over from an image.
const maxNames = 256 << 10

// readImageFile reads a small regular file of an image. What is anything else, or
// lies behind a link, is as if it was not there.
func readImageFile(root *os.File, name string) (string, error) {
	fd, err := beneath.Open(int(root.Fd()), strings.TrimPrefix(name, "/"), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENXIO):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("image: %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxNames))
	if err != nil {
		return "", fmt.Errorf("image: %s: %w", name, err)
	}
	return string(data), nil
}

// foreignNames are the lines of a passwd or group file that do not say who our own
// users and groups are, by name or by number.
func foreignNames(text string, fields int, own string) string {
	names, ids := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(own) {
		f := strings.Split(line, ":")
		names[f[0]], ids[strings.TrimSpace(f[2])] = true, true
	}
	var kept strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		f := strings.Split(line, ":")
		if len(f) != fields || f[0] == "" || len(line) > 4096 || strings.ContainsFunc(line, isControl) {
			continue
		}
		id, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil || names[f[0]] || ids[strconv.FormatUint(id, 10)] || id >= sandbox.RangeSize {
			continue
		}
		kept.WriteString(line + "\n")
	}
	return kept.String()
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// makeImageRoot mounts the root of a session with an image in its bundle. The
// skeleton is one that all sessions with that image have in common, or one of its
// own where it has mount points of its own.
func (c *creation) makeImageRoot(targets []string, common bool) error {
	r, err := imageRoot(c.spec.Root)
	if err != nil {
		return err
	}
	r.places = c.d.places()
	if common {
		err = r.share(c.d.rootsDir())
	} else {
		r.shared = c.bundle.File("skeleton")
		err = errors.Join(os.Mkdir(r.shared, 0o755), r.skeleton(r.shared, targets))
	}
	if err != nil {
		return fmt.Errorf("skeleton: %w", err)
	}
	return c.mountImage(r.shared)
}

// mountImage mounts the root of a session with an image where the runtime looks
// for it.
func (c *creation) mountImage(skeleton string) error {
	ids, err := c.rootIDs()
	if err != nil {
		return err
	}
	defer ids.Close()
	image, err := mount.Detach(c.spec.Root.Dir, unix.MOUNT_ATTR_RDONLY, ids)
	if errors.Is(err, mount.ErrNoIDMap) {
		return fmt.Errorf("image: the file system of %s has no id-mapped mounts: put the state directory on ext4, xfs or btrfs: %w",
			c.d.cfg.StateDir, sandbox.ErrUnsupported)
	} else if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer image.Close()
	ours, err := detachSkeleton(skeleton, ids)
	if err != nil {
		return fmt.Errorf("skeleton: %w", err)
	}
	defer ours.Close()
	disk, err := c.layer()
	if err != nil {
		return fmt.Errorf("limits.disk: %w", err)
	}
	defer disk.Close()
	base := int(c.spec.UIDBase)
	if err := mount.PrepareUpper(disk, base, base, 0o755); err != nil {
		return fmt.Errorf("writable layer: %w", err)
	}
	root, err := mount.Overlay(c.d.rootsDir(), []*os.File{ours, image}, disk, mount.RenamesCopy)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := os.Mkdir(c.bundle.rootfs(), 0o755); err != nil {
		return err
	}
	return unix.MoveMount(int(root.Fd()), "", unix.AT_FDCWD, c.bundle.rootfs(), unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// rootIDs is the id map of the image: that of the session, so that its users have
// the numbers inside that they have in the image.
func (c *creation) rootIDs() (*os.File, error) {
	w := &c.spec.Worktree
	var ranges [2][]mount.Range
	for _, m := range c.idMappings(sandbox.ToolUID, w.UID) {
		ranges[0] = append(ranges[0], mount.Range{FS: m.ContainerID, Host: m.HostID, Size: m.Size})
	}
	for _, m := range c.idMappings(sandbox.ToolGID, w.GID) {
		ranges[1] = append(ranges[1], mount.Range{FS: m.ContainerID, Host: m.HostID, Size: m.Size})
	}
	ids, err := mount.UserNamespace(ranges[0], ranges[1])
	if err != nil {
		return nil, fmt.Errorf("user namespace for the image's ids: %w", err)
	}
	return ids, nil
}

// detachSkeleton shows the skeleton as root's of the sandbox. Where its file
// system has no id-mapped mounts, which tmpfs has since Linux 6.3, it is nobody's.
func detachSkeleton(dir string, ids *os.File) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := mount.Detach(f, unix.MOUNT_ATTR_RDONLY, ids)
	if errors.Is(err, mount.ErrNoIDMap) {
		return mount.Detach(f, unix.MOUNT_ATTR_RDONLY, nil)
	}
	return m, err
}

// layer makes the one that the session writes to.
func (c *creation) layer() (*os.File, error) {
	want := c.spec.Limits.Disk
	f, err := loopdisk.Unnamed(c.d.disksDir(), c.spec.SessionID+"-root", want)
	if !errors.Is(err, loopdisk.ErrNone) {
		c.rec.Disk = err == nil
		return f, err
	}
	c.sizes.Shm = min(c.sizes.Shm, c.sizes.Tmp/4) // it leaves nothing for others
	size := min(want, c.sizes.Tmp)
	if m := c.spec.Limits.Memory; m > 0 {
		size = min(size, m/4*3-c.sizes.Sum())
	}
	if size < loopdisk.Least {
		return nil, fmt.Errorf("%w, and limits.memory has no room for it: raise that, or lower limits.tmp: %w", err, sandbox.ErrUnsupported)
	}
	c.sizes.Disk = size
	c.note(fmt.Sprintf("this host cannot make file systems in files (%v): what is written to the root file system is held in memory, at most %v of it", err, size))
	return memoryDisk(size)
}

// memoryDisk is a disk where there is only memory to put it in.
func memoryDisk(size client.Size) (*os.File, error) {
	return mount.New("tmpfs", "tmpfs", map[string]string{
		"size": strconv.FormatInt(int64(size), 10), "nr_inodes": strconv.FormatInt(inside.Inodes(size), 10), "mode": "0700",
	}, unix.MOUNT_ATTR_NODEV)
}

// diskBytes is what the session has written to its own file system. It is asked of
// the overlay, which answers for its writable layer; that of gVisor's sandbox is
// not to be seen from here.
func (s *Sandbox) diskBytes() int64 {
	if !s.rec.Disk || s.rec.Dials {
		return 0
	}
	root, err := s.Proc.Open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return 0 // it has ended
	}
	defer root.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil || st.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// entries are the places of the root filesystem that no mount may hide. Those of
// an image may be: the skeleton has the mount points.
func (d *Driver) entries(s *sandbox.Shape) []entry {
	if s.Root != nil {
		return nil
	}
	return d.root.entries
}

// checkRoot refuses what cannot be done with an image, and without one.
func (d *Driver) checkRoot(s *sandbox.Shape) error {
	switch {
	case s.Image != "":
		return fmt.Errorf("image %q: this driver is given images as directories: %w", s.Image, sandbox.ErrUnsupported)
	case s.Root != nil && s.Limits.Disk == 0:
		return fmt.Errorf("limits.disk: what a session with an image writes has a bound: %w", sandbox.ErrUnsupported)
	case s.Limits.Disk > 0 && s.Limits.Disk < loopdisk.Least:
		return fmt.Errorf("limits.disk %v: it is at least %v: %w", s.Limits.Disk, loopdisk.Least, sandbox.ErrUnsupported)
	case s.Root == nil && s.Limits.Disk > 0 && d.Disks() != nil:
		return fmt.Errorf("limits.disk: %w: %w", d.Disks(), sandbox.ErrUnsupported)
	}
	return nil
}
