package agent

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/root"
)

// ErrOrphaned is why a Server ended that no daemon came back to.
var ErrOrphaned = errors.New("no daemon has been connected for too long")

// ServerConfig is what a Server needs.
type ServerConfig struct {
	Listener *net.UnixListener
	// Nonce is what a daemon must show.
	Nonce []byte
	Tools []run.Tool
	Log   *slog.Logger
	// Version is told to the daemon.
	Version string
	// PID1 is set when this process is the init of its pid namespace: it then
	// reaps everybody's orphans and ends all processes when it ends.
	PID1 bool
	// Dir is the root of the file tools; "" is "/".
	Dir string
	// SameUser lets tools run with the agent's own ids. For tests that have no
	// others; a sandbox without the difference protects nothing.
	SameUser bool
}

const (
	maxStrangers   = 16 // connections that have not shown the nonce
	maxCalls       = 512
	maxHeld        = 2 * maxBody // results that wait to be forgotten
	defaultUnacked = 256 << 10
	leastUnacked   = 64 << 10
	mostUnacked    = 64 << 20
	idleTime       = time.Second // after the last call, before memory is given back
)

// Server is the agent's end: it serves one daemon at a time and runs its calls.
type Server struct {
	cfg       ServerConfig
	tools     map[string]run.Tool
	strangers chan struct{}
	wg        sync.WaitGroup // everything that Serve started
	ctx       context.Context
	cancel    context.CancelCauseFunc
	started   chan struct{} // closed when session is set

	mu      sync.Mutex // guards the fields below; taken before a call's mu
	session *session
	peer    *peer // the newest that has shown the nonce
	calls   map[string]*call
	orphan  *time.Timer
	idle    *time.Timer
}

// session is what the first hello sets up, once.
type session struct {
	hello   hello
	root    *root.Root
	spawner *spawner
	reaper  *reaper
	exec    *executor
	seen    *run.Seen
	notes   []string
}

// peer is one connection that has shown the nonce.
type peer struct {
	c    *net.UnixConn
	out  frameWriter
	mu   sync.Mutex // guards at
	at   map[uint64]*attached
	over context.CancelFunc
}

type attached struct {
	call *call
	a    *attachment
	// prepare ends with the exchange; a Run goes on.
	prepare bool
}

// NewServer checks c.
func NewServer(c ServerConfig) (*Server, error) {
	if c.Listener == nil {
		return nil, errors.New("agent: no listener")
	}
	if len(c.Nonce) < 16 {
		return nil, fmt.Errorf("agent: nonce of %d bytes; at least 16 are needed", len(c.Nonce))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Dir == "" {
		c.Dir = "/"
	}
	s := &Server{
		cfg: c, tools: make(map[string]run.Tool), calls: make(map[string]*call),
		strangers: make(chan struct{}, maxStrangers), started: make(chan struct{}),
	}
	for _, t := range c.Tools {
		s.tools[t.Name()] = t
	}
	return s, nil
}

// Serve accepts connections until ctx ends or no daemon has been there for as
// long as the first one allowed. All calls have then been ended.
func (s *Server) Serve(ctx context.Context) error {
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { _ = s.cfg.Listener.Close() })
	defer stop()
	err := s.accept()
	s.cancel(err)
	s.end()
	if cause := context.Cause(s.ctx); errors.Is(cause, ErrOrphaned) || ctx.Err() != nil {
		return cause
	}
	return err
}

func (s *Server) accept() error {
	for {
		c, err := s.cfg.Listener.AcceptUnix()
		if err != nil {
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.ENOMEM) {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return fmt.Errorf("accept: %w", err)
		}
		select {
		case s.strangers <- struct{}{}:
			s.wg.Go(func() { s.welcome(c) })
		default:
			_ = c.Close()
		}
	}
}

