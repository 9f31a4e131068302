// Package image turns container images into root filesystems for sandboxes, and
// keeps them: pulled from a registry, or imported from an archive: of an OCI
// layout, what `docker save` writes, or a tar of a root filesystem.
//
// An image becomes one flat directory, its layers applied one over the other,
// with the owners that the image says (0 to 65535). Sessions see it read-only,
// shared, through an id-mapped mount. So nothing in here is an inode that the
// host executes: every file is a copy.
//
// Every byte of an image is hostile. Downloads are checked against their digest
// before they are opened, what is unpacked is bounded in bytes, entries and by
// the disk that must stay free, and no entry can name, link or write a file
// outside its directory: the kernel resolves every path with that directory as
// the root (openat2, RESOLVE_IN_ROOT), and the last component is never
// followed. An image with an entry that has no business in one is refused, by
// the entry's name, and nothing of it is left.
//
// On the disk, below one directory of mode 0700:
//
//	lock                             held by the process that has the store open
//	names.json                       which name means which image
//	images/sha256-<hex>/rootfs       the directory
//	images/sha256-<hex>/config.json  what List tells
//	tmp/                             what is being made or removed; emptied by Open
//
// An image is in images/ completely or not at all: it is made in tmp/, written
// to the disk, and renamed.
package image

import (
	"errors"
	"slices"
	"time"
)

// Errors that callers tell apart. They come wrapped in what was asked for, which
// part of the image it was, and what to do.
var (
	// ErrNotFound: no image has this name or digest, here or in the registry.
	ErrNotFound = errors.New("no such image")
	// ErrInUse: a session holds the image.
	ErrInUse = errors.New("image is in use")
	// ErrInvalid: the name is malformed, or the bytes are not an image.
	ErrInvalid = errors.New("not a valid image")
	// ErrRefused: the image holds something that no image may hold.
	ErrRefused = errors.New("image refused")
	// ErrTooLarge: the image exceeds one of the Limits.
	ErrTooLarge = errors.New("image is too large")
	// ErrCorrupt: the bytes do not have the digest that they should have.
	ErrCorrupt = errors.New("digest does not match")
	// ErrPlatform: the image is for another operating system or processor.
	ErrPlatform = errors.New("image is for another platform")
	// ErrNoSpace: the disk would be left with less than it must keep free.
	ErrNoSpace = errors.New("too little space is left on the disk")
	// ErrRegistry: the registry cannot be reached, does not answer, or refuses.
	ErrRegistry = errors.New("registry")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("image store is in use by another process")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("image store is closed")
)

// Image is one image that the store has.
type Image struct {
	// Digest of the image's configuration, "sha256:…": what Docker calls the
	// image's id. It is the image's identity here, for it stands for the content
	// of all layers, however they were compressed and wherever they came from.
	Digest string `json:"digest"`
	// Manifest is the digest of the manifest that the image was made from first,
	// the one that registries use; empty where the source had none.
	Manifest string `json:"manifest,omitempty"`
	// Names by which the image can be asked for, sorted; may be empty.
	Names []string `json:"-"`
	// Size is the sum of the sizes of all regular files, in bytes, each inode
	// counted once.
	Size int64 `json:"size"`
	// Files counts the inodes.
	Files int64 `json:"files"`
	// Created is when the image says that it was built; zero if it does not.
	Created time.Time `json:"created,omitzero"`
	// Added is when the store got it.
	Added time.Time `json:"added"`
	// Architecture as Go spells it.
	Architecture string `json:"architecture"`
	// Env, WorkingDir, User, Entrypoint and Cmd are the image's own words, for
	// whoever starts something in it; nothing here acts on them.
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

func (i *Image) clone() Image {
	c := *i
	c.Names = slices.Clone(i.Names)
	c.Env = slices.Clone(i.Env)
	c.Entrypoint = slices.Clone(i.Entrypoint)
	c.Cmd = slices.Clone(i.Cmd)
	return c
}

// Stage says what is being done for an image.
type Stage string

// The stages, in their order. Download and unpack alternate, layer by layer.
const (
	StageResolve  Stage = "resolve"  // finding out what the name means
	StageReceive  Stage = "receive"  // storing what is imported until it is complete
	StageDownload Stage = "download" // a layer's bytes, compressed
	StageUnpack   Stage = "unpack"   // a layer's bytes, uncompressed
	StageCommit   Stage = "commit"   // writing all of it to the disk
)

// Progress is how far a pull or an import has come.
type Progress struct {
	Stage  Stage
	Layer  int // counted from 1; 0 outside of layers
	Layers int // 0 while unknown
	Bytes  int64
	Total  int64 // of Bytes, in this layer; 0 if unknown
}

// ProgressFunc is told about progress, at each stage of each layer and every few
// MiB, by the goroutine that does the work: it must return soon. nil is allowed.
type ProgressFunc func(Progress)

func (f ProgressFunc) tell(p Progress) {
	if f != nil {
		f(p)
	}
}
