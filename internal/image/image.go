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

	"github.com/toold/toold/client"
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

// Image is one image that the store has, as the store keeps it. Its Digest is that of the
// image's configuration, what Docker calls the image's id: it stands for the content of all
// layers, however they were compressed and wherever they came from. Its Size counts each
// inode once. Its Names are in names.json.
type Image struct {
	client.Image
	// Manifest is the digest of the manifest that the image was made from first,
	// the one that registries use; empty where the source had none.
	Manifest string `json:"manifest,omitempty"`
	// Env is the image's own words, for whoever starts something in it.
	Env []string `json:"env,omitempty"`
}

// The stages of client.ImageProgress, in their order. Download and unpack alternate, layer
// by layer.
const (
	stageResolve  = "resolve"  // finding out what the name means
	stageReceive  = "receive"  // storing what is imported until it is complete
	stageDownload = "download" // a layer's bytes, compressed
	stageUnpack   = "unpack"   // a layer's bytes, uncompressed
	stageCommit   = "commit"   // writing all of it to the disk
)

// progressFunc is told how far a pull or an import has come, at each stage of each layer and
// every few MiB, by the goroutine that does the work: it must return soon.
type progressFunc = func(client.ImageProgress)
