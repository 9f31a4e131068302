package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/store"
)

// outputs is the part of a session that is the directory of its outputs.
type outputs struct {
	nothing
	roster *roster
}

// open makes the directory, which the sandbox sees read-only.
func (outputs) open(_ context.Context, s *Session, _ *plan) error {
	err := os.Mkdir(s.outDir, 0o755)
	if err == nil {
		err = os.Chmod(s.outDir, 0o755) // whatever the umask
	}
	if err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	return nil
}

func (outputs) adopt(_ context.Context, s *Session) error {
	_ = beneath.RemoveMatching(filepath.Join(s.outDir, uploadPrefix+"*"), "") // of a daemon that was killed
	s.calls.Spilled.Store(sizeOf(s.outDir))
	return nil
}

// close removes the files, unless they are to be kept. Those that stay are no reason to
// keep anything else.
func (outputs) close(s *Session, e ending, _ error) ([]string, error) {
	if e.keep {
		return nil, nil
	}
	if err := os.RemoveAll(s.outDir); err != nil {
		s.log.Error("remove outputs", "error", err)
	}
	return nil, nil
}

// leftovers are directories of sessions that are gone, or that did not ask to keep theirs.
func (o outputs) leftovers(ctx context.Context) (all []leftover, err error) {
	dir := func(id string) string { return filepath.Join(o.roster.cfg.OutputDir, id) }
	found, err := leftIn(o.roster.liveByID, o.roster.cfg.OutputDir, "output", func(id string) error { return os.RemoveAll(dir(id)) })
	for _, x := range found {
		if !o.wantsOutputs(ctx, x.Name) {
			x.Bytes = sizeOf(dir(x.Name))
			all = append(all, x)
		}
	}
	return all, err
}

// wantsOutputs errs on the side of keeping.
func (o outputs) wantsOutputs(ctx context.Context, session string) bool {
	if !store.ValidID("ses_", session) {
		return false
	}
	row, err := o.roster.store.Session(ctx, session)
	if errors.Is(err, store.ErrNotFound) {
		return false
	}
	return err != nil || row.Keep
}

// sizeOf is the number of bytes of the files in a directory.
func sizeOf(dir string) int64 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	var total int64
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			total += fi.Size()
		}
	}
	return total
}

// sweepPage is how many outputs are removed at a time.
const sweepPage = 200

// sweepOutputs removes the output files of calls that ended before a time.
func (o outputs) sweepOutputs(ctx context.Context, before time.Time) error {
	for {
		old, err := o.roster.store.OldOutputs(ctx, before, sweepPage)
		if err != nil {
			return err
		}
		for _, ref := range old {
			o.removeOutput(ref)
		}
		err = o.roster.store.Write(func(tx *store.Tx) error {
			for _, ref := range old {
				if err := tx.DropOutput(ref.Call); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(old) < sweepPage || ctx.Err() != nil {
			return err
		}
	}
}

func (o outputs) removeOutput(ref store.OutputRef) {
	file := filepath.Join(o.roster.cfg.OutputDir, ref.Session, ref.Call)
	size, err := output.Remove(file)
	if err != nil {
		return // it is not counted twice
	}
	if s := o.roster.liveByID(ref.Session); s != nil {
		s.calls.Spilled.Add(-size)
		return
	}
	_ = os.Remove(filepath.Dir(file)) // the last file takes the directory along
}
