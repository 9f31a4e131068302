package call

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/store"
)

// tail is the end of a call, however it came: from its outcome to its record.
type tail struct {
	*steps
	c *Call
}

// refuse ends a call before the tool was run.
func (t tail) refuse(err error) { t.finish(t.notRun(t.c.id, t.c.why(err))) }

// finish does steps 9 and 11: it puts together what the call's record says, and
// stores it. Only then may the agent forget the call. What nobody waits for comes
// after the end is known.
func (t tail) finish(o *outcome) {
	if o.left {
		return
	}
	if t.c.seen != nil {
		t.c.seen()
	}
	row := report{t.site, t.c}.compose(o)
	if t.daemon.Hooks.Any() && t.c.of == nil && (hooks{t.site, t.c}).result(o, &row) != nil {
		return
	}
	row.Settle() // after the hooks: whatever they have made of it, it says how it ended
	t.c.clock.ended = time.Now()
	row.Call.Time.Ended = new(t.c.clock.ended.UTC().Truncate(time.Millisecond))
	t.c.stream.Flush(t.c.out.Offset())
	t.judge.Answered(&row.Call)
	t.spending.printed.Add(t.c.out.Offset())
	if t.c.opened.close() || t.apart(t.c.profile) {
		t.judge.Anew() // what it opened goes by the rules for another call now, or the session's own
	}
	t.slots.uncount(&t.c.seat) // who hears of the end, and be it as an event, may make the next call
	t.telling.RLock()
	t.c.mu.Lock()
	t.c.row = row
	t.c.mu.Unlock()
	ran := t.announce(&row)
	if o.held {
		// What the agent has ended it keeps until the end is in the store, so
		// nobody has to wait for that: a daemon that dies in between leaves it to
		// the next one.
		close(t.c.done)
		runtime.Gosched() // those who waited for it go first
	}
	t.audit(&row)
	stored := t.store(&row)
	if stored {
		t.live.drop(t.c)
	} else {
		// No room on the disk. The result stands in memory, and with the agent:
		// whichever lasts until there is room.
		release := t.c.held.hold()
		t.daemon.Work.Go("record of "+t.id, func() { defer release(); t.storeLater(&row, o.held) })
	}
	t.telling.RUnlock()
	if !o.held {
		close(t.c.done)
		runtime.Gosched()
	}
	if stored && o.held {
		t.c.durable.Forget(t.c.id) // after a loss, whoever connects again does it
	}
	t.logEnd(&row.Call, ran)
	if o.recount && t.slots.open.Load() == 0 {
		t.place.Killed()
	}
}

// apart says whether the session, or a call that runs, goes by another profile than this one.
func (t tail) apart(profile string) bool {
	other := t.place.Row().Profile != profile
	t.live.each(func(c *Call) bool {
		other = other || c.at == t.site && c.profile != profile
		return !other
	})
	return other
}

// store writes the end of the call.
func (t tail) store(row *store.Call) bool {
	typ := client.EventCallCompleted
	if row.Status == client.CallError {
		typ = client.EventCallError
	}
	e := &store.Entry{}
	short := t.daemon.Quota.Stored(row)
	n := int64(0)
	if row.InputNotKept == nil && short.InputNotKept != nil {
		n = t.c.dropInput(e, row, short)
	}
	n += e.FinishCall(short)
	end := callSummary{Status: row.Status, Title: row.Title, IsError: row.IsError, Reason: row.Metadata["reason"]}
	if row.Error != nil {
		end.Code = row.Error.Code
	}
	e.AddEvent(t.c.event(typ, end))
	if row.Status == client.CallCompleted && !row.IsError {
		for _, path := range t.c.writes {
			e.AddEvent(t.c.bare(client.EventFileEdited, fileEdited{path, row.Tool}))
		}
	}
	err := t.c.write(e)
	if err != nil {
		t.log.Error("store the end of a call", "call", t.c.id, "error", err)
		return false
	}
	t.tenant.Kept.Add(n)
	return true
}

// dropInput has the record of a call lose its input, as in short. It returns by how much
// the record grows.
func (c *Call) dropInput(e *store.Entry, row, short *store.Call) int64 {
	if c.unsaved == nil {
		return e.DropInput(short) - int64(len(row.Input))
	}
	_, before := c.first(row)
	first, after := c.first(short)
	c.unsaved = first
	return after - before
}

// storeLater tries until the disk has room or the daemon leaves.
func (t tail) storeLater(row *store.Call, held bool) {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		select {
		case <-t.daemon.Context.Done():
			return
		case <-time.After(wait):
		}
		if !t.store(row) {
			continue
		}
		t.live.drop(t.c)
		if held {
			t.c.durable.Forget(t.c.id)
		}
		return
	}
}

// callSummary is what events say about the end of a call.
type callSummary struct {
	Status  client.CallStatus `json:"status"`
	Title   string            `json:"title,omitempty"`
	IsError bool              `json:"is_error,omitempty"`
	Code    client.Code       `json:"code,omitempty"`
	Reason  any               `json:"reason,omitempty"`
}

// fileEdited is what events say about a file that a call has changed.
type fileEdited struct {
	Path string `json:"path"`
	Tool string `json:"tool"`
}

// announce tells who listens and who counts. It returns how long the call ran.
func (t tail) announce(row *store.Call) time.Duration {
	v := row.Call
	t.c.tellStatus()
	if kept := t.c.out.Kept(); kept > 0 {
		t.daemon.observe(func(o Observer) { o.OutputSpilled(kept) })
	}
	queued, ran := t.c.clock.durations(&v.Time)
	t.daemon.observe(func(o Observer) { o.CallFinished(&v, queued, ran) })
	return ran
}

func (t tail) logEnd(v *client.Call, ran time.Duration) {
	attrs := []slog.Attr{
		slog.String("call", t.c.id),
		slog.String("tool", v.Tool),
		slog.String("status", string(v.Status)),
		slog.Bool("is_error", v.IsError),
		slog.Float64("duration_ms", float64(ran.Microseconds())/1000),
	}
	for _, name := range []string{"reason", "exit_code"} {
		if v, ok := v.Metadata[name]; ok {
			attrs = append(attrs, slog.Any(name, v))
		}
	}
	if v.Error != nil {
		attrs = append(attrs, slog.String("code", string(v.Error.Code)))
	}
	t.log.LogAttrs(context.Background(), slog.LevelInfo, "call finished", attrs...)
}

// audit puts the end of the call on the audit log. The call has run, so that an
// error refuses nothing any more; the log counts it and writes later what it can.
// That comes before the end is stored: a daemon that is killed in between leaves
// two records and not none.
func (t tail) audit(row *store.Call) {
	if t.daemon.Auditor == nil {
		return
	}
	by := t.c.by
	by.Tenant = t.tenant.Name // all that is known of who made a call of an earlier daemon
	if err := t.daemon.Auditor.Finished(by, &row.Call, t.c.out.Sum()); err != nil {
		t.log.Error("put the end of a call on the audit log", "call", t.c.id, "error", err)
	}
}
