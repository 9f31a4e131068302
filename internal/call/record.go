package call

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/environ"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// record does step 2.
func (st *steps) record(c *Call, inv *tool.Invocation) (err error) {
	claimed := false
	defer func() {
		if err == nil {
			return
		}
		if claimed {
			st.spending.claimed.Add(-1)
		}
		st.slots.uncount(&c.seat) // before its caller hears why
	}()
	if c.of == nil && c.batch == nil { // else that one counts
		if err := st.slots.enter(&c.seat); err != nil {
			return err
		}
	}
	if c.of == nil && !inv.Tool.Hidden {
		// Once it is open: a session whose calls are used up ends when none is.
		if err := st.spending.claim(); err != nil {
			return err
		}
		claimed = true
	}
	c.clock.came = time.Now()
	now := c.clock.came.UTC().Truncate(time.Millisecond)
	c.row = store.Call{
		Call: client.Call{
			ID: c.id, Key: c.req.Key, SessionID: st.id, Tool: inv.Tool.Name, Input: inv.JSON,
			MessageID: c.req.MessageID, Agent: c.req.Agent, Model: c.req.Model, Extra: c.req.Extra, Typed: c.req.Typed,
			Status: client.CallPending, Metadata: map[string]any{}, Time: client.CallTime{Queued: now},
		},
		Tenant: st.tenant.Name,
	}
	if c.req.Key != "" {
		c.row.Hash = hashOf(inv, c.req.Env)
	}
	if c.malformed != nil {
		c.row.DropInput() // it will never run
	}
	if !c.hidden && !c.probe {
		c.row.ToolSet = st.judge.Rules(c.profile).Set().Revision
	}
	if c.batch != nil {
		c.row.Parent = c.batch.id
	}
	c.req.Input = nil // the normalised form is what counts now
	c.isOf(inv.Tool)
	st.live.add(c)
	if c.of == nil && !st.place.Takes() {
		// Whoever ends the session may have looked for calls before this one.
		st.live.drop(c)
		return st.notReady()
	}
	if err := c.save(); err != nil {
		st.live.drop(c)
		if !errors.Is(err, store.ErrExists) {
			return err
		}
		if err := st.findTwin(c, c.row.Hash); err != nil {
			return err
		}
		return errTwin
	}
	st.slots.total.Add(1)
	close(c.known)
	c.tellStatus()
	return nil
}

// save stores the call as pending, at once where the call has a key, which may
// turn out to be taken, or where somebody may hear of its id before it runs.
// Otherwise its next record, or flush, takes this one with it.
func (c *Call) save() error {
	e, n := c.first(&c.row)
	if err := c.at.daemon.Quota.TakeRoom(c.ctx, c.at.tenant, n); err != nil {
		return err
	}
	var err error
	if c.req.Key != "" {
		err = c.at.daemon.Store.Write(func(tx *store.Tx) error { return tx.Put(e) })
	} else if c.unsaved = e; c.req.WaitMillis != nil || c.stream.Heard() {
		err = c.flush()
	}
	if err != nil {
		c.at.tenant.Kept.Add(-n)
	}
	return err
}

// first is the first record of the call, and how much of it is the call's.
func (c *Call) first(row *store.Call) (*store.Entry, int64) {
	e := &store.Entry{}
	n := e.InsertCall(row)
	e.AddEvent(c.event(client.EventCallPending, nil))
	return e, n
}

// flush stores what save has put off, for a call that will wait for long.
func (c *Call) flush() error {
	if c.unsaved == nil {
		return nil
	}
	return c.write(nil)
}

// write stores what happened to the call, and before it what save has put off.
func (c *Call) write(e *store.Entry) error {
	err := c.at.daemon.Store.Append(c.unsaved, e)
	if err == nil {
		c.unsaved = nil
	}
	return err
}

// errTwin says that a call with this key exists; it never leaves the package.
var errTwin = errors.New("another call has the key")

// findTwin finds the call that has the key already.
func (st *steps) findTwin(c *Call, hash []byte) error {
	row, err := st.daemon.Store.CallByKey(context.Background(), st.id, c.req.Key)
	if err != nil {
		return st.daemon.Internal("find a call by its key", err)
	}
	if string(row.Hash) != string(hash) {
		return fault.Conflict.Errorf("key %q belongs to call %s, which was made with another tool, input or env", c.req.Key, row.ID).
			Next("use another key for another call")
	}
	if other, ok := st.live.find(row.ID); ok {
		c.twin = &twin{live: other}
		return nil
	}
	if !row.Finished() { // it ended in between
		if row, err = st.daemon.Store.Call(context.Background(), row.ID); err != nil {
			return st.daemon.Internal("find a call by its key", err)
		}
	}
	row.Metadata = asObject(row.Metadata)
	c.twin = &twin{row: row}
	return nil
}

// hashOf is over what a call asks for: tool, normalised input and environment.
func hashOf(inv *tool.Invocation, env map[string]string) []byte {
	h := sha256.New()
	for _, part := range append([]string{inv.Tool.Name, string(inv.JSON)}, environ.List(env)...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// resumable refuses to take a stream up again whose call does not exist: to make
// it would be a second run for who has read output of the first.
func (st *steps) resumable(ctx context.Context, key string) error {
	if key == "" {
		return fault.Invalid.Errorf("Last-Event-ID goes on with the call that has the key, and there is no key").
			Next("send the key that the call was made with, or leave Last-Event-ID out")
	}
	_, err := st.daemon.Store.CallByKey(ctx, st.id, key)
	if errors.Is(err, store.ErrNotFound) {
		return fault.NotFound.Errorf("no call of session %s has the key %q", st.id, shown(key)).
			Next("leave Last-Event-ID out to make the call")
	}
	return err
}
