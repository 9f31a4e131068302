// Package treediff compares two directories, the base and the tree that was made of it,
// and gives what differs as a stream: a list, an archive, or a patch. It can also put the
// base back.
//
// It runs where the tree's own programs have run, with their user's ids, so nothing that
// it meets is trusted: no link is followed, no mount is entered, only regular files are
// opened, and memory stays bounded for any size of files, directories and depth. What
// changes during a walk is compared as it is met.
//
// A path differs if its kind does, its permissions (of all but links), the content of a
// file, or where a link leads. An index of git whose entries are the same is: commands that only
// look write it again. A file whose size, mode, modification and change time are
// equal on both sides counts as unchanged and is not read: no program can set a change
// time. With Options.Touched all files are read that may differ. What is mounted in one of the
// directories is left out with all that is in it, and so are owners, times and extended attributes: they are no difference. A path of more than MaxPath bytes is
// unreadable.
//
// # List
//
// One Line as JSON for each change, in the order of the paths' bytes, and the Totals on a
// last line.
//
// # Archive
//
// A tar stream in PAX format with an entry for each change: Name is the path, any bytes.
// Typeflag, Mode, Linkname and content are what is there now; a deleted path is a regular
// file of size 0, and a FIFO stands for FIFOs, sockets and devices alike. PAX records:
// TOOLD.status is a Status; TOOLD.old the Kind of the base's entry, left out where there
// is none; TOOLD.oldsha256 the hex SHA-256 of the base's content, for a link of where it
// leads, left out where it has none or cannot be read. A directory comes before what is in
// it, and if it goes away after that. TOOLD.left is a Left of what has no content here, and
// is not looked into. A large file that has holes is given without them: TOOLD.size is its
// size, and TOOLD.data where its bytes lie, as "offset,bytes" with blanks between. What is there
// has its time of modification; files and new directories have TOOLD.attributes, which are
// Attributes as JSON.
//
// # Patch
//
// What `git apply` takes, in git's own format, of which these things cannot be said and
// are left out: directories as such, so an empty one; permissions but a file's owner's
// right to execute; FIFOs, sockets and devices; and paths that git refuses, such as those
// in .git. A file with a NUL byte or of more than maxText bytes or maxLines lines is
// given as binary; the content that it had, which only `git apply -R` needs, is left out
// above maxReverse bytes. git reads patches of up to 1 GiB.
package treediff

import (
	"context"
	"io"

	"github.com/toold/toold/internal/tool/run/ignore"
	"github.com/toold/toold/internal/tool/run/root"
)

// MaxPath bounds the paths that are looked at, in bytes.
const MaxPath = 4095

// Format is how the differences are given.
type Format string

// The formats.
const (
	List    Format = "changes"
	Archive Format = "archive"
	Patch   Format = "patch"
)

// Status says what has become of a path.
type Status string

// The ways in which a path differs.
const (
	Added    Status = "added"
	Modified Status = "modified"
	Deleted  Status = "deleted"
	Type     Status = "type" // it is of another Kind now
)

// Kind is what a path is, in lists and archives. The empty one is that of no file.
type Kind string

// The kinds.
const (
	File  Kind = "file"
	Dir   Kind = "dir"
	Link  Kind = "link"
	Other Kind = "other" // a FIFO, socket or device; it has no content
)

// Left says why an archive has no content of a path.
type Left string

// The reasons.
const (
	LeftExcluded   Left = "excluded" // it is in Options.Exclude
	LeftSocket     Left = "socket"
	LeftFIFO       Left = "fifo"
	LeftDevice     Left = "device"
	LeftUnreadable Left = "unreadable" // to the tool user, on one of the sides
	LeftTooLarge   Left = "too_large"  // more than MaxContent
)

// MaxContent bounds a file of which an archive has the content, in bytes, holes among them.
const MaxContent = 8 << 30

// Options say what is compared and how it is told.
type Options struct {
	// Root does the work, on its threads.
	Root *root.Root
	// Base and Tree are the two directories. They stay the caller's.
	Base, Tree *root.Dir
	// Paths are relative, without "." and "..", and stand for all that is below them; none
	// is everything. Directories on the way to one come with it where they are new.
	Paths  []string
	Format Format
	// Touched is what may differ; nil is everything.
	Touched *Touched
	// Exclude are paths of which an archive has no content, with all that is in them. A list
	// and a patch leave them out and count them, but for what was in a directory that
	// something else has taken the place of: that comes with it.
	Exclude ignore.List
	// NoIgnored has a list and a patch leave out, and count, what the .gitignore files of each
	// side where a path is ignore, but those files themselves.
	NoIgnored bool
	// After and Limit have a list begin behind a path, and end after so many lines;
	// 0 = no limit. Its totals are of all.
	After string
	Limit int
}

// Totals are of all that differs.
type Totals struct {
	Files   int `json:"files"` // paths
	Added   int `json:"added"` // lines; an archive counts none
	Removed int `json:"removed"`
	// Unreadable counts the paths whose content could not be compared.
	Unreadable int `json:"unreadable,omitempty"`
	// Unnamed counts those of them that are in no list and archive, for a path of more than
	// MaxPath bytes or a directory that cannot be listed.
	Unnamed int `json:"unnamed,omitempty"`
	// LeftOut counts the changes that a patch cannot say, but for directories that come or
	// go.
	LeftOut int `json:"left_out,omitempty"`
	// Excluded and Ignored count the changes that Options.Exclude and NoIgnored leave out of a
	// list or a patch. They are in no other count.
	Excluded int `json:"excluded,omitempty"`
	Ignored  int `json:"ignored,omitempty"`
	// Converted counts the changed files of a patch that git stores otherwise than they lie in the
	// base, by its .gitattributes: where a filter is set up, git apply refuses a patch with one.
	Converted int `json:"converted,omitempty"`
	// More says that a list ended at its limit.
	More bool `json:"more,omitempty"`
}

// Write compares and writes what differs to out. Where it fails the stream has no end: an
// archive lacks its last blocks and a list its totals.
func Write(ctx context.Context, o Options, out io.Writer) (Totals, error) {
	w := &walk{ctx: ctx, o: o, budget: maxNodes, omits: o.Format != Archive}
	var err error
	switch o.Format {
	case Archive:
		err = w.run(newArchive(w, out))
	case Patch:
		err = w.run(newPatch(w, out))
	default:
		err = w.run(newList(w, out))
	}
	return w.totals, err
}
