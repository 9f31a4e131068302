package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/call/stream"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// call is a call that is not over: its row, who listens to it, and its output.
type call struct {
	s         *Session
	id        string
	req       client.CallCreate
	by        auth.Principal // who made it
	profile   string         // of its session, when it was made
	hidden    bool           // asked for by a route of our own
	probe     bool           // doctor's own, which no rule is about
	timeout   time.Duration
	wanted    int64 // the timeout of its input, in milliseconds; 0 = none, or not bash
	maxOutput int64
	counted   bool // in the numbers of open calls
	slot      bool // it has one of its session's
	paged     bool // the tool cuts its output to size
	leavesOut bool // the tool says itself whether results are left out
	streams   bool // the tool streams its output, and its result comes after it
	out       *output.Output
	stream    stream.Sender // to who listens
	unsaved   *store.Entry  // its first record, while that is put off
	writes    []string      // files that it changes, as Prepare resolved them
	hookNotes []string      // about hooks that failed and may
	clock     clock

	// ctx ends when the call must not begin or go on: with the cause of its
	// session's end, with errLeaving, or with errAborted before it was started.
	ctx    context.Context //nolint:containedctx // the life of the call itself
	cancel context.CancelCauseFunc

	// asked is the approval that an earlier daemon has asked for, until the call
	// is judged again; approved the one that let it pass. They belong to the
	// call's own goroutine, as most of the fields above do.
	asked    *store.Approval
	approved string
	// translated: its input had the host's path of the worktree.
	translated bool
	// bound: Run goes by all that Prepare saw, which somebody was shown. Otherwise a
	// file that is written is taken as it is then, and only its path must be this one.
	bound   bool
	guarded bool        // it was looked at for loops before, in an earlier round
	waiting atomic.Bool // for its approval
	// malformed is why no tool takes the call's input, or that there is no such tool.
	malformed *client.Error

	known chan struct{} // closed when the call has a record, or will never have one
	done  chan struct{} // closed when it will not change any more
	err   error         // why there is no record; valid after known
	twin  *twin         // the call that had the key before; valid after known

	mu      sync.Mutex // guards the fields below
	row     store.Call
	started bool       // the agent may have been asked to run it
	abortBy run.Reason // "" = nobody asked

	held  held
	watch watch
}

// twin is a call that another request with the same key leads to.
type twin struct {
	live *call       // while it runs
	row  *store.Call // when it is over
}

var errAborted = errors.New("aborted by request")

func (s *Session) newCall(r client.CallCreate, hidden, split bool) *call {
	c := &call{
		s: s, id: s.m.store.NewID("call_"), req: r, hidden: hidden,
		maxOutput: int64(s.limits.Output),
		known:     make(chan struct{}), done: make(chan struct{}),
		held: held{n: 1},
	}
	c.stream = stream.Sender{Event: c.bare, Hub: s.m.hub, Split: split}
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	return c
}

// pagedBytes is how many times as long as other outputs one may be that its tool
// has cut to size itself.
const pagedBytes = 4

// outputOf makes the keeper of a call's output.
func (s *Session) outputOf(id string, def *tool.Definition, split bool) *output.Output {
	set := s.m.settings.Load()
	t, ok := set.ProfileTruncate[s.profile()]
	if !ok {
		t = set.Truncate
	}
	t.Direction = cmp.Or(t.Direction, def.Truncate)
	if def.Paged {
		// A page is left alone; what claims to be one and is far too long is not.
		t.MaxBytes *= pagedBytes
		t.MaxLines = t.MaxBytes
	}
	return output.New(output.Config{Limits: t, Path: filepath.Join(s.outDir, id), Used: &s.spilled, MinFree: set.MinFree, Split: split})
}

// refuse ends a call that has no record.
func (c *call) refuse(err error) {
	c.err = err
	close(c.known)
	close(c.done)
}

// record does step 2.
func (s *Session) record(c *call, inv *tool.Invocation) error {
	if err := s.enter(c); err != nil {
		return err
	}
	c.clock.came = time.Now()
	now := c.clock.came.UTC().Truncate(time.Millisecond)
	c.row = store.Call{
		Call: client.Call{
			ID: c.id, Key: c.req.Key, SessionID: s.id, Tool: inv.Tool.Name, Input: inv.JSON,
			MessageID: c.req.MessageID, Agent: c.req.Agent, Model: c.req.Model, Extra: c.req.Extra, Typed: c.req.Typed,
			Status: client.CallPending, Metadata: map[string]any{}, Time: client.CallTime{Queued: now},
		},
		Tenant: s.tenant.name,
		Hash:   hashOf(inv, c.req.Env),
	}
	if c.malformed != nil {
		c.row.DropInput() // it will never run
	}
	c.profile = s.profile()
	c.req.Input = nil // the normalised form is what counts now
	c.streams, c.paged, c.leavesOut = inv.Tool.Streams, inv.Tool.Paged, inv.Tool.Shows != tool.ShowsNone
	c.out = s.outputOf(c.id, inv.Tool, c.stream.Split)
	s.m.calls.Store(c.id, c)
	if s.isEnding() {
		// Whoever ends the session may have looked for calls before this one.
		s.m.calls.Delete(c.id)
		return s.notReady()
	}
	if err := c.save(); err != nil {
		s.m.calls.Delete(c.id)
		if !errors.Is(err, store.ErrExists) {
			return err
		}
		if err := s.findTwin(c, c.row.Hash); err != nil {
			return err
		}
		return errTwin
	}
	s.calls.Add(1)
	close(c.known)
	c.tellStatus()
	return nil
}

