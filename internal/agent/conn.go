package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// Errors that callers tell apart.
var (
	// ErrLost: the connection broke; calls may still be running in the sandbox.
	ErrLost = errors.New("connection to the agent lost")
	// ErrViolation: the agent broke the protocol; its session must be ended.
	ErrViolation = errors.New("agent broke the control protocol")
	// ErrUnknownCall: the agent has no such call (never started, or forgotten).
	ErrUnknownCall = errors.New("agent does not know this call")
	// ErrDuplicateCall: the agent already holds a call of this id and did not
	// start it again, or this connection is attached to it already.
	ErrDuplicateCall = errors.New("call is already known to the agent")
	// ErrOffset: output from this offset on was acknowledged and dropped.
	ErrOffset = errors.New("output is gone from the agent")
)

// errClosed is why a connection ended that was closed by its owner.
var errClosed = fmt.Errorf("%w: closed here", ErrLost)

// Hello is what the daemon tells the agent when it connects.
type Hello = wire.Hello

// Welcome is the agent's answer.
type Welcome = wire.Welcome

// CallState is one call that the agent still holds.
type CallState = wire.CallState

// Request asks for Prepare or Run.
type Request = wire.Request

// Sink takes what a running call sends. Its methods are called from one
// goroutine per call, in order, and may block: that stops the call's output
// (credits), never another call's.
type Sink interface {
	// Output gets the next bytes of the stream; offset is that of p[0], and
	// successive calls have no gap. p must not be kept. When it returns nil the
	// daemon may Ack up to any offset it has made durable.
	Output(offset int64, stderr bool, p []byte) error
	// Metadata gets a progress update, at most 10 a second per call; the last
	// one always arrives.
	Metadata(m map[string]any)
}

// Outcome is how Run ended.
type Outcome = wire.Done

// Conn is the daemon's end of one connection to one agent. Its methods may be
// called from any goroutine.
//
// One goroutine reads; it hands on what belongs to an exchange and never waits
// for anyone, so that a sink that blocks stops its own call only. What it holds
// is bounded by the credits that were given.
type Conn struct {
	c     net.Conn
	out   *wire.Writer
	room  func(ctx context.Context, gone <-chan struct{}, callID string, bytes int64) error // may be nil
	reads chan struct{}                                                                     // closed when the reader has ended
	done  chan struct{}

	mu        sync.Mutex // guards the fields below
	err       error      // why it ended; nil while it lives
	lastID    uint64
	exchanges map[uint64]*exchange
	attached  map[string]*exchange // Run and Resume by call id
	acked     map[string]int64     // offsets told to the agent
	patience  time.Duration        // with a detached exchange: detachTime
	knows     int64                // what the agent does, by its welcome
}

// Connect shows the nonce and waits for the agent's welcome. It takes over c.
func Connect(ctx context.Context, c *net.UnixConn, h Hello) (*Conn, *Welcome, error) {
	return connect(ctx, c, h, wire.FrameTime)
}

func connect(ctx context.Context, c *net.UnixConn, h Hello, writeTime time.Duration) (*Conn, *Welcome, error) {
	in := wire.NewReader(c, wire.MaxUp)
	stop, err := wire.BoundHello(ctx, c)
	var w *Welcome
	var knows int64
	if err == nil {
		w, knows, err = handshake(c, in, h)
	}
	if !stop() {
		err = context.Cause(ctx)
	} else if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		in.Release()
		_ = c.Close()
		return nil, nil, fmt.Errorf("connect to the agent: %w", err)
	}
	conn := &Conn{
		c: c, out: wire.NewWriter(c, writeTime), room: h.Room,
		reads: make(chan struct{}), done: make(chan struct{}),
		exchanges: make(map[uint64]*exchange),
		attached:  make(map[string]*exchange),
		acked:     make(map[string]int64),
		patience:  detachTime,
		knows:     knows,
	}
	go conn.read(in)
	return conn, w, nil
}

