package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/internal/judge"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
)

// fakeHost is a driver whose sandboxes are objects in memory. Like real ones
// they outlive a Manager: a second Manager on the same host adopts them.
type fakeHost struct {
	onRules   func() // called when a worktree's rules file is looked for
	onCreate  func() // called before a sandbox is made
	onDestroy func() // called before a sandbox is removed

	leftMemory, leftPIDs atomic.Int64 // by the cgroups of the sessions; 0 = no bound

	mu      sync.Mutex // guards the fields below
	boxes   map[string]*fakeBox
	faults  map[string]error // by operation
	log     []string
	rules   string // the rules file of worktrees; "" = none
	changes string // what agents say about files that hosts run on sight; "" = nothing
	watched string // what they were asked about them the last time
}

func newFakeHost() *fakeHost {
	return &fakeHost{boxes: make(map[string]*fakeBox), faults: make(map[string]error)}
}

func (h *fakeHost) fail(op string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[op] = err
}

func (h *fakeHost) fault(op string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, op)
	return h.faults[op]
}

// did reports whether an operation was asked for.
func (h *fakeHost) did(op string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.log, op)
}

func (h *fakeHost) box(id string) *fakeBox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boxes[id]
}

// lastRequest is the last request to run a call.
func (b *fakeBox) lastRequest() agent.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// Uncounted implements sandbox.Uncounted.
func (b *fakeBox) Uncounted(int64) (int64, error) { return b.uncounted.Load(), nil }

// FileLocks implements sandbox.Uncounted.
func (b *fakeBox) FileLocks(ctx context.Context, most int) (int, error) {
	if until, ok := ctx.Deadline(); ok && time.Until(until) < time.Duration(b.locksTake.Load()) {
		return 0, context.DeadlineExceeded
	}
	return min(int(b.fileLocks.Load()), most+1), nil
}

func (h *fakeHost) Name() string { return "fake" }

// Left implements sandbox.Contained.
func (h *fakeHost) Left() (memory, pids int64) {
	return cmp.Or(h.leftMemory.Load(), math.MaxInt64), cmp.Or(h.leftPIDs.Load(), math.MaxInt64)
}

func (h *fakeHost) Runtimes(context.Context) ([]string, error) { return []string{"fake", "other"}, nil }

func (h *fakeHost) Try(_ context.Context, name string) error {
	return cmp.Or(sandbox.CheckRuntime(name, []string{"fake", "other"}), h.fault("try "+name))
}

func (h *fakeHost) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := h.fault("create"); err != nil {
		return nil, err
	}
	if len(spec.Mounts) > 0 {
		if err := h.fault("mounts"); err != nil {
			return nil, err
		}
	}
	if h.onCreate != nil {
		h.onCreate()
	}
	b := &fakeBox{
		host: h, spec: spec, died: make(chan struct{}), calls: make(map[string]*fakeCall), hold: make(chan struct{}),
		rec: sandbox.Record{ID: spec.ID, Runtime: spec.Runtime, PID: 1},
	}
	h.mu.Lock()
	h.boxes[spec.SessionID] = b
	h.mu.Unlock()
	return b, h.fault("created")
}

func (h *fakeHost) Adopt(ctx context.Context, rec sandbox.Record) (sandbox.Sandbox, error) {
	if err := h.fault("adopt"); err != nil {
		return nil, err
	}
	b := h.box(rec.SessionID)
	if b == nil || b.rec.Incarnation != rec.Incarnation || b.dead() {
		return nil, sandbox.ErrGone
	}
	return b, nil
}

func (h *fakeHost) List(ctx context.Context, owner string) ([]sandbox.Record, error) {
	if err := h.fault("list"); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []sandbox.Record
	for _, b := range h.boxes {
		if b.rec.Owner == owner {
			all = append(all, b.rec)
		}
	}
	return all, nil
}

func (h *fakeHost) Destroy(ctx context.Context, rec sandbox.Record) error {
	if h.onDestroy != nil {
		h.onDestroy()
	}
	if err := h.fault("destroy"); err != nil {
		return err
	}
	if b := h.box(rec.SessionID); b != nil {
		b.die()
		h.mu.Lock()
		delete(h.boxes, rec.SessionID)
		h.mu.Unlock()
	}
	return nil
}

func (h *fakeHost) Host(context.Context) []client.Check {
	return []client.Check{{Group: "host", Name: "fake", Status: client.CheckOK}}
}