// end stops all that runs.
func (s *Server) end() {
	s.mu.Lock()
	for _, c := range s.calls {
		c.cancel(&endedError{reason: run.ReasonSessionEnded})
		c.update(func() { c.ring.ended = true })
	}
	if s.peer != nil {
		_ = s.peer.c.Close()
	}
	if s.orphan != nil {
		s.orphan.Stop()
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	ses := s.session
	s.mu.Unlock()
	s.wg.Wait()
	if ses == nil {
		return
	}
	stopped := ses.spawner.stop()
	if s.cfg.PID1 {
		_ = unix.Kill(-1, unix.SIGKILL)
	}
	if !stopped {
		return // what hangs in the kernel ends with this process, if at all
	}
	ses.reaper.stop()
	ses.root.Close()
	ses.spawner.close()
}

// welcome turns a stranger into the peer, or drops it.
func (s *Server) welcome(c *net.UnixConn) {
	known := func() { <-s.strangers }
	in := newFrameReader(&greeting{UnixConn: c}, maxHello)
	defer in.release()
	h, fd, err := s.greet(c, in)
	if err != nil {
		known()
		_ = c.Close()
		s.cfg.Log.Warn("connection refused", "error", err)
		return
	}
	p := &peer{c: c, out: frameWriter{c: c}, at: make(map[uint64]*attached)}
	err = s.takeOver(p, h, fd)
	known()
	if err != nil {
		_ = c.Close()
		s.cfg.Log.Error("session not set up", "error", err)
		return
	}
	in.c, in.max = c, maxDown
	s.listen(p, in)
}

// greeting is a connection whose reads also take a descriptor, for as long as
// the first frame has not been read.
type greeting struct {
	*net.UnixConn
	fds []int
}

// Read implements net.Conn.
func (g *greeting) Read(p []byte) (int, error) {
	var oob [64]byte
	n, oobn, _, _, err := g.ReadMsgUnix(p, oob[:])
	if msgs, perr := unix.ParseSocketControlMessage(oob[:oobn]); perr == nil {
		for _, m := range msgs {
			fds, _ := unix.ParseUnixRights(&m)
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				g.fds = append(g.fds, fd)
			}
		}
	}
	return n, err
}

func (s *Server) greet(c *net.UnixConn, in *frameReader) (h hello, fd int, err error) {
	g := in.c.(*greeting)
	fd = -1
	defer func() {
		for _, f := range g.fds {
			if f != fd {
				_ = unix.Close(f)
			}
		}
	}()
	if err := c.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return h, fd, err
	}
	frame, err := in.next()
	if err != nil {
		return h, fd, err
	}
	hd, body, err := parseFrame(frame)
	if err != nil || hd.Kind != kindHello {
		return h, fd, fmt.Errorf("no hello (kind %d, %v)", hd.Kind, err)
	}
	if err := wire.dec.Unmarshal(body, &h); err != nil {
		return h, fd, fmt.Errorf("hello: %w", err)
	}
	if subtle.ConstantTimeCompare(h.Nonce, s.cfg.Nonce) != 1 {
		return h, fd, errors.New("wrong nonce")
	}
	if h.Version != protocolVersion {
		return h, fd, fmt.Errorf("protocol version %d; this agent speaks %d", h.Version, protocolVersion)
	}
	if h.CallCgroup {
		if len(g.fds) == 0 {
			return h, fd, errors.New("hello without its descriptor")
		}
		fd = g.fds[0]
	}
	return h, fd, c.SetDeadline(time.Time{})
}

// takeOver makes p the peer: what was attached to the one before is not any more.
func (s *Server) takeOver(p *peer, h hello, fd int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if s.session != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	} else {
		ses, err := s.setUp(h, fd)
		if err != nil {
			// The daemon shows this where it reports that no welcome came.
			return err
		}
		s.session = ses
		close(s.started)
	}
	if old := s.peer; old != nil {
		_ = old.c.Close()
	}
	s.peer = p
	if s.orphan != nil {
		s.orphan.Stop()
	}
	w := welcome{Version: s.cfg.Version, ForkTID: s.session.spawner.tid, Notes: s.session.notes}
	for id, c := range s.calls {
		c.mu.Lock()
		if c.at != nil {
			c.at.gone = true
			c.ring.cond.Broadcast()
		}
		w.Calls = append(w.Calls, callState{ID: id, Finished: c.finished, Base: c.ring.base, End: c.ring.end})
		c.mu.Unlock()
	}
	slices.SortFunc(w.Calls, func(a, b callState) int { return strings.Compare(a.ID, b.ID) })
	body, err := wire.enc.Marshal(w)
	if err != nil {
		return err
	}
	return p.out.write(head{Kind: kindWelcome}, body)
}