func handshake(c *net.UnixConn, in *wire.Reader, h Hello) (w *Welcome, knows int64, err error) {
	if err := sendHello(c, h); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrLost, err)
	}
	frame, err := in.Next()
	if err != nil {
		return nil, 0, readError(err)
	}
	hd, body, err := wire.ParseFrame(frame)
	if err == nil && (hd.Kind != wire.KindWelcome || hd.ID != 0) {
		err = fmt.Errorf("kind %d", hd.Kind)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: no welcome: %w", ErrViolation, err)
	}
	if w, err = decodeWelcome(body); err != nil {
		return nil, 0, err
	}
	w.Tools, w.Hides = uint32(hd.N>>wire.ToolsShift), hd.N&wire.KnowsUnseen != 0
	return w, hd.N, nil
}

func sendHello(c *net.UnixConn, h Hello) error {
	h.Version, h.HasCgroup, h.HeldCount = wire.Version, h.CallCgroup != nil, len(h.Held)
	body, err := wire.Marshal(h)
	if err != nil {
		return err
	}
	frame := wire.Frame(wire.Head{Kind: wire.KindHello}, body)
	if len(frame) > wire.MaxHello {
		return fmt.Errorf("hello of %d bytes; the limit is %d", len(frame), wire.MaxHello)
	}
	files := h.Held
	if h.CallCgroup != nil {
		files = append([]*os.File{h.CallCgroup}, h.Held...)
	}
	if len(files) == 0 {
		_, err = c.Write(frame)
		return err
	}
	fds := make([]int, 0, len(files))
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	// Descriptors travel with the first byte; the rest follows by itself.
	n, _, err := c.WriteMsgUnix(frame, unix.UnixRights(fds...), nil)
	if err == nil && n < len(frame) {
		_, err = c.Write(frame[n:])
	}
	return err
}

func decodeWelcome(body []byte) (*Welcome, error) {
	w := new(Welcome)
	if err := wire.Unmarshal(body, w); err != nil {
		return nil, fmt.Errorf("%w: welcome: %w", ErrViolation, err)
	}
	seen := make(map[string]bool)
	for _, s := range w.Calls {
		if s.ID == "" || len(s.ID) > wire.MaxCallID || seen[s.ID] || s.Base < 0 || s.End < s.Base {
			return nil, fmt.Errorf("%w: welcome with a bad call state", ErrViolation)
		}
		seen[s.ID] = true
	}
	w.Version = wire.Cut(wire.Clean(w.Version))
	for i, n := range w.Notes {
		w.Notes[i] = wire.Cut(wire.Clean(n))
	}
	return w, nil
}

// Prepare asks what a call would do.
func (c *Conn) Prepare(ctx context.Context, r Request) (*run.Prepared, error) {
	body, err := encodeRequest(r)
	if err != nil {
		return nil, err
	}
	x, err := c.open(exchangePrepare, "", 0, false)
	if err != nil {
		return nil, err
	}
	x.owner = r.CallID
	if err := c.send(wire.Head{Kind: wire.KindPrepare, ID: x.id}, body); err != nil {
		return nil, err
	}
	d, err := c.wait(ctx, x, nil)
	if err != nil {
		return nil, err
	}
	if d.Err != nil {
		return nil, d.Err
	}
	return d.Prepared, nil
}

// Run starts a call and waits for its outcome. When ctx ends, Run returns its
// cause and the call goes on: use Abort to stop it. ErrLost means the call may
// still be running; resume it over a new connection. An error of s ends Run
// with that error, and the call goes on likewise.
func (c *Conn) Run(ctx context.Context, r Request, s Sink) (*Outcome, error) {
	if len(r.Unseen) > 0 && c.knows&wire.KnowsUnseen == 0 {
		return nil, errors.New("the agent cannot keep directories from a program")
	}
	body, err := encodeRequest(r)
	if err != nil {
		return nil, err
	}
	x, err := c.open(exchangeRun, r.CallID, 0, r.Split)
	if err != nil {
		return nil, err
	}
	x.expects = r.Expect != nil
	if r.Body != nil {
		x.wants = make(chan struct{}, 1)
		defer c.feed(x, r.Body).stop()
	}
	if err := c.send(wire.Head{Kind: wire.KindRun, ID: x.id, N: window}, body); err != nil {
		return nil, err
	}
	return c.wait(ctx, x, s)
}

