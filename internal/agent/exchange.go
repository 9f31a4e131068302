package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

type exchangeKind uint8

const (
	exchangeAsk exchangeKind = iota // ping, free tmp
	exchangePrepare
	exchangeRun // run, resume
)

// exchange is the daemon's side of one request and all that answers it. The
// reader calls take, the goroutine that asked calls Conn.wait.
//
//	open ──output, metadata──▶ open
//	open ──offer──▶ offered ──(grant)──▶ granted ──chunk──▶ granted
//	open | granted and complete ──done──▶ finished
//	any ──detached──▶ finished, only after detach was sent
//
// Everything else that an agent sends is a violation.
type exchange struct {
	id    uint64
	kind  exchangeKind
	call  string // "" but for exchangeRun
	owner string // the call that it is for, "" for none; only for who waits
	split bool
	// expects: Run may answer with what it prepared. Set before the request is sent.
	expects bool
	wake    chan struct{} // capacity 1
	// wants gets something when want grows; nil where there is no input. Set before the
	// request is sent, capacity 1.
	wants chan struct{}

	mu       sync.Mutex    // guards the fields below
	detached bool          // nobody waits any more: check and discard
	end      int64         // offset after the last byte of output that arrived
	limit    int64         // the agent may send output below this offset
	pending  output        // arrived and not yet taken
	meta     []byte        // the last update that was not yet taken, encoded
	updates  *rate.Limiter // of metadata; nil before the first
	want     int64         // input below this offset may be sent
	offer    int64         // size of the offered body, 0 = none
	granted  bool
	got      int64       // bytes of the offered body that have come
	body     []byte      // of the chunks so far; nil when detached
	late     *time.Timer // when detached: ends the connection
	over     bool        // the last message has come
	outcome  *Outcome
	refused  error // why the agent did not take the call up; outcome then says nothing
	err      error
}

// output is bytes of a call and which stream each run of them belongs to.
type output struct {
	offset int64
	data   []byte
	runs   []streamRun
}

type streamRun struct {
	n      int
	stderr bool
}