// setUp makes the session from the first hello.
func (s *Server) setUp(h hello, fd int) (*session, error) {
	if h.UnackedBytes == 0 {
		h.UnackedBytes = defaultUnacked
	}
	h.UnackedBytes = min(max(h.UnackedBytes, leastUnacked), mostUnacked)
	uid, gid := h.ToolUID, h.ToolGID
	if s.cfg.SameUser {
		uid, gid = -1, -1
	} else if uid <= 0 || gid <= 0 || uid == os.Getuid() {
		return nil, fmt.Errorf("tools may not run as %d:%d; the agent is %d", uid, gid, os.Getuid())
	}
	if len(h.Shell) == 0 {
		return nil, errors.New("hello without a shell")
	}
	if err := checkEnv(h.Env); err != nil {
		return nil, err
	}
	r, err := root.New(root.Config{Dir: s.cfg.Dir, UID: uid, GID: gid})
	if err != nil {
		return nil, err
	}
	ses := &session{hello: h, root: r, reaper: newReaper(s.cfg.PID1), seen: new(run.Seen)}
	sp := &spawner{uid: uid, gid: gid, children: ses.reaper, ignored: ignoredSignals()}
	if err := sp.prepare(h, &ses.notes); err != nil {
		ses.reaper.stop()
		r.Close()
		return nil, err
	}
	sp.start()
	ses.spawner = sp
	if fd < 0 {
		ses.notes = append(ses.notes, "no cgroup for calls: a process that starts a session of its own can outlive its call")
	}
	ses.exec = &executor{
		spawner: sp, groups: &groups{parent: fd}, env: h.Env,
		path: pathOf(h.Env), dir: h.Worktree,
	}
	return ses, nil
}

// pathOf is PATH of env; empty elements, which mean the current directory, are
// left out.
func pathOf(env []string) []string {
	var dirs []string
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = dirs[:0]
			for d := range strings.SplitSeq(v, ":") {
				if strings.HasPrefix(d, "/") {
					dirs = append(dirs, d)
				}
			}
		}
	}
	return dirs
}

// listen serves p until its connection ends.
func (s *Server) listen(p *peer, in *frameReader) {
	defer s.lost(p)
	for {
		frame, err := in.next()
		if err != nil {
			return
		}
		h, body, err := parseFrame(frame)
		if err == nil {
			err = s.take(p, h, body)
		}
		if err != nil {
			s.cfg.Log.Error("connection closed", "kind", int(h.Kind), "error", err)
			return
		}
	}
}

