package session

import (
	"context"
	"errors"
	"strconv"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/store"
)

// uids is the part of a session that is its range of host uids. The range is leased by the
// same write that stores the session (see reserve), and claimed again for all sessions
// at once (see recover).
type uids struct {
	nothing
	roster *roster
}

// close gives the range back when nothing of the session can be alive, and puts it under
// quarantine otherwise.
func (u uids) close(s *Session, _ ending, left error) ([]string, error) {
	u.release(s.id, s.Row().UIDBase, left)
	return nil, nil
}

func (u uids) release(session string, base uint32, left error) {
	if why, err := u.roster.leases.Release(base, left); why != "" || err != nil {
		u.roster.log.Error("uid range is quarantined", "session", session, "base", base, "reason", why, "error", err)
	}
}

// leftovers are ranges under quarantine.
func (u uids) leftovers(ctx context.Context) (all []leftover, err error) {
	held, _, err := u.roster.store.Leases(ctx)
	for _, l := range held {
		if l.Quarantined {
			all = append(all, leftover{
				Garbage: client.Garbage{Kind: "uid range", Name: strconv.FormatUint(uint64(l.Base), 10), Session: l.Session, Error: l.Reason},
				remove:  func() error { return u.free(ctx, l) },
			})
		}
	}
	return all, err
}

// free ends a quarantine, or says why it was put.
func (u uids) free(ctx context.Context, l store.Lease) error {
	who, err := u.roster.leases.InUse(l.Base)
	if err == nil && who == "" && !u.sandboxLeft(ctx, l.Session) && u.roster.leases.Free(l.Base) == nil {
		return nil
	}
	return errors.New(l.Reason)
}

// mine says which sessions have a sandbox of this daemon, or may have one, as their driver does not
// answer.
func (u uids) mine(ctx context.Context) func(session string) bool {
	have, silent := make(map[string]bool), make(map[string]bool)
	for name, d := range u.roster.cfg.Drivers {
		recs, err := d.List(ctx, u.roster.cfg.Owner)
		if err != nil {
			silent[name] = true
		}
		for _, rec := range recs {
			have[rec.SessionID] = true
		}
	}
	return func(session string) bool {
		if have[session] || len(silent) == 0 {
			return have[session]
		}
		row, err := u.roster.store.Session(ctx, session)
		return err == nil && silent[row.Driver]
	}
}

// sandboxLeft reports whether anything of a session's sandbox is left.
func (u uids) sandboxLeft(ctx context.Context, session string) bool {
	for _, d := range u.roster.cfg.Drivers {
		recs, err := d.List(ctx, u.roster.cfg.Owner)
		if err != nil {
			return true
		}
		for _, rec := range recs {
			if rec.SessionID == session {
				return true
			}
		}
	}
	return false
}

// dropDeadLeases gives back ranges that no live session has and that were not
// quarantined: their daemon died between the two writes of a session's end.
func (u uids) dropDeadLeases(held []store.Lease) {
	for _, l := range held {
		if u.roster.liveByID(l.Session) == nil && !l.Quarantined {
			u.release(l.Session, l.Base, nil)
		}
	}
}