// save stores the call as pending, at once where the call has a key, which may
// turn out to be taken, or where somebody may hear of its id before it runs.
// Otherwise its next record, or flush, takes this one with it.
func (c *call) save() error {
	e, n := c.first(&c.row)
	if err := c.s.m.takeRoom(c.ctx, c.s.tenant, n); err != nil {
		return err
	}
	var err error
	if c.req.Key != "" {
		err = c.s.m.store.Write(func(tx *store.Tx) error { return tx.Put(e) })
	} else if c.unsaved = e; c.req.WaitMillis != nil || c.stream.Heard() {
		err = c.flush()
	}
	if err != nil {
		c.s.tenant.kept.Add(-n)
	}
	return err
}

// first is the first record of the call, and how much of it is the call's.
func (c *call) first(row *store.Call) (*store.Entry, int64) {
	e := &store.Entry{}
	n := e.InsertCall(row)
	e.AddEvent(c.event(client.EventCallPending, nil))
	return e, n
}

// flush stores what save has put off, for a call that will wait for long.
func (c *call) flush() error {
	if c.unsaved == nil {
		return nil
	}
	return c.write(nil)
}

// write stores what happened to the call, and before it what save has put off.
func (c *call) write(e *store.Entry) error {
	err := c.s.m.store.Append(c.unsaved, e)
	if err == nil {
		c.unsaved = nil
	}
	return err
}

// errTwin says that a call with this key exists; it never leaves the package.
var errTwin = errors.New("another call has the key")

// findTwin finds the call that has the key already.
func (s *Session) findTwin(c *call, hash []byte) error {
	row, err := s.m.store.CallByKey(context.Background(), s.id, c.req.Key)
	if err != nil {
		return s.m.internal("find a call by its key", err)
	}
	if string(row.Hash) != string(hash) {
		return &client.Error{
			Code:    client.CodeConflict,
			Message: fmt.Sprintf("key %q belongs to call %s, which was made with another tool, input or env", c.req.Key, row.ID),
			Hint:    "use another key for another call",
		}
	}
	if v, ok := s.m.calls.Load(row.ID); ok {
		c.twin = &twin{live: v.(*call)}
		return nil
	}
	if !row.Finished() { // it ended in between
		if row, err = s.m.store.Call(context.Background(), row.ID); err != nil {
			return s.m.internal("find a call by its key", err)
		}
	}
	row.Metadata = asObject(row.Metadata)
	c.twin = &twin{row: row}
	return nil
}

