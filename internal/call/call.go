// Package call is the one path of a tool call, from the request to its record: parse,
// record, guard, judge, hooks, admit, run, finish. A Service has the calls of all sessions, a
// Group those of one.
//
// It knows the order of the steps. What a call means it asks the tool, whether it may run
// package judge, and it is run by a Runner; its session is a Place to it.
//
// From the bottom: site is what calls find in their session, slots admit them, Call is one with
// its record, steps are the path; asking (step 6), hooks (7 and 10), report (9) and tail (11)
// work for one call each.
package call

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/call/stream"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Call is a call that is not over: its row, who listens to it, and its output.
type Call struct {
	at *site
	id string
	tooled
	order
	voice
	own
	waiting atomic.Bool // for its approval

	// ctx ends when the call must not begin or go on: with the cause of its
	// session's end, with ErrLeaving, or with errAborted before it was started.
	ctx    context.Context //nolint:containedctx // the life of the call itself
	cancel context.CancelCauseFunc

	admission
	done chan struct{} // closed when it will not change any more

	mu        sync.Mutex // guards the fields below
	row       store.Call
	started   bool       // the agent may have been asked to run it
	abortBy   run.Reason // "" = nobody asked
	abortNote string     // for who reads the result, of what stopped it

	held   held
	input  func() // Options.Input; nil: nobody counts it
	seen   func() // of Place.Attend; nil before
	watch  watch
	pause  pause
	opened opened // of the network
}

// tooled is what a call has of its tool; valid after known.
type tooled struct {
	def     *tool.Definition
	runner  Runner
	durable Durable // runner where its calls outlive the daemon; nil where they do not
	// private: its whole output is for who made it, as a person may have been allowed by an approval what is
	// in a file. The sandbox, which has the files of outputs, cannot read that one.
	private bool
}

// order is what was asked for. It does not change once the call is known.
type order struct {
	req     client.CallCreate
	by      auth.Principal // who made it
	profile string         // of its session, when it was made
	hidden  bool           // asked for by a route of our own
	probe   bool           // doctor's own, which no rule is about
	// of is the call for which the daemon makes this one, in its slot; nil: this is a call
	// of its own.
	of *Call
}

// voice is where what the call writes goes.
type voice struct {
	out    *output.Output
	stream stream.Sender // to who listens
	pipe   *Pipe         // to who made it; nil: what it writes is its output
	passed atomic.Int64  // bytes of output that went there
}

// admission is whether a call came to have a record.
type admission struct {
	known chan struct{} // closed when it has one, or will never have one
	err   error         // why there is none; valid after known
	twin  *twin         // the call that had the key before; valid after known
}

// own is what belongs to the call's own goroutine.
type own struct {
	allowance
	seat      seat
	unsaved   *store.Entry // its first record, while that is put off
	lay       func() error // is called once when it may run, where there is one
	writes    []string     // files that it changes, as Prepare resolved them
	hookNotes []string     // about hooks that failed and may
	// edit is what the result says of the files that it has changed, while formatters go over
	// them: it is to be about the files as they are afterwards. Their calls are this goroutine's.
	edit map[string]any
	// checkpoint is that of the worktree which was made before it ran.
	checkpoint Checkpoint
	clock      clock

	// asked is the approval that an earlier daemon has asked for, until the call
	// is judged again; approved the one that let it pass.
	asked    *store.Approval
	approved string
	// translated: its input had the host's path of the worktree.
	translated bool
	// bound: Run goes by all that Prepare saw, which somebody was shown. Otherwise a
	// file that is written is taken as it is then, and only its path must be this one.
	bound   bool
	aliases []string // names of other systems that it was made with
	guarded bool     // it was looked at for loops before, in an earlier round
	// batch is the call that has made this one, one of share; nil: a client has.
	batch *Call
	share int
	// malformed is why no tool takes the call's input, or that there is no such tool.
	malformed *client.Error
}

// twin is a call that another request with the same key leads to.
type twin struct {
	live *Call       // while it runs
	row  *store.Call // when it is over
}

func (t *twin) call() *client.Call {
	if t.live != nil {
		return t.live.snapshot()
	}
	return &t.row.Call
}

// notBegun is why a call does not begin that was aborted before that.
func notBegun(why run.Reason) error {
	switch why {
	case run.ReasonMemory:
		return fault.Overloaded.Errorf("the session's calls were ended to free memory of the host: the call did not run").Next("make it again")
	case run.ReasonDisk:
		return fault.Overloaded.Errorf("the host's disk is nearly full: the call did not run").Next("make it again when there is room")
	}
	return errAborted
}

var errAborted = errors.New("aborted by request")