// Resume takes up a call that an earlier connection started, from output offset
// on. Whoever was attached to the call before is not any more.
//
// Acknowledgements may have been lost with the earlier connection, and an agent
// that holds as much as it may has nothing new to send: Ack what is durable
// before, or the call may wait for ever.
func (c *Conn) Resume(ctx context.Context, callID string, offset int64, s Sink) (*Outcome, error) {
	if err := checkCallID(callID); err != nil {
		return nil, err
	}
	// Whether it was started with Split is not known here, so both streams may come.
	x, err := c.open(exchangeRun, callID, offset, true)
	if err != nil {
		return nil, err
	}
	body, err := wire.Marshal(wire.Resume{CallID: callID, Offset: offset})
	if err != nil {
		return nil, err
	}
	x.expects = true // likewise
	if err := c.send(wire.Head{Kind: wire.KindResume, ID: x.id, N: offset + window}, body); err != nil {
		return nil, err
	}
	return c.wait(ctx, x, s)
}

// ackQuantum is how far acknowledgements may lag behind on the wire. It is well
// below what an agent keeps, so that a lag never stops a command.
const ackQuantum = 16 << 10

// Ack says that all output below offset is durable: the agent may drop it.
func (c *Conn) Ack(callID string, offset int64) error {
	if err := checkCallID(callID); err != nil {
		return err
	}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	if offset-c.acked[callID] < ackQuantum {
		c.mu.Unlock()
		return nil
	}
	c.acked[callID] = offset
	c.mu.Unlock()
	return c.send(wire.Head{Kind: wire.KindAck, N: offset}, []byte(callID))
}

// Forget says that the outcome is durable: the agent may drop the call. It hears of
// that before anything that it is sent later, but maybe not at once. A connection
// that ends earlier leaves the call in the next Welcome.
func (c *Conn) Forget(callID string) error {
	if err := checkCallID(callID); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.acked, callID)
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := c.out.WriteLater(func(err error) { _ = c.lose(err) }, wire.Head{Kind: wire.KindForget}, []byte(callID)); err != nil {
		return c.lose(err)
	}
	return nil
}

// Abort stops a running call: SIGTERM, grace, cgroup kill. Its outcome arrives
// as usual, with this reason.
func (c *Conn) Abort(callID string, reason run.Reason) error {
	if err := checkCallID(callID); err != nil {
		return err
	}
	body, err := wire.Marshal(wire.Abort{CallID: callID, Reason: string(reason)})
	if err != nil {
		return err
	}
	return c.send(wire.Head{Kind: wire.KindAbort}, body)
}

// Hold lets the time of a running call stand still, so that it ends at most so long after its
// beginning, or go on for 0. An agent that was born before this was known goes on as it did.
func (c *Conn) Hold(callID string, most time.Duration) error {
	if err := checkCallID(callID); err != nil || c.knows&wire.KnowsHold == 0 {
		return err
	}
	return c.send(wire.Head{Kind: wire.KindHold, N: most.Milliseconds()}, []byte(callID))
}

// FreeTmp removes everything in the sandbox's tmpfs directories (/tmp, /dev/shm),
// which tools that are out of memory cannot do themselves, if at least so many bytes are in them.
// An agent that was born before this was known does not look.
func (c *Conn) FreeTmp(ctx context.Context, least int64) error {
	return c.ask(ctx, wire.Head{Kind: wire.KindFreeTmp, N: least})
}

// Ping asks for a sign of life.
func (c *Conn) Ping(ctx context.Context) error { return c.ask(ctx, wire.Head{Kind: wire.KindPing}) }

