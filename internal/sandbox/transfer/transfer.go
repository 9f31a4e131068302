// Package transfer moves worktrees to where they cannot be mounted, and brings back
// what has changed there.
//
// Pack writes a directory as a tar archive and remembers, in a Manifest, what went
// in. Nothing is opened but beneath the pinned directory and without following a link; all
// of it is done with the ids that the session has there, so that nothing is read that they
// could not. Apply gives an archive of how it looks afterwards to package worktree/apply.
// What has changed on this side meanwhile is left as it is, and reported.
package transfer

import (
	"errors"

	"github.com/toold/toold/internal/beneath"
)

// Limits bound a transfer.
type Limits struct {
	Bytes int64 // of all files together
	Files int   // files, directories and links
}

// names bounds the names of all entries together, in bytes: they are held in memory,
// and each may have four kilobytes.
func (l Limits) names() int { return 256 * l.Files }

// DefaultLimits are those of a large repository.
var DefaultLimits = Limits{Bytes: 4 << 30, Files: 200_000}

// ErrTooLarge: there is more than the limits allow.
var ErrTooLarge = errors.New("too large to be copied")

const (
	maxPath  = beneath.MaxPath
	maxDepth = 256
)