func newCall(at *site, r client.CallCreate, hidden, split bool) *Call {
	c := &Call{
		at: at, id: at.daemon.Store.NewID("call_"), order: order{req: r, hidden: hidden},
		admission: admission{known: make(chan struct{})}, done: make(chan struct{}),
		held: held{of: at.daemon.Memory, n: 1},
	}
	c.profile = at.place.Row().Profile
	c.stream = stream.Sender{Event: c.bare, Hub: at.daemon.Hub, Split: split}
	c.ctx, c.cancel = context.WithCancelCause(at.ctx)
	return c
}

// why is err, or for what the host has ended the call before it ran, where err only says that it
// was ended: then the call can be made again.
func (c *Call) why(err error) error {
	ended := errors.Is(err, context.Canceled)
	if e, ok := errors.AsType[*run.Error](err); ok {
		ended = e.Code == run.CodeAborted
	}
	if cause, ok := errors.AsType[*fault.Error](context.Cause(c.ctx)); ok && ended {
		return cause
	}
	return err
}

// refuse ends a call that has no record.
func (c *Call) refuse(err error) {
	c.err = c.why(err)
	close(c.known)
	close(c.done)
}

// start stores the call as running. From then on an abort goes to the agent.
func (c *Call) start() error {
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
func (c *Call) snapshot() *client.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.row.Call
	return &v
}

// event makes a stored event of the call.
func (c *Call) event(typ string, data any) client.Event {
	return c.bare(typ, struct {
		Tool  string `json:"tool"`
		Key   string `json:"key,omitempty"`
		Title string `json:"title,omitempty"`
		Data  any    `json:"result,omitempty"`
	}{c.row.Tool, c.row.Key, c.row.Title, data})
}

// bare makes an event of the call with these data and no more.
func (c *Call) bare(typ string, data any) client.Event {
	return event.New(typ, c.at.tenant.Name, c.at.id, c.id, data)
}

// tellStatus sends what the call is now to who listens, if anybody does.
func (c *Call) tellStatus() {
	if c.stream.Heard() {
		v := c.snapshot()
		c.stream.Tell(string(v.Status), v)
	}
}

// pass gives output to the client, or drops what comes after the client is gone or has
// got all that it may.
func (c *Call) pass(p []byte) {
	n := c.passed.Add(int64(len(p)))
	if to := c.pipe.To; to == nil || n > c.pipe.Most {
		c.abort(run.ReasonOutputLimit)
	} else if _, err := to.Write(p); err != nil {
		c.abort(run.ReasonAborted)
	}
	c.ack(n)
}

// ack says how much of the output is safe, to a runner that keeps the rest.
func (c *Call) ack(offset int64) {
	if c.durable != nil {
		c.durable.Ack(c.id, offset)
	}
}

// offset is how many bytes of output have come.
func (c *Call) offset() int64 { return c.out.Offset() + c.passed.Load() }

// abort ends the call. Before it was started it just does not start; later the
// agent is asked until it has ended: a request that got there before the call,
// or into a connection that broke, has no effect. first: nobody had asked before.
func (c *Call) abort(why run.Reason) (first bool) {
	c.mu.Lock()
	first = c.abortBy == ""
	if first {
		c.abortBy = why
	}
	if !c.started {
		c.cancel(notBegun(why))
	}
	started := c.started
	c.mu.Unlock()
	if first && started {
		c.at.work.Go("abort of "+c.id, func() { c.askAbort(why) })
	}
	return first
}

// stop is abort with a note for who reads the result.
func (c *Call) stop(why run.Reason, note string) (first bool) {
	c.mu.Lock()
	if c.abortBy == "" {
		c.abortNote = note
	}
	c.mu.Unlock()
	return c.abort(why)
}

// endedFor gives the note with which the call was stopped for why; "" where it was not.
func (c *Call) endedFor(why run.Reason) (note string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abortBy == why {
		return c.abortNote
	}
	return ""
}

// mayWrite reports whether the call may write and nobody has ended it.
func (c *Call) mayWrite() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.def.ReadOnly && c.abortBy == ""
}

func (c *Call) askAbort(why run.Reason) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c.runner.Abort(c.id, why)
		select {
		case <-c.done:
			return
		case <-c.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// late is for a call that its agent does not end in time.
func (c *Call) late() { c.abort(run.ReasonTimeout) }

// lost is for one that it does not even end when it is told to.
func (c *Call) lost() {
	if c.durable == nil {
		return // it is not for the sandbox's want that it does not end
	}
	c.at.daemon.Work.Go("loss of "+c.at.id, func() { c.at.place.Lose("its agent did not end call " + c.id + " in time") })
}

// update changes what clients see of the call.
func (c *Call) update(change func(row *store.Call)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.row)
}

// judged notes how the call was judged, and by which approval.
func (c *Call) judged(v policy.Verdict, approval string) {
	c.update(func(row *store.Call) {
		row.Permission = &client.CallPermission{Verdict: string(v.Action), Rule: v.Rule, ApprovalID: approval}
	})
}