// lost cleans up after a connection. Runs go on.
func (s *Server) lost(p *peer) {
	_ = p.c.Close()
	p.mu.Lock()
	at := p.at
	p.at = nil
	p.mu.Unlock()
	for _, x := range at {
		x.call.update(func() { x.a.gone = true })
		if x.prepare {
			x.call.cancel(&endedError{reason: run.ReasonAborted})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer != p {
		return
	}
	s.peer = nil
	if ms := s.session.hello.OrphanMillis; ms > 0 && s.ctx.Err() == nil {
		s.orphan = time.AfterFunc(time.Duration(ms)*time.Millisecond, s.orphaned)
	}
}

func (s *Server) orphaned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer == nil {
		s.cancel(ErrOrphaned)
	}
}

// take acts on one message. It never waits for a call. Errors close the
// connection.
func (s *Server) take(p *peer, h head, body []byte) error {
	switch h.Kind {
	case kindPing:
		return p.out.write(head{Kind: kindDone, ID: h.ID}, emptyDone)
	case kindPrepare, kindRun:
		var r request
		if err := wire.dec.Unmarshal(body, &r); err != nil {
			return err
		}
		if h.Kind == kindPrepare {
			s.prepare(p, h, r)
			return nil
		}
		return s.run(p, h, r)
	case kindResume:
		var r resume
		if err := wire.dec.Unmarshal(body, &r); err != nil {
			return err
		}
		return s.resume(p, h, r)
	case kindCredit, kindGrant, kindDetach:
		p.update(h)
		return nil
	case kindAck:
		if c := s.call(string(body)); c != nil {
			c.ack(h.N)
		}
		return nil
	case kindForget:
		s.forget(string(body))
		return nil
	case kindAbort:
		var a abort
		if err := wire.dec.Unmarshal(body, &a); err != nil {
			return err
		}
		if c := s.call(a.CallID); c != nil {
			c.cancel(&endedError{reason: run.Reason(a.Reason)})
			c.update(func() {})
		}
		return nil
	case kindFreeTmp:
		s.wg.Go(func() { s.freeTmp(p, h.ID) })
		return nil
	default:
		return errors.New("no such message in this direction")
	}
}

// emptyDone is a done without anything.
var emptyDone = []byte{0xa0}

// update changes an exchange of p: credit, grant or detach. One that is over is
// no error, the messages may have crossed.
func (p *peer) update(h head) {
	p.mu.Lock()
	x := p.at[h.ID]
	p.mu.Unlock()
	if x == nil {
		return
	}
	x.call.update(func() {
		switch h.Kind {
		case kindCredit:
			x.a.limit = max(x.a.limit, h.N)
		case kindGrant:
			x.a.granted = true
		case kindDetach:
			x.a.detached = true
		}
	})
	if h.Kind == kindDetach && x.prepare {
		x.call.cancel(&endedError{reason: run.ReasonAborted})
	}
}

// attach begins to send c to p.
func (s *Server) attach(p *peer, x *attached) {
	p.mu.Lock()
	if p.at == nil {
		p.mu.Unlock()
		return
	}
	p.at[x.a.id] = x
	p.mu.Unlock()
	x.call.attach(x.a)
	s.wg.Go(func() {
		if err := x.call.send(x.a); err != nil {
			_ = p.c.Close()
		}
		p.mu.Lock()
		delete(p.at, x.a.id)
		p.mu.Unlock()
	})
}

func (s *Server) call(id string) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[id]
}

func (s *Server) forget(id string) {
	if held := s.remove(id); held != nil {
		held.Release() // it may take its time to give memory back
	}
}

// remove takes a call that has ended off the list, and gives the memory that
// its result holds.
func (s *Server) remove(id string) *root.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[id]
	if c == nil {
		return nil
	}
	c.mu.Lock()
	finished, held := c.finished, c.held
	c.mu.Unlock()
	if finished {
		delete(s.calls, id)
	}
	s.settle()
	if !finished {
		return nil
	}
	return held
}

// settle gives memory back to the system some time after the last call.
func (s *Server) settle() {
	if len(s.calls) > 0 {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(idleTime, releaseMemory)
		return
	}
	s.idle.Reset(idleTime)
}

func (s *Server) prepare(p *peer, h head, r request) {
	c := newCall(s.ctx, r, leastUnacked)
	t, ok := s.tools[r.Tool]
	s.attach(p, &attached{call: c, a: &attachment{peer: p, id: h.ID}, prepare: true})
	s.wg.Go(func() {
		c.work(func(ctx context.Context) (any, error) {
			if !ok {
				return nil, unknownTool(r.Tool)
			}
			prep, err := t.Prepare(ctx, s.env(c), r.Input)
			if err != nil {
				return nil, err
			}
			if prep == nil {
				prep = &run.Prepared{}
			}
			return encodePrepared(prep), nil
		})
	})
}

func unknownTool(name string) error {
	return run.Errorf(run.CodeInternal, "the agent has no tool %.64q", name)
}

