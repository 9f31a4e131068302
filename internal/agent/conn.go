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
type Hello struct {
	Nonce []byte
	// The rest configures the session; the agent takes it from the first
	// connection and ignores it on later ones.
	Worktree, Home, Tmp, OutputDir string
	ToolUID, ToolGID               int
	Env                            []string // the tools' whole environment, KEY=VALUE
	Shell                          []string // e.g. /bin/bash --noprofile --norc
	// Limits of one process, 0 = leave.
	OpenFiles, FileSize int64
	// Memory and PIDs are limits of all tools together, for sandboxes in which
	// the agent keeps them (sandbox.SelfLimiting); 0 = it does not.
	Memory, PIDs int64
	// UnackedBytes bounds what the agent keeps of one call's output for a daemon
	// that is away; past it the command waits.
	UnackedBytes int
	// OrphanMillis: the agent kills everything and exits when no daemon has been
	// connected for so long; 0 = never. For daemons that live for one command.
	OrphanMillis int64
	// CallCgroup, when not nil, is sent as a descriptor (see sandbox.Sandbox).
	CallCgroup *os.File
	// Room, which is not sent, is asked before bytes of a large result of a call
	// are let into memory, and waits until they may come. gone is closed when the
	// connection ends. nil bounds what comes over this connection alone.
	Room func(ctx context.Context, gone <-chan struct{}, callID string, bytes int64) error
}

// Welcome is the agent's answer.
type Welcome struct {
	Version string
	// ForkTID is the thread id, in the sandbox, of the thread that starts all
	// processes of tools.
	ForkTID int
	// Calls are those that the agent still holds: running, or finished and not
	// yet forgotten.
	Calls []CallState
	// Notes say which defences this kernel did not give (Landlock …).
	Notes []string
}

// CallState is one call that the agent still holds.
type CallState struct {
	ID       string
	Finished bool
	// OutputBase and OutputEnd are the byte offsets of the output it can send.
	OutputBase, OutputEnd int64
}

// Request asks for Prepare or Run.
type Request struct {
	CallID string
	Tool   string
	Input  json.RawMessage
	// Typed is Input as the daemon has decoded it, for who runs calls in the daemon. It is
	// not sent.
	Typed    any
	Settings json.RawMessage
	Env      []string // added to the session's environment, for this call
	// TimeoutMillis bounds Run; 0 = no bound of the agent's own.
	TimeoutMillis int64
	// MaxOutput is the number of streamed bytes after which the call is killed
	// with reason output_limit; 0 = none.
	MaxOutput int64
	Prepared  *run.Prepared // for Run only
	// Expect, when not nil, makes Run prepare first. Where the targets resolve to
	// exactly these paths, in order, it goes on with what it has prepared; else
	// nothing is run, and the outcome is what Prepare saw or why it failed.
	// For Run only, and not with Prepared.
	Expect []string
	// Body is what the tool reads as its run.Env.Input, as much as it wants; nil: nothing.
	// For Run only, which closes it when any of it was read; a Read that waits must return
	// then. It does not outlive its connection.
	Body io.ReadCloser
	// Paths are further paths to resolve for Prepare of bash (see run.Env).
	Paths []string
	// Split sends stdout and stderr as two streams with their offsets; order
	// between them is then only as good as the agent's reads.
	Split bool
}

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

// Outcome is how Run ended. Exactly one of Result, Err and Prepared is set.
type Outcome struct {
	Result *run.Result
	Err    *run.Error
	// Prepared is what Prepare saw where that is not what Request.Expect says: the
	// call has not run.
	Prepared *run.Prepared
	Exit     *run.Exit // for tools that ran a program
	// OutputEnd is the number of bytes that the call streamed in all.
	OutputEnd int64
}

// Conn is the daemon's end of one connection to one agent. Its methods may be
// called from any goroutine.
//
// One goroutine reads; it hands on what belongs to an exchange and never waits
// for anyone, so that a sink that blocks stops its own call only. What it holds
// is bounded by the credits that were given.
type Conn struct {
	c      net.Conn
	out    *wire.Writer
	budget *budget
	room   func(ctx context.Context, gone <-chan struct{}, callID string, bytes int64) error // may be nil
	reads  chan struct{}                                                                     // closed when the reader has ended
	done   chan struct{}

	mu        sync.Mutex // guards the fields below
	err       error      // why it ended; nil while it lives
	lastID    uint64
	exchanges map[uint64]*exchange
	attached  map[string]*exchange // Run and Resume by call id
	acked     map[string]int64     // offsets told to the agent
	patience  time.Duration        // with a detached exchange: detachTime
}

// maxResults bounds the large results that one connection takes at a time.
const maxResults = 2 * wire.MaxBody

// Connect shows the nonce and waits for the agent's welcome. It takes over c.
func Connect(ctx context.Context, c *net.UnixConn, h Hello) (*Conn, *Welcome, error) {
	return connect(ctx, c, h, wire.FrameTime)
}

