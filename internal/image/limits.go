package image

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Limits bound what one image may cost.
type Limits struct {
	// Bytes bounds what is written for one image, over all layers, and what
	// is received for it.
	Bytes int64
	// FileBytes bounds one file.
	FileBytes int64
	// Entries bounds the entries of all layers. It also bounds the
	// memory that unpacking takes, to some hundred bytes for each.
	Entries int64
	// Layers bounds how many there are: Docker can make 127.
	Layers int
	// ConfigBytes bounds the configuration and each manifest.
	ConfigBytes int64
	// Ratio bounds how many bytes one compressed byte may become, on top of
	// ratioGrace for each layer. Archives of programs have about 3.
	Ratio int64
}

var defaultLimits = Limits{Bytes: 16 << 30, FileBytes: 8 << 30, Entries: 500_000, Layers: 127, ConfigBytes: 4 << 20, Ratio: 100}

const (
	// ratioGrace is what a layer may unpack to however small it is: an empty
	// database or log of zeros compresses a thousandfold.
	ratioGrace = 256 << 20
	// maxNameBytes bounds the names of an image's entries in total, some of
	// which are kept in memory until their layer is unpacked.
	maxNameBytes = 128 << 20
	// checkEvery is how many bytes are written between two looks at the disk.
	// It is also how far the free space may be missed.
	checkEvery = 16 << 20
	// checkEntries is the same for entries, which cost inodes.
	checkEntries = 1024
	// minInodes must stay free, where the file system counts them.
	minInodes = 10_000
)

// budget counts what one image has cost so far. It is for one goroutine.
type budget struct {
	limits Limits
	disk   disk

	bytes   int64 // written
	entries int64
	names   int64 // bytes of all names
	checked int64 // bytes at the last look at the disk
}

// room reports whether n more bytes may be written.
func (b *budget) room(n int64) error {
	if n > b.limits.Bytes-b.bytes {
		return fmt.Errorf("%w: its files hold more than %d bytes", ErrTooLarge, b.limits.Bytes)
	}
	return nil
}

// write counts n bytes that are about to be written, for which there is room.
func (b *budget) write(n int64) error {
	b.bytes += n
	if b.bytes-b.checked < checkEvery {
		return nil
	}
	b.checked = b.bytes
	return b.disk.check()
}

// entry counts an entry, with the bytes of its names.
func (b *budget) entry(names int) error {
	if b.entries++; b.entries > b.limits.Entries {
		return fmt.Errorf("%w: it has more than %d entries", ErrTooLarge, b.limits.Entries)
	}
	if err := b.name(names); err != nil {
		return err
	}
	if b.entries%checkEntries == 0 {
		return b.disk.check()
	}
	return nil
}

// name counts the bytes of a name that is kept, which may be longer than what an
// entry says: over links a short one leads deep.
func (b *budget) name(n int) error {
	if b.names += int64(n); b.names > maxNameBytes {
		return fmt.Errorf("%w: the names of its entries have more than %d bytes", ErrTooLarge, maxNameBytes)
	}
	return nil
}

// disk is a file system of which something must stay free.
type disk struct {
	fd   int
	room func(bytes int64) error // see Store.AskRoom; nil for none
}

func (d disk) check() error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(d.fd, &fs); err != nil {
		return fmt.Errorf("look at the disk: %w", err)
	}
	if fs.Files > 0 && fs.Ffree < minInodes {
		return fmt.Errorf("%w: %d inodes are free and %d must stay so; remove images or other files", ErrNoSpace, fs.Ffree, minInodes)
	}
	if d.room == nil {
		return nil
	}
	return d.room(checkEvery)
}

// guardedWriter writes as long as the disk has room and max is not reached. It is
// for bytes that are stored as they come.
type guardedWriter struct {
	w       io.Writer
	disk    disk
	max     int64
	what    string // for the message
	written int64
	checked int64
}

func (g *guardedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > g.max-g.written {
		return 0, fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, g.what, g.max)
	}
	n, err := g.w.Write(p)
	g.written += int64(n)
	if err == nil && g.written-g.checked >= checkEvery {
		g.checked = g.written
		err = g.disk.check()
	}
	return n, err
}
