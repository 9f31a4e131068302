package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree/apply"
)

// Report is what Apply has done.
type Report struct {
	Written, Removed int
	// Conflicts were changed on both sides, and are as they were on this one.
	// Refused are entries that cannot be copied: devices, bad names and the like.
	// Both hold the first of the paths; the counts are of all.
	Conflicts, Refused         []string
	ConflictCount, RefuseCount int
}

const (
	maxListed = 100
	maxShown  = 255
)

func (r *Report) refuse(p string) {
	if r.RefuseCount++; len(r.Refused) < maxListed {
		r.Refused = append(r.Refused, p[:min(len(p), maxShown)]) // archives know names of a mebibyte
	}
}

// Apply makes dir look like the archive, a file, as far as that differs from the manifest
// and dir is still as the manifest says. The archive's names begin with prefix. What is
// here already as the archive has it is no conflict, so that Apply may be called again
// where it was interrupted. Journal is a directory for what it does, on the file system of
// the archive; the same one when it is called again. The report is nil with an error.
func Apply(ctx context.Context, dir *os.File, owner thread.User, was *Manifest, archive, prefix, journal string, limits Limits) (*Report, error) {
	r := new(Report)
	job := apply.Job{
		Dir: journal, Source: dir, Owner: owner,
		Request: client.ApplyRequest{IncludeSensitive: true},
		Limits:  apply.Limits{Bytes: 2 * limits.Bytes, Entries: 2 * limits.Files, Names: 2 * limits.names()},
		Copy:    &apply.Copy{Archive: archive, Top: prefix, Was: was.entries, Refused: r.refuse},
	}
	applied, err := job.Run(ctx, nil)
	if conflict, ok := errors.AsType[*apply.ConflictError](err); ok && conflict.Applied != nil {
		for _, c := range conflict.Conflicts {
			r.Conflicts = append(r.Conflicts, c.Path)
		}
		applied, err, r.ConflictCount = conflict.Applied, nil, conflict.Count
	}
	if why, ok := errors.AsType[*fault.Error](err); ok {
		err = why.Err // people read it in a note: it is no answer
	}
	if err != nil {
		return nil, fmt.Errorf("apply changes to %s: %w", dir.Name(), err)
	}
	r.Written, r.Removed = applied.WrittenCount, applied.RemovedCount
	return r, nil
}
