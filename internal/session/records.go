package session

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
)

// records keeps account of the records of calls, which take room on the disk.
type records struct {
	*roster
	outputs outputs
}

var _ call.Quota = (*records)(nil)

// MostCalls implements call.Quota.
func (rs *records) MostCalls(tenant string) int { return rs.settings.Load().Tenants[tenant].MaxCalls }

// TakeRoom implements call.Quota: it counts n bytes of a new call's record against its tenant, and makes
// room for them where there is none: the oldest records of calls that have ended
// are shortened, then removed. Those of calls that have not ended stay, so they can
// fill what the tenant has.
func (rs *records) TakeRoom(ctx context.Context, t *call.Tenant, n int64) error {
	if n > store.Small {
		if err := rs.roomForInput(ctx); err != nil {
			return err
		}
	}
	most := rs.settings.Load().maxRecords(t.Name)
	if kept := t.Kept.Add(n); most <= 0 || kept <= most {
		return nil
	}
	rs.AwaitTold() // a call that somebody has been told the end of makes room, too
	if err := rs.makeRoom(ctx, rs.tenant(t.Name), most); err != nil {
		rs.log.Error("make room for the records of calls", "tenant", t.Name, "error", err)
	}
	if t.Kept.Load() <= most {
		return nil
	}
	t.Kept.Add(-n)
	return fault.Quota.Errorf("the records of tenant %s may take %s, and the inputs of its calls that have not ended fill that", t.Name, client.Size(most)).
		Next("wait for calls to end, abort some (toolctl abort SESSION, or POST /v1/calls/ID/abort) or end a session, then try again: records of calls that have ended make room by themselves")
}

// makeRoom frees an eighth of what a tenant may have, so that not every call has to.
func (rs *records) makeRoom(ctx context.Context, t *tenant, most int64) error {
	t.making.Lock()
	defer t.making.Unlock()
	enough := most - most/8
	if over := t.Kept.Load() - enough; t.Kept.Load() > most {
		freed, err := rs.store.ShortenRecords(ctx, t.Name, false, over)
		if t.Kept.Add(-freed); err != nil {
			return err
		}
	}
	if t.Kept.Load() <= most {
		return nil
	}
	for t.Kept.Load() > enough {
		gone, err := rs.store.RemoveRecords(t.Name)
		rs.recordsGone(gone)
		for _, r := range gone {
			if r.File {
				rs.outputs.removeOutput(r.Output)
			}
		}
		if err != nil {
			return err
		}
		if len(gone) == 0 {
			break
		}
	}
	return rs.store.RemoveOrphans(ctx, t.Name)
}

// recordsGone counts records that were removed.
func (rs *records) recordsGone(gone []store.Removed) {
	for _, r := range gone {
		rs.tenant(r.Tenant).Kept.Add(-r.Bytes)
	}
}

// countRecords counts what an earlier daemon has left.
func (rs *records) countRecords(ctx context.Context) error {
	all, err := rs.store.RecordBytes(ctx)
	for name, n := range all {
		rs.tenant(name).Kept.Store(n)
	}
	return err
}

// collectRecords is about records of sessions that are over, tenant by tenant.
func (rs *records) collectRecords(ctx context.Context, remove bool) ([]client.Garbage, error) {
	all, err := rs.store.Shortenable(ctx)
	if err != nil {
		return nil, err
	}
	var list []client.Garbage
	for name, n := range all {
		x := client.Garbage{Kind: client.GarbageRecords, Name: name, Bytes: n}
		if remove {
			t := rs.tenant(name)
			x.Bytes, err = rs.store.ShortenRecords(ctx, name, true, 1<<62)
			t.Kept.Add(-x.Bytes)
			if x.Removed = err == nil; err != nil {
				x.Error = err.Error()
			}
		}
		list = append(list, x)
	}
	return list, nil
}

// roomForInput refuses a large input where the disk is nearly full.
func (rs *records) roomForInput(ctx context.Context) error {
	free, enough, err := rs.room(ctx)
	if err != nil || enough {
		return err
	}
	return fault.Overloaded.Errorf("an input of more than %s is refused now: only %s are free on the disk of the state directory, and %s must stay",
		client.Size(store.Small), client.Size(free), client.Size(rs.settings.Load().MinFree)).
		Next(`make calls with smaller inputs, end sessions, or have an administrator free space on the host ("toolctl gc --records" frees that of old calls)`)
}

// KeepRoom implements call.Quota.
func (rs *records) KeepRoom() error { return rs.keepRoom() }

// Stored implements call.Quota: it is what is stored of a call that has ended. Of one that never ran, a large
// input is not worth its room; and where the disk is nearly full, no large record is.
func (rs *records) Stored(row *store.Call) *store.Call {
	short := *row
	if row.Status == client.CallError && row.Time.Started == nil {
		short.DropInput()
	}
	if len(row.Input)+len(row.Call.Output) > store.Small || len(row.Attachments) > 0 {
		if _, enough, err := rs.room(rs.ctx); err == nil && !enough {
			short.Shorten()
		}
	}
	return &short
}
