package root

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is what a path names.
type Kind string

// The kinds.
const (
	KindFile    Kind = "file"
	KindDir     Kind = "dir"
	KindSymlink Kind = "symlink"
	KindFIFO    Kind = "fifo"
	KindSocket  Kind = "socket"
	KindDevice  Kind = "device"
	KindUnknown Kind = "unknown"
)

// Info describes a file. Only Path is set when Exists is false.
type Info struct {
	Path    string // canonical: absolute below the root, no links, no dots
	Exists  bool
	Kind    Kind
	Size    int64
	Mode    fs.FileMode // permission bits, setuid, setgid, sticky
	ModTime time.Time
	Version Version
}

// Version changes whenever the content or the inode behind a path does: it is
// the identity of a file at one moment. The zero Version is that of no file.
type Version struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // ns
	CTime int64  `json:"ctime"` // ns
}

// fileKey tells inodes apart.
type fileKey struct{ dev, ino uint64 }

func keyOf(st *unix.Stat_t) fileKey { return fileKey{uint64(st.Dev), st.Ino} }

func versionOf(st *unix.Stat_t) Version {
	return Version{
		Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size,
		MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano(),
	}
}

func infoOf(path string, st *unix.Stat_t) Info {
	return Info{
		Path: path, Exists: true, Kind: kindOf(st.Mode), Size: st.Size,
		Mode: modeOf(st.Mode), ModTime: time.Unix(0, st.Mtim.Nano()),
		Version: versionOf(st),
	}
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return KindFile
	case unix.S_IFDIR:
		return KindDir
	case unix.S_IFLNK:
		return KindSymlink
	case unix.S_IFIFO:
		return KindFIFO
	case unix.S_IFSOCK:
		return KindSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		return KindDevice
	}
	return KindUnknown
}

func modeOf(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	if mode&unix.S_ISUID != 0 {
		m |= fs.ModeSetuid
	}
	if mode&unix.S_ISGID != 0 {
		m |= fs.ModeSetgid
	}
	if mode&unix.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}