// fakeBox is a sandbox and its agent.
type fakeBox struct {
	host *fakeHost
	spec sandbox.Spec
	rec  sandbox.Record

	oom, pids, memory, disk atomic.Int64
	cpu, io                 atomic.Int64 // more than what it takes to start
	uncounted, fileLocks    atomic.Int64
	locksTake               atomic.Int64 // ns that a look at fileLocks needs
	freed                   atomic.Int32
	holding                 atomic.Int32 // commands that are at "hold"

	mu       sync.Mutex // guards the fields below
	died     chan struct{}
	hello    agent.Hello
	conn     *fakeConn
	calls    map[string]*fakeCall
	last     agent.Request
	runs     []string // call ids, in the order in which they were started
	forgot   []string
	hold     chan struct{} // closed to let commands "hold" go on
	refuse   error         // for connect
	stubborn bool          // ignore aborts
	prepared *run.Prepared
	result   int64                // results are large, of so many bytes
	change   int                  // what the command "change" prints
	ran      func(command string) // told the command of each bash that runs
	asked    func()               // called before the usage is told
	patience time.Duration        // of who is on another host; 0: it is not
	deaf     bool                 // does not answer pings, as if it were stopped
	pings    int
	lacks    []string // tools that it has not, as it is of an older toold
}

// fakePatience is shorter than reconnectTime: a fake agent answers at once, or
// never.
const fakePatience = 1500 * time.Millisecond

func (b *fakeBox) Patience() time.Duration { return cmp.Or(b.patience, fakePatience) }

func (b *fakeBox) dead() bool {
	select {
	case <-b.died:
		return true
	default:
		return false
	}
}

// die is what happens when the agent is killed.
func (b *fakeBox) die() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.died:
		return
	default:
	}
	close(b.died)
	// The connection first: nobody hears from a dead agent how its calls ended.
	if b.conn != nil {
		b.conn.breakWith(agent.ErrLost)
	}
	for _, c := range b.calls {
		c.stop(run.ReasonSignal)
	}
}

// sever breaks the connection and nothing else.
func (b *fakeBox) sever(err error) {
	b.mu.Lock()
	c := b.conn
	b.mu.Unlock()
	c.breakWith(err)
}

// setChange sets what the command "change" prints.
func (b *fakeBox) setChange(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change = n
}

func (b *fakeBox) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.hold)
	b.hold = make(chan struct{})
}

// pass lets a command go on as soon as one is at "hold".
func (b *fakeBox) pass() {
	for b.holding.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	b.release()
}

func (b *fakeBox) Record() sandbox.Record { return b.rec }
func (b *fakeBox) Dial(ctx context.Context) (*net.UnixConn, error) {
	if b.dead() {
		return nil, errors.New("connection refused")
	}
	return nil, b.host.fault("dial")
}
func (b *fakeBox) Attach(ctx context.Context, tid int) error { return b.host.fault("attach") }
func (b *fakeBox) CallCgroup() (*os.File, error) {
	if err := b.host.fault("cgroup"); err != nil {
		return nil, err
	}
	return os.Open("/dev/null")
}
func (b *fakeBox) Notes() []string { return []string{"no disk bound"} }
func (b *fakeBox) IDMap() string   { return "idmapped" }
func (b *fakeBox) Usage(context.Context) (client.Usage, error) {
	b.mu.Lock()
	asked := b.asked
	b.mu.Unlock()
	if asked != nil {
		asked()
	}
	return client.Usage{CPUMillis: 7 + b.cpu.Load(), MemoryBytes: b.memory.Load(), DiskBytes: b.disk.Load(), PIDs: 1}, b.host.fault("usage")
}
func (b *fakeBox) IOBytes() int64        { return b.io.Load() }
func (b *fakeBox) OOMKills() int64       { return b.oom.Load() }
func (b *fakeBox) PIDsHits() int64       { return b.pids.Load() }
func (b *fakeBox) Done() <-chan struct{} { return b.died }
func (b *fakeBox) Close() error          { return b.host.fault("close") }

// connect is agent.Connect for fake sandboxes; it finds them by their nonce.
func (h *fakeHost) connect(ctx context.Context, _ *net.UnixConn, hello agent.Hello) (agent.Peer, *agent.Welcome, error) {
	if err := h.fault("connect"); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	var box *fakeBox
	for _, b := range h.boxes {
		if slices.Equal(b.spec.Nonce, hello.Nonce) {
			box = b
		}
	}
	h.mu.Unlock()
	if box == nil || box.dead() {
		return nil, nil, agent.ErrLost
	}
	return box.accept(hello)
}