// hashOf is over what a call asks for: tool, normalised input and environment.
func hashOf(inv *tool.Invocation, env map[string]string) []byte {
	h := sha256.New()
	for _, part := range append([]string{inv.Tool.Name, string(inv.JSON)}, envList(env)...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// queueLen is how many calls may wait for a slot of their session. Each may
// hold an input of several MiB.
const queueLen = 64

// enter counts the call, if session and tenant may have another one.
func (s *Session) enter(c *call) error {
	most := int64(s.m.settings.Load().Tenants[s.tenant.name].MaxCalls)
	if n := s.tenant.calls.Add(1); most > 0 && n > most {
		s.tenant.calls.Add(-1)
		return &client.Error{
			Code:    client.CodeOverloaded,
			Message: fmt.Sprintf("tenant %s has %d calls that have not ended, which is all that it may have", s.tenant.name, most),
			Hint:    "wait for one to end, then try again",
		}
	}
	if n := s.open.Add(1); n > int64(cap(s.slots)+queueLen) {
		s.open.Add(-1)
		s.tenant.calls.Add(-1)
		return &client.Error{
			Code:    client.CodeOverloaded,
			Message: fmt.Sprintf("session %s has %d calls running and %d waiting", s.id, cap(s.slots), queueLen),
			Hint:    "wait for one to end, then try again; limits.calls says how many run at once",
		}
	}
	s.touch()
	c.counted = true
	return nil
}

// uncount undoes enter and admit. It comes before the call is known to have ended:
// whoever waited for that may make the next one, which then finds a slot free and
// has nothing to store before it gets one.
func (s *Session) uncount(c *call) {
	s.leaveSlot(c)
	if !c.counted {
		return
	}
	c.counted = false
	s.touch()
	s.open.Add(-1)
	s.tenant.calls.Add(-1)
}

// left lets go of what the call's goroutine held.
func (s *Session) left(c *call) {
	s.unattend()
	s.uncount(c)
	if c.out != nil {
		c.out.Release()
	}
	c.cancel(nil)
	c.release()
}

// start stores the call as running. From then on an abort goes to the agent.
func (c *call) start() error {
	c.clock.ran = time.Now()
	now := c.clock.ran.UTC().Truncate(time.Millisecond)
	e := &store.Entry{}
	e.StartCall(c.id, now)
	e.AddEvent(c.event(client.EventCallRunning, nil))
	if err := c.write(e); err != nil {
		return err
	}
	c.mu.Lock()
	c.started = c.ctx.Err() == nil
	started := c.started
	if started {
		c.row.Status, c.row.Time.Started = client.CallRunning, &now
	}
	c.mu.Unlock()
	if !started {
		return context.Cause(c.ctx)
	}
	c.tellStatus()
	return nil
}

// snapshot is what clients see of the call at the moment.
func (c *call) snapshot() *client.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.row.Call
	return &v
}

// event makes a stored event of the call.
func (c *call) event(typ string, data any) client.Event {
	return c.bare(typ, struct {
		Tool  string `json:"tool"`
		Key   string `json:"key,omitempty"`
		Title string `json:"title,omitempty"`
		Data  any    `json:"result,omitempty"`
	}{c.row.Tool, c.row.Key, c.row.Title, data})
}

// bare makes an event of the call with these data and no more.
func (c *call) bare(typ string, data any) client.Event {
	return event.New(typ, c.s.tenant.name, c.s.id, c.id, data)
}

// tellStatus sends what the call is now to who listens, if anybody does.
func (c *call) tellStatus() {
	if c.stream.Heard() {
		v := c.snapshot()
		c.stream.Tell(string(v.Status), v)
	}
}

// output is sink.Output. Bytes that are in the file are acknowledged; others
// stay with the agent until the call's end is in the store.
func (c *call) output(offset int64, stderr bool, p []byte) error {
	if at := c.out.Offset(); offset != at {
		return fmt.Errorf("output of call %s goes on at %d, not at %d", c.id, offset, at)
	}
	if safe := c.out.Write(p, stderr); safe >= 0 {
		c.s.agent.Ack(c.id, safe)
	}
	c.stream.Output(offset, stderr, p)
	return nil
}

// progress is sink.Metadata.
func (c *call) progress(m map[string]any) {
	m = asObject(m)
	c.mu.Lock()
	c.row.Metadata = m
	c.mu.Unlock()
	c.stream.Tell("metadata", m)
	c.s.m.hub.Publish([]client.Event{c.bare(client.EventCallMetadata, m)})
}

// abort ends the call. Before it was started it just does not start; later the
// agent is asked until it has ended: a request that got there before the call,
// or into a connection that broke, has no effect.
func (c *call) abort(why run.Reason) {
	c.mu.Lock()
	first := c.abortBy == ""
	if first {
		c.abortBy = why
	}
	if !c.started {
		c.cancel(errAborted)
	}
	started := c.started
	c.mu.Unlock()
	if first && started {
		c.s.work.Go(func() { c.askAbort(why) })
	}
}

func (c *call) askAbort(why run.Reason) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c.s.agent.Abort(c.id, why)
		select {
		case <-c.done:
			return
		case <-c.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// overdue is how much longer than its deadline a call may take: the agent's
// grace, and time for its outcome to arrive.
const overdue = sandbox.Grace + 7*time.Second

// watch is a timer for a call whose agent does not end it.
type watch struct {
	mu    sync.Mutex  // guards the fields below
	timer *time.Timer // nil when nothing is watched, or not any more
	late  bool        // it was late once
}

// watchDeadline does not leave the deadline to the agent alone: a call that is
// overdue is aborted, and a session that does not even end it then is lost.
func (c *call) watchDeadline() {
	if c.timeout <= 0 {
		return
	}
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	c.watch.timer = time.AfterFunc(c.timeout+overdue, c.isLate)
}

func (c *call) isLate() {
	w := &c.watch
	w.mu.Lock()
	watched, again := w.timer != nil, w.late
	if watched && !again {
		w.late = true
		w.timer.Reset(overdue)
	}
	w.mu.Unlock()
	switch {
	case !watched:
	case again:
		c.s.m.work.Go(func() { c.s.lose("its agent did not end call " + c.id + " in time") })
	default:
		c.abort(run.ReasonTimeout)
	}
}

// stopWatch ends the watch over the deadline, if there is one.
func (c *call) stopWatch() {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	if c.watch.timer != nil {
		c.watch.timer.Stop()
		c.watch.timer = nil
	}
}