func (c *Conn) ask(ctx context.Context, h wire.Head) error {
	x, err := c.open(exchangeAsk, "", 0, false)
	if err != nil {
		return err
	}
	h.ID = x.id
	if err := c.send(h); err != nil {
		return err
	}
	d, err := c.wait(ctx, x, nil)
	if err != nil {
		return err
	}
	if d.Err != nil {
		return d.Err
	}
	return nil
}

// Done is closed when the connection has ended; Err says why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection ended: nil while it lives and after Close, an error
// that is ErrViolation or ErrLost otherwise.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.err, errClosed) {
		return nil
	}
	return c.err
}

// Close ends the connection; calls go on in the sandbox.
func (c *Conn) Close() error {
	c.fail(errClosed)
	<-c.reads
	return nil
}

// fail ends the connection with the first reason that is given.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
	}
	exchanges := c.exchanges
	if first {
		c.exchanges = make(map[uint64]*exchange)
		c.attached = make(map[string]*exchange)
	}
	c.mu.Unlock()
	if !first {
		return
	}
	_ = c.c.Close()
	c.out.Stop()
	for _, x := range exchanges {
		x.fail(err)
	}
	close(c.done)
}

func (c *Conn) send(h wire.Head, body ...[]byte) error {
	if err := c.out.Write(h, body...); err != nil {
		return c.lose(err)
	}
	return nil
}

// lose ends the connection, because something could not be sent.
func (c *Conn) lose(err error) error {
	c.fail(fmt.Errorf("%w: %w", ErrLost, err))
	return c.reason()
}

// reason is why the connection ended, also when it was closed here.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// read is the reader's life.
func (c *Conn) read(in *wire.Reader) {
	defer close(c.reads)
	defer in.Release()
	var p pace
	for {
		frame, err := in.Next()
		if err != nil {
			c.fail(readError(err))
			return
		}
		h, body, err := wire.ParseFrame(frame)
		if err == nil {
			err = c.take(h, body)
		}
		if err != nil {
			c.fail(fmt.Errorf("%w: message kind %d for exchange %d: %w", ErrViolation, h.Kind, h.ID, err))
			return
		}
		p.frame(len(frame), c.done)
	}
}

// readError tells a peer that went away from one that cannot frame.
func readError(err error) error {
	if errors.Is(err, wire.ErrFrame) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// take hands one message to its exchange. Errors are violations.
func (c *Conn) take(h wire.Head, body []byte) error {
	c.mu.Lock()
	x := c.exchanges[h.ID]
	c.mu.Unlock()
	if x == nil {
		return errors.New("no such exchange")
	}
	finished, err := x.take(h, body)
	if err != nil {
		return err
	}
	if finished {
		c.mu.Lock()
		delete(c.exchanges, x.id)
		if c.attached[x.call] == x {
			delete(c.attached, x.call)
		}
		c.mu.Unlock()
	}
	x.signal()
	return nil
}

func encodeRequest(r Request) ([]byte, error) {
	if err := checkCallID(r.CallID); err != nil {
		return nil, err
	}
	if !json.Valid(r.Input) {
		return nil, run.Errorf(run.CodeInvalidInput, "the input of call %s is not JSON", r.CallID)
	}
	if len(r.Paths) > run.MaxPaths {
		return nil, run.Errorf(run.CodeInvalidInput, "call %s names %d paths; the limit is %d", r.CallID, len(r.Paths), run.MaxPaths)
	}
	wire.SealPrepared(r.Prepared)
	body, err := wire.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(body) > wire.MaxDown-64 {
		return nil, run.Errorf(run.CodeInvalidInput, "call %s is %d bytes with all its parts; the limit is %d", r.CallID, len(body), wire.MaxDown-64)
	}
	return body, nil
}

func checkCallID(id string) error {
	if id == "" || len(id) > wire.MaxCallID {
		return run.Errorf(run.CodeInternal, "call id of %d bytes; allowed are 1 to %d", len(id), wire.MaxCallID)
	}
	return nil
}