// open registers a new exchange.
func (c *Conn) open(k exchangeKind, call string, offset int64, split bool) (*exchange, error) {
	x := &exchange{
		kind: k, call: call, owner: call, split: split, wake: make(chan struct{}, 1),
		end: offset, limit: offset + window, pending: output{offset: offset},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if call != "" {
		if c.attached[call] != nil {
			return nil, fmt.Errorf("%w: %s is attached to this connection", ErrDuplicateCall, call)
		}
		c.attached[call] = x
	}
	c.lastID++
	x.id = c.lastID
	c.exchanges[x.id] = x
	return x, nil
}

// detachTime is how long an agent has for the last message of an exchange that
// nobody waits for any more. It is above what freeing temporary files takes,
// the one request that an agent cannot leave half done.
const detachTime = 30 * time.Second

// detach tells the agent that nobody waits for x any more. Its final message
// still comes, and is discarded. An agent that does not send it is as good as
// gone; keeping x for it would be keeping it for ever.
func (c *Conn) detach(x *exchange) {
	c.mu.Lock()
	if c.attached[x.call] == x {
		delete(c.attached, x.call)
	}
	patience := c.patience
	c.mu.Unlock()
	x.mu.Lock()
	x.detached = true
	x.pending, x.meta, x.body = output{}, nil, nil
	over := x.over || x.err != nil
	if !over {
		x.late = time.AfterFunc(patience, func() {
			c.fail(fmt.Errorf("%w: no end of exchange %d within %v of its detach", ErrLost, x.id, patience))
		})
	}
	x.mu.Unlock()
	if !over {
		_ = c.send(wire.Head{Kind: wire.KindDetach, ID: x.id}) // a failure ends c, which is all that can be done
	}
}

func (x *exchange) fail(err error) {
	x.mu.Lock()
	x.err = err
	if x.late != nil {
		x.late.Stop()
	}
	x.mu.Unlock()
	x.signal()
}

func (x *exchange) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// take checks one message against the state and keeps what it brings. Errors
// are violations. finished is true when nothing may follow; whoever waits is
// woken by the caller, when the exchange is off its list.
func (x *exchange) take(h wire.Head, body []byte) (finished bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch h.Kind {
	case wire.KindOutput:
		err = x.takeOutput(h, body)
	case wire.KindMetadata:
		err = x.takeMetadata(body)
	case wire.KindOffer:
		err = x.takeOffer(h, body)
	case wire.KindChunk:
		err = x.takeChunk(h, body)
	case wire.KindWant:
		err = x.takeWant(h, body)
	case wire.KindDone:
		finished = true
		err = x.takeDone(body)
	case wire.KindDetached:
		finished = true
		if !x.detached {
			err = errors.New("detached, but nobody asked for it")
		}
	default:
		err = errors.New("no such message in this direction")
	}
	if finished {
		x.over = true
		if x.late != nil { // it is detached
			x.late.Stop()
		}
	}
	return finished, err
}

func (x *exchange) takeOutput(h wire.Head, body []byte) error {
	switch {
	case x.kind != exchangeRun:
		return errors.New("output, but no call")
	case x.offer > 0:
		return errors.New("output after the offer of a result")
	case h.Flag && !x.split:
		return errors.New("stderr of a call with one stream")
	case len(body) == 0:
		return errors.New("output without a byte")
	case h.N != x.end:
		return fmt.Errorf("output at offset %d; expected %d", h.N, x.end)
	case int64(len(body)) > x.limit-x.end:
		return fmt.Errorf("output up to offset %d; credit ends at %d", x.end+int64(len(body)), x.limit)
	}
	x.end += int64(len(body))
	if !x.detached {
		o := &x.pending
		o.data = append(o.data, body...)
		if last := len(o.runs) - 1; last >= 0 && o.runs[last].stderr == h.Flag {
			o.runs[last].n += len(body)
		} else {
			o.runs = append(o.runs, streamRun{n: len(body), stderr: h.Flag})
		}
	}
	return nil
}

// Metadata is decoded by the goroutine that waits for the exchange and not by
// the reader, and only what that one gets to see: the last update counts.
func (x *exchange) takeMetadata(body []byte) error {
	if x.updates == nil {
		x.updates = rate.NewLimiter(updateRate, updateBurst)
	}
	switch {
	case x.kind != exchangeRun:
		return errors.New("metadata, but no call")
	case len(body) > wire.MaxProgress:
		return fmt.Errorf("metadata of %d bytes; the limit is %d", len(body), wire.MaxProgress)
	case !x.updates.Allow():
		return fmt.Errorf("metadata more often than %d times a second", updateRate)
	}
	if !x.detached {
		x.meta = append(x.meta[:0], body...)
	}
	return nil
}

func (x *exchange) takeOffer(h wire.Head, body []byte) error {
	switch {
	case x.kind == exchangeAsk:
		return errors.New("offer for an exchange without a result")
	case x.offer > 0:
		return errors.New("second offer")
	case h.N <= wire.MaxInline || h.N > wire.MaxBody || len(body) > 0:
		return fmt.Errorf("offer of %d bytes", h.N)
	}
	x.offer = h.N
	return nil
}

func (x *exchange) takeChunk(h wire.Head, body []byte) error {
	switch {
	case !x.granted:
		return errors.New("chunk that was not granted")
	case h.N != x.got:
		return fmt.Errorf("chunk at offset %d; expected %d", h.N, x.got)
	case len(body) == 0 || x.got+int64(len(body)) > x.offer:
		return fmt.Errorf("chunk of %d bytes goes past the offered %d", len(body), x.offer)
	}
	x.got += int64(len(body))
	if !x.detached {
		x.body = append(x.body, body...)
	}
	return nil
}

func (x *exchange) takeDone(body []byte) error {
	if x.detached {
		return nil
	}
	var f wire.Done
	if err := wire.Unmarshal(body, &f); err != nil {
		return fmt.Errorf("done: %w", err)
	}
	payload := []byte(f.Payload)
	if x.offer > 0 {
		if len(payload) > 0 || x.got != x.offer {
			return fmt.Errorf("done after %d of %d offered bytes", x.got, x.offer)
		}
		payload = x.body
	}
	if err := x.check(&f, payload); err != nil {
		return err
	}
	if f.Refused != 0 {
		x.refused = fmt.Errorf("%w: %s", refusals[f.Refused], x.call)
	}
	f.Payload, f.NotRun = nil, false // it is read
	x.body, x.outcome = nil, &f
	return nil
}

// check decodes the payload and refuses answers that contradict themselves.
func (x *exchange) check(f *wire.Done, payload []byte) error {
	if f.Err != nil {
		if err := checkError(f.Err); err != nil {
			return err
		}
	}
	if f.Exit != nil {
		if err := checkExit(f.Exit); err != nil {
			return err
		}
	}
	if f.Refused != 0 {
		if refusals[f.Refused] == nil || x.kind != exchangeRun || f.Err != nil || f.Exit != nil || f.NotRun || len(payload) > 0 {
			return fmt.Errorf("refusal %d", f.Refused)
		}
		return nil
	}
	var err error
	switch {
	case f.Err != nil && len(payload) > 0:
		err = errors.New("both an error and a result")
	case f.NotRun && (!x.expects || f.Err != nil || f.Exit != nil || f.OutputEnd != 0):
		err = errors.New("not run, but nothing was to be expected, or it did run")
	case f.Err != nil:
	case x.kind == exchangePrepare || f.NotRun:
		f.Prepared = new(run.Prepared)
		if err = wire.Unmarshal(payload, f.Prepared); err == nil {
			err = wire.OpenPrepared(f.Prepared)
		}
	case x.kind == exchangeRun:
		f.Result = new(run.Result)
		if err = wire.Unmarshal(payload, f.Result); err == nil {
			err = wire.OpenResult(f.Result)
		}
	case len(payload) > 0:
		err = errors.New("a result for an exchange without one")
	}
	if err == nil && x.kind == exchangeRun && f.OutputEnd != x.end {
		err = fmt.Errorf("done at output offset %d; %d arrived", f.OutputEnd, x.end)
	}
	return err
}

// wait passes on what arrives until the exchange is over. A sink's error and the
// end of ctx detach from the call.
func (c *Conn) wait(ctx context.Context, x *exchange, s Sink) (*Outcome, error) {
	var spare []byte
	var spareRuns []streamRun
	var late <-chan time.Time
	for {
		x.mu.Lock()
		out, meta, end, refused, err := x.pending, x.meta, x.outcome, x.refused, x.err
		x.pending = output{offset: x.end, data: spare, runs: spareRuns}
		x.meta = nil
		grant := x.offer > 0 && !x.granted
		x.mu.Unlock()

		if len(out.data) > 0 && s != nil {
			if err := c.pass(x, s, out); err != nil {
				c.detach(x)
				return nil, err
			}
		}
		spare, spareRuns = out.data[:0], out.runs[:0]
		if meta != nil {
			m, err := wire.DecodeUpdate(meta)
			if err != nil {
				c.fail(fmt.Errorf("%w: exchange %d: %w", ErrViolation, x.id, err))
				return nil, c.reason()
			}
			if s != nil {
				s.Metadata(m)
			}
		}
		switch {
		case refused != nil:
			return nil, refused
		case end != nil:
			return end, nil
		case err != nil:
			return nil, err
		case grant:
			if err := c.grant(ctx, x); err != nil {
				c.detach(x)
				return nil, err
			}
			late = time.After(resultTime)
		}
		select {
		case <-x.wake:
		case <-late:
			c.fail(fmt.Errorf("%w: a result of %d bytes did not come within %s", ErrViolation, x.offer, resultTime))
		case <-ctx.Done():
			c.detach(x)
			return nil, context.Cause(ctx)
		}
	}
}

// refusals are why an agent does not take up a call.
var refusals = map[wire.Refusal]error{
	wire.RefusedUnknown: ErrUnknownCall, wire.RefusedDuplicate: ErrDuplicateCall, wire.RefusedOffset: ErrOffset,
}

// pass gives output to the sink, and credit for it to the agent.
func (c *Conn) pass(x *exchange, s Sink, out output) error {
	offset, data := out.offset, out.data
	for _, r := range out.runs {
		if err := s.Output(offset, r.stderr, data[:r.n]); err != nil {
			return err
		}
		offset += int64(r.n)
		data = data[r.n:]
	}
	x.mu.Lock()
	limit := offset + window
	open := x.outcome == nil && x.err == nil && x.offer == 0 && limit-x.limit >= window/4
	if open {
		x.limit = limit
	}
	x.mu.Unlock()
	if open {
		// The error ends the connection and arrives by x.err.
		_ = c.send(wire.Head{Kind: wire.KindCredit, ID: x.id, N: limit})
	}
	return nil
}

// window is how much output of one call may be under way to a sink, in bytes.
const window = 256 << 10

// resultTime bounds how long a result may take that was asked for: room is kept
// for it, which others may wait for.
const resultTime = 30 * time.Second

// grant waits until there is room for the offered body and asks for it.
func (c *Conn) grant(ctx context.Context, x *exchange) error {
	if c.room != nil {
		if err := c.room(ctx, c.done, x.owner, x.offer); err != nil {
			return err
		}
	}
	x.mu.Lock()
	x.granted = true
	x.body = make([]byte, 0, x.offer)
	x.mu.Unlock()
	_ = c.send(wire.Head{Kind: wire.KindGrant, ID: x.id}) // as in pass
	return nil
}