// run starts a call, unless it is held already: a call never runs twice.
func (s *Server) run(p *peer, h head, r request) error {
	if r.CallID == "" || len(r.CallID) > maxCallID {
		return errors.New("bad call id")
	}
	t, ok := s.tools[r.Tool]
	s.mu.Lock()
	if s.peer != p {
		s.mu.Unlock()
		return errors.New("not the newest connection")
	}
	if s.calls[r.CallID] != nil {
		s.mu.Unlock()
		return p.refuse(h.ID, done{Refused: refusedDuplicate})
	}
	if len(s.calls) >= maxCalls {
		s.mu.Unlock()
		return p.refuse(h.ID, done{Err: run.Errorf(run.CodeSandboxFailed, "the agent holds %d calls, which is its limit; forget finished ones", maxCalls)})
	}
	c := newCall(s.ctx, r, s.session.hello.UnackedBytes)
	s.calls[r.CallID] = c
	s.mu.Unlock()
	s.attach(p, &attached{call: c, a: &attachment{peer: p, id: h.ID, limit: h.N}})
	s.wg.Go(func() {
		c.work(func(ctx context.Context) (any, error) {
			if !ok {
				return nil, unknownTool(r.Tool)
			}
			if err := checkEnv(r.Env); err != nil {
				return nil, err
			}
			prep, err := decodePrepared(r.Prepared)
			if err != nil {
				return nil, err
			}
			res, err := t.Run(ctx, s.env(c), r.Input, prep)
			if err != nil {
				return nil, err
			}
			return encodeResult(res), nil
		})
		s.bound(c)
	})
	return nil
}

// bound drops the result of c when too much is held already: a daemon that does
// not forget may not fill the memory.
func (s *Server) bound(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := 0
	for _, o := range s.calls {
		o.mu.Lock()
		held += len(o.payload)
		o.mu.Unlock()
	}
	if held <= maxHeld {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at != nil && !c.at.gone {
		return // it is on its way
	}
	c.final.Err = run.Errorf(run.CodeInternal, "the result of %d bytes is lost: the agent holds %d bytes of results that nobody took", len(c.payload), held-len(c.payload))
	c.payload = nil
	if c.held != nil {
		c.held.Release()
	}
}

func (p *peer) refuse(id uint64, d done) error {
	body, err := wire.enc.Marshal(d)
	if err != nil {
		return err
	}
	return p.out.write(head{Kind: kindDone, ID: id}, body)
}

func (s *Server) resume(p *peer, h head, r resume) error {
	c := s.call(r.CallID)
	if c == nil {
		return p.refuse(h.ID, done{Refused: refusedUnknown})
	}
	c.mu.Lock()
	gone := r.Offset < c.ring.base || r.Offset > c.ring.end
	c.mu.Unlock()
	if gone {
		return p.refuse(h.ID, done{Refused: refusedOffset})
	}
	s.attach(p, &attached{call: c, a: &attachment{peer: p, id: h.ID, sent: r.Offset, limit: h.N}})
	return nil
}

// env is what a call's tool may use.
func (s *Server) env(c *call) *run.Env {
	ses := s.session
	out := &stream{c: c}
	env := &run.Env{
		Root: ses.root, Worktree: ses.hello.Worktree, Home: ses.hello.Home, Tmp: ses.hello.Tmp,
		OutputDir: ses.hello.OutputDir, Shell: ses.hello.Shell,
		Stream: out, Progress: c.progress, Settings: c.req.Settings, Seen: ses.seen,
		Keep: c.keep, MaxFileSize: ses.hello.FileSize,
	}
	env.Exec = func(ctx context.Context, cmd run.Command) (*run.Exit, error) {
		cmd.Env = slices.Concat(c.req.Env, cmd.Env)
		if c.req.Split && cmd.Stdout == env.Stream && (cmd.Stderr == nil || cmd.Stderr == cmd.Stdout) {
			cmd.Stderr = &stream{c: c, stderr: true}
		}
		exit, err := ses.exec.run(ctx, cmd)
		if exit != nil {
			c.exited(exit)
		}
		return exit, err
	}
	return env
}

func (s *Server) freeTmp(p *peer, id uint64) {
	var d done
	if err := s.session.spawner.freeTmp(s.ctx, s.session.hello.Tmp, "/dev/shm"); err != nil {
		d.Err = run.Errorf(run.CodeSandboxFailed, "free temporary files: %v", err)
	}
	if err := p.refuse(id, d); err != nil {
		_ = p.c.Close()
	}
}