func (b *fakeBox) accept(hello agent.Hello) (agent.Peer, *agent.Welcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return nil, nil, b.refuse
	}
	if b.hello.Nonce == nil {
		b.hello = hello // only the first connection configures the session
	}
	if b.conn != nil {
		b.conn.breakWith(agent.ErrLost)
	}
	b.conn = &fakeConn{b: b, done: make(chan struct{})}
	w := &agent.Welcome{Version: "fake", ForkTID: 2, Notes: []string{"no landlock"}}
	if b.lacks == nil {
		w.Tools = run.Fingerprint(run.Builtin())
	}
	for _, c := range b.calls {
		c.mu.Lock()
		w.Calls = append(w.Calls, agent.CallState{ID: c.id, Finished: c.outcome != nil, Base: c.base, End: c.base + int64(len(c.out))})
		c.mu.Unlock()
	}
	return b.conn, w, nil
}

// fakeConn is one connection.
type fakeConn struct {
	b    *fakeBox
	mu   sync.Mutex // guards err
	err  error
	done chan struct{}
}

func (c *fakeConn) breakWith(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	c.err = err
	close(c.done)
}

func (c *fakeConn) Done() <-chan struct{} { return c.done }
func (c *fakeConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
func (c *fakeConn) Close() error { c.breakWith(nil); return nil }

func (c *fakeConn) live() error {
	select {
	case <-c.done:
		return agent.ErrLost
	default:
		return nil
	}
}

func (c *fakeConn) Prepare(ctx context.Context, r agent.Request) (*run.Prepared, error) {
	if err := c.live(); err != nil {
		return nil, err
	}
	if err := c.b.host.fault("prepare"); err != nil {
		return nil, err
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if slices.Contains(c.b.lacks, r.Tool) {
		return nil, run.NoTool(r.Tool)
	}
	if c.b.prepared != nil {
		return c.b.prepared, nil
	}
	var in struct {
		FilePath string `json:"file_path"`
		Path     string `json:"path"`
	}
	_ = json.Unmarshal(r.Input, &in)
	asked := in.FilePath + in.Path
	if strings.HasSuffix(asked, judge.WorktreeRules) {
		return c.b.prepareRules(asked)
	}
	if r.Tool == "bash" {
		return c.b.resolve(append([]string{"/workspace"}, r.Paths...)), nil
	}
	return &run.Prepared{Targets: []run.Target{{Asked: asked, Path: "/workspace/" + strings.TrimPrefix(asked, "/workspace/"), Write: r.Tool == "write"}}}, nil
}

// prepareRules finds the rules file, which may also be a link, no file, or a file
// that cannot be read.
func (b *fakeBox) prepareRules(asked string) (*run.Prepared, error) {
	if b.host.onRules != nil {
		b.host.onRules()
	}
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	t := run.Target{Asked: asked, Path: asked, Exists: b.host.rules != "", Kind: "file"}
	kind, rest, _ := strings.Cut(b.host.rules, ":")
	switch kind {
	case "link":
		t.Path = rest
	case "fail":
		return nil, &run.Error{Code: run.CodeNotRegularFile, Message: rest}
	case "result":
		return &run.Prepared{Result: run.Failed(asked, "%s", rest)}, nil
	}
	return &run.Prepared{Targets: []run.Target{t}}, nil
}

// resolve finds every path where it says that it is.
func (b *fakeBox) resolve(paths []string) *run.Prepared {
	prep := &run.Prepared{}
	for _, asked := range paths {
		t := run.Target{Asked: asked, Path: path.Clean(asked)}
		if !path.IsAbs(asked) {
			t.Path = path.Join("/workspace", asked)
		}
		prep.Targets = append(prep.Targets, t)
	}
	return prep
}

func (c *fakeConn) Run(ctx context.Context, r agent.Request, s agent.Sink) (*agent.Outcome, error) {
	if err := c.live(); err != nil {
		return nil, err
	}
	if err := c.b.host.fault("run"); err != nil {
		return nil, err
	}
	if r.Tool == run.ChangesName {
		c.b.host.mu.Lock()
		defer c.b.host.mu.Unlock()
		c.b.host.watched = string(r.Input)
		return &agent.Outcome{Result: &run.Result{Output: cmp.Or(c.b.host.changes, "{}")}}, nil
	}
	c.b.mu.Lock()
	c.b.last = r
	c.b.mu.Unlock()
	if r.Expect != nil {
		if out, err := c.expect(ctx, &r); out != nil || err != nil {
			return out, err
		}
	}
	fc := newFakeCall(c.b, r)
	c.b.mu.Lock()
	if c.b.dead() {
		c.b.mu.Unlock()
		return nil, agent.ErrLost
	}
	c.b.calls[r.CallID] = fc
	if !fc.ofRules() {
		c.b.runs = append(c.b.runs, r.CallID)
	}
	if c.b.ran != nil && r.Tool == "bash" {
		var in struct{ Command string }
		_ = json.Unmarshal(r.Input, &in)
		c.b.ran(in.Command)
	}
	c.b.mu.Unlock()
	go fc.work()
	return c.attach(ctx, fc, 0, s)
}

// expect prepares a call as the agent does where it was judged by where its paths
// should lead. An outcome is of one that does not run.
func (c *fakeConn) expect(ctx context.Context, r *agent.Request) (*agent.Outcome, error) {
	prep, err := c.Prepare(ctx, *r)
	if re, ok := errors.AsType[*run.Error](err); ok {
		return &agent.Outcome{Err: re}, nil
	}
	if err != nil {
		return nil, err
	}
	if !slices.EqualFunc(prep.Targets, r.Expect, func(t run.Target, p string) bool { return t.Path == p }) {
		return &agent.Outcome{Prepared: prep}, nil
	}
	if prep.Result != nil {
		return &agent.Outcome{Result: prep.Result}, nil
	}
	r.Prepared = prep
	return nil, nil
}

func (c *fakeConn) Resume(ctx context.Context, id string, offset int64, s agent.Sink) (*agent.Outcome, error) {
	if err := c.live(); err != nil {
		return nil, err
	}
	c.b.mu.Lock()
	fc := c.b.calls[id]
	c.b.mu.Unlock()
	if fc == nil {
		return nil, agent.ErrUnknownCall
	}
	return c.attach(ctx, fc, offset, s)
}

func (c *fakeConn) attach(ctx context.Context, fc *fakeCall, offset int64, s agent.Sink) (*agent.Outcome, error) {
	for {
		fc.mu.Lock()
		if offset < fc.base {
			fc.mu.Unlock()
			return nil, fmt.Errorf("%w: offset %d is gone", agent.ErrViolation, offset)
		}
		p := slices.Clone(fc.out[offset-fc.base:])
		errBytes := slices.Clone(fc.stderr[offset-fc.base:])
		meta, outcome, changed := fc.meta, fc.outcome, fc.changed
		fc.meta = nil
		fc.mu.Unlock()
		if meta != nil {
			s.Metadata(meta)
		}
		if len(p) > 0 {
			n := 1
			for n < len(p) && n < 64<<10 && errBytes[n] == errBytes[0] {
				n++
			}
			if err := s.Output(offset, errBytes[0], p[:n]); err != nil {
				return nil, err
			}
			offset += int64(n)
			continue
		}
		if outcome != nil && c.live() == nil {
			return outcome, c.offer(ctx, fc.id)
		}
		if outcome != nil {
			changed = nil // it does not get through any more
		}
		select {
		case <-changed:
		case <-c.done:
			if err := c.Err(); errors.Is(err, agent.ErrViolation) {
				return nil, err
			}
			return nil, agent.ErrLost
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// offer asks for room for a large result.
func (c *fakeConn) offer(ctx context.Context, id string) error {
	c.b.mu.Lock()
	n, room := c.b.result, c.b.hello.Room
	c.b.mu.Unlock()
	if n == 0 {
		return nil
	}
	return room(ctx, c.done, id, n)
}

func (c *fakeConn) Ack(id string, offset int64) error {
	c.b.mu.Lock()
	fc := c.b.calls[id]
	c.b.mu.Unlock()
	if fc == nil {
		return c.live()
	}
	fc.mu.Lock()
	defer fc.mu.Unlock()
	if n := offset - fc.base; n > 0 {
		fc.out, fc.stderr, fc.base = fc.out[n:], fc.stderr[n:], offset
		fc.wake()
	}
	return c.live()
}

func (c *fakeConn) Forget(id string) error {
	if err := c.b.host.fault("forget"); err != nil {
		return err
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	delete(c.b.calls, id)
	c.b.forgot = append(c.b.forgot, id)
	return c.live()
}

func (c *fakeConn) Abort(id string, reason run.Reason) error {
	c.b.mu.Lock()
	fc, stubborn := c.b.calls[id], c.b.stubborn
	c.b.mu.Unlock()
	if fc != nil && !stubborn {
		fc.stop(reason)
	}
	return c.live()
}

func (c *fakeConn) Ping(ctx context.Context) error {
	c.b.mu.Lock()
	deaf := c.b.deaf
	c.b.pings++
	c.b.mu.Unlock()
	if !deaf {
		return c.live()
	}
	select {
	case <-c.done:
		return agent.ErrLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *fakeConn) Hold(string, time.Duration) error { return nil }

func (c *fakeConn) FreeTmp(context.Context, int64) error {
	c.b.freed.Add(1)
	c.b.memory.Store(0)
	return c.b.host.fault("freetmp")
}