func connect(ctx context.Context, c *net.UnixConn, h Hello, writeTime time.Duration) (*Conn, *Welcome, error) {
	in := wire.NewReader(c, wire.MaxUp)
	stop, err := wire.BoundHello(ctx, c)
	var w *Welcome
	if err == nil {
		w, err = handshake(c, in, h)
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
		c: c, out: wire.NewWriter(c, writeTime), budget: newBudget(maxResults), room: h.Room,
		reads: make(chan struct{}), done: make(chan struct{}),
		exchanges: make(map[uint64]*exchange),
		attached:  make(map[string]*exchange),
		acked:     make(map[string]int64),
		patience:  detachTime,
	}
	go conn.read(in)
	return conn, w, nil
}

func handshake(c *net.UnixConn, in *wire.Reader, h Hello) (*Welcome, error) {
	if err := sendHello(c, h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	frame, err := in.Next()
	if err != nil {
		return nil, readError(err)
	}
	hd, body, err := wire.ParseFrame(frame)
	if err == nil && (hd.Kind != wire.KindWelcome || hd.ID != 0) {
		err = fmt.Errorf("kind %d", hd.Kind)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: no welcome: %w", ErrViolation, err)
	}
	return decodeWelcome(body)
}

func sendHello(c *net.UnixConn, h Hello) error {
	body, err := wire.Marshal(wire.Hello{
		Version: wire.Version, Nonce: h.Nonce,
		Worktree: h.Worktree, Home: h.Home, Tmp: h.Tmp, OutputDir: h.OutputDir,
		ToolUID: h.ToolUID, ToolGID: h.ToolGID, Env: h.Env, Shell: h.Shell,
		OpenFiles: h.OpenFiles, FileSize: h.FileSize,
		UnackedBytes: int64(h.UnackedBytes), OrphanMillis: h.OrphanMillis,
		CallCgroup: h.CallCgroup != nil, Memory: h.Memory, PIDs: h.PIDs,
	})
	if err != nil {
		return err
	}
	frame := wire.Frame(wire.Head{Kind: wire.KindHello}, body)
	if len(frame) > wire.MaxHello {
		return fmt.Errorf("hello of %d bytes; the limit is %d", len(frame), wire.MaxHello)
	}
	if h.CallCgroup == nil {
		_, err = c.Write(frame)
		return err
	}
	// The descriptor travels with the first byte; the rest follows by itself.
	n, _, err := c.WriteMsgUnix(frame, unix.UnixRights(int(h.CallCgroup.Fd())), nil)
	if err == nil && n < len(frame) {
		_, err = c.Write(frame[n:])
	}
	return err
}

func decodeWelcome(body []byte) (*Welcome, error) {
	var b wire.Welcome
	if err := wire.Unmarshal(body, &b); err != nil {
		return nil, fmt.Errorf("%w: welcome: %w", ErrViolation, err)
	}
	w := &Welcome{Version: wire.Cut(wire.Clean(b.Version)), ForkTID: b.ForkTID}
	seen := make(map[string]bool)
	for _, s := range b.Calls {
		if s.ID == "" || len(s.ID) > wire.MaxCallID || seen[s.ID] || s.Base < 0 || s.End < s.Base {
			return nil, fmt.Errorf("%w: welcome with a bad call state", ErrViolation)
		}
		seen[s.ID] = true
		w.Calls = append(w.Calls, CallState{ID: s.ID, Finished: s.Finished, OutputBase: s.Base, OutputEnd: s.End})
	}
	for _, n := range b.Notes {
		w.Notes = append(w.Notes, wire.Cut(wire.Clean(n)))
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
	return c.sent(c.out.WriteLater(func(err error) { _ = c.sent(err) }, wire.Head{Kind: wire.KindForget}, []byte(callID)))
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

// FreeTmp removes everything in the sandbox's tmpfs directories (/tmp, /dev/shm),
// which tools that are out of memory cannot do themselves.
func (c *Conn) FreeTmp(ctx context.Context) error { return c.ask(ctx, wire.KindFreeTmp) }

// Ping asks for a sign of life.
func (c *Conn) Ping(ctx context.Context) error { return c.ask(ctx, wire.KindPing) }

func (c *Conn) ask(ctx context.Context, k wire.Kind) error {
	x, err := c.open(exchangeAsk, "", 0, false)
	if err != nil {
		return err
	}
	if err := c.send(wire.Head{Kind: k, ID: x.id}); err != nil {
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

func (c *Conn) send(h wire.Head, body ...[]byte) error { return c.sent(c.out.Write(h, body...)) }

// sent ends the connection where something could not be sent.
func (c *Conn) sent(err error) error {
	if err == nil {
		return nil
	}
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
		c.drop(x)
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
	w := wire.Request{
		CallID: r.CallID, Tool: r.Tool, Input: r.Input, Settings: r.Settings, Env: r.Env,
		TimeoutMillis: r.TimeoutMillis, MaxOutput: r.MaxOutput,
		Prepared: wire.EncodePrepared(r.Prepared), Split: r.Split, Paths: r.Paths,
	}
	if r.Expect != nil {
		w.Expect = &r.Expect
	}
	body, err := wire.Marshal(w)
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
