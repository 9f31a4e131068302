package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
)

// GC implements server.Daemon: it names, and unless r.DryRun removes, what belongs to this
// daemon and to no session of it, and with r.Records those of sessions that are over.
func (m *Manager) GC(ctx context.Context, p auth.Principal, r client.GCRequest) ([]client.Garbage, error) {
	if err := p.Administers(); err != nil {
		return nil, err
	}
	if err := m.Accepting(); err != nil {
		return nil, err
	}
	all, err := m.collect(ctx, r.DryRun)
	if r.Records {
		records, rerr := m.collectRecords(ctx, !r.DryRun)
		all, err = append(all, records...), errors.Join(err, rerr)
	}
	if err != nil {
		return nil, m.internal("collect garbage", err)
	}
	return all, nil
}

// collect goes on after an error: what one driver cannot say is no reason to keep
// what others have left.
func (m *Manager) collect(ctx context.Context, dryRun bool) (all []client.Garbage, err error) {
	for _, f := range []func(context.Context, bool) ([]client.Garbage, error){m.collectSandboxes, m.collectOutputs, m.collectRanges} {
		found, ferr := f(ctx, dryRun)
		all, err = append(all, found...), errors.Join(err, ferr)
	}
	return all, err
}

// collectSandboxes is about sandboxes whose session is not live, or whose
// incarnation is another.
func (m *Manager) collectSandboxes(ctx context.Context, dryRun bool) ([]client.Garbage, error) {
	var all []client.Garbage
	var errs error
	for _, d := range m.cfg.Drivers {
		recs, err := d.List(ctx, m.cfg.Owner)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("list sandboxes of driver %s: %w", d.Name(), err))
			continue
		}
		for _, rec := range recs {
			if m.isLive(rec.SessionID, rec.Incarnation) {
				continue
			}
			x := client.Garbage{Kind: "container", Name: rec.SessionID, Session: rec.SessionID}
			if !dryRun {
				err := d.Destroy(ctx, rec)
				x.Removed = err == nil
				if err != nil {
					x.Error = err.Error()
				}
			}
			all = append(all, x)
		}
	}
	return all, errs
}

func (m *Manager) isLive(session, incarnation string) bool {
	m.mu.RLock()
	s := m.sessions[session]
	m.mu.RUnlock()
	return s != nil && s.snapshotRow().Incarnation == incarnation
}

// collectOutputs is about output directories of sessions that are gone, or that
// did not ask to keep theirs.
func (m *Manager) collectOutputs(ctx context.Context, dryRun bool) ([]client.Garbage, error) {
	entries, err := os.ReadDir(m.cfg.OutputDir)
	if err != nil {
		return nil, err
	}
	var all []client.Garbage
	for _, e := range entries {
		if m.wantsOutputs(ctx, e.Name()) {
			continue
		}
		x := client.Garbage{Kind: "output", Name: e.Name(), Session: e.Name(), Bytes: sizeOf(filepath.Join(m.cfg.OutputDir, e.Name()))}
		if !dryRun {
			err := os.RemoveAll(filepath.Join(m.cfg.OutputDir, e.Name()))
			x.Removed = err == nil
			if err != nil {
				x.Error = plain.Cause(err)
			}
		}
		all = append(all, x)
	}
	return all, nil
}

// wantsOutputs errs on the side of keeping.
func (m *Manager) wantsOutputs(ctx context.Context, session string) bool {
	m.mu.RLock()
	_, live := m.sessions[session]
	m.mu.RUnlock()
	if live {
		return true
	}
	if !store.ValidID("ses_", session) {
		return false
	}
	row, err := m.store.Session(ctx, session)
	if errors.Is(err, store.ErrNotFound) {
		return false
	}
	return err != nil || row.Keep
}

// collectRanges is about uid ranges under quarantine.
func (m *Manager) collectRanges(ctx context.Context, dryRun bool) ([]client.Garbage, error) {
	held, _, err := m.store.Leases(ctx)
	if err != nil {
		return nil, err
	}
	var all []client.Garbage
	for _, l := range held {
		if !l.Quarantined {
			continue
		}
		x := client.Garbage{Kind: "uid range", Name: strconv.FormatUint(uint64(l.Base), 10), Session: l.Session, Error: l.Reason}
		who, err := m.leases.InUse(l.Base)
		if !dryRun && err == nil && who == "" && !m.sandboxLeft(ctx, l.Session) {
			if m.leases.Free(l.Base) == nil {
				x.Removed, x.Error = true, ""
			}
		}
		all = append(all, x)
	}
	return all, nil
}

// sandboxLeft reports whether anything of a session's sandbox is left.
func (m *Manager) sandboxLeft(ctx context.Context, session string) bool {
	for _, d := range m.cfg.Drivers {
		recs, err := d.List(ctx, m.cfg.Owner)
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

// sweepEvery is how often old records and outputs are removed.
const sweepEvery = 10 * time.Minute

// sweeper removes what is older than its retention.
func (m *Manager) sweeper() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		m.sweep(m.ctx)
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return
		}
	}
}

func (m *Manager) sweep(ctx context.Context) {
	set := m.settings.Load()
	if keep := set.Truncate.Keep; keep > 0 {
		if err := m.sweepOutputs(ctx, keep); err != nil && ctx.Err() == nil {
			m.log.Error("sweep outputs", "error", err)
		}
	}
	if set.Retention > 0 {
		if _, err := m.store.Sweep(ctx, set.Retention, m.recordsGone); err != nil && ctx.Err() == nil {
			m.log.Error("sweep the store", "error", err)
		}
		if _, err := m.store.SweepApprovals(ctx, set.Retention); err != nil && ctx.Err() == nil {
			m.log.Error("sweep approvals", "error", err)
		}
		// Outputs whose sessions went with it.
		if _, err := m.collectOutputs(ctx, false); err != nil && ctx.Err() == nil {
			m.log.Error("sweep outputs", "error", err)
		}
	}
}

// sweepPage is how many outputs are removed at a time.
const sweepPage = 200

// sweepOutputs removes the output files of calls that ended long ago.
func (m *Manager) sweepOutputs(ctx context.Context, keep time.Duration) error {
	for {
		old, err := m.store.OldOutputs(ctx, keep, sweepPage)
		if err != nil {
			return err
		}
		for _, o := range old {
			m.removeOutput(o)
		}
		err = m.store.Write(func(tx *store.Tx) error {
			for _, o := range old {
				if err := tx.DropOutput(o.Call); err != nil {
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

func (m *Manager) removeOutput(o store.OutputRef) {
	file := filepath.Join(m.cfg.OutputDir, o.Session, o.Call)
	size, err := output.Remove(file)
	if err != nil {
		return // it is not counted twice
	}
	m.mu.RLock()
	s := m.sessions[o.Session]
	m.mu.RUnlock()
	if s != nil {
		s.spilled.Add(-size)
		return
	}
	_ = os.Remove(filepath.Dir(file)) // the last file takes the directory along
}
