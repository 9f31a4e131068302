package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent/inside/exec"
	"github.com/toold/toold/internal/agent/inside/passage"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// ErrOrphaned is why a Server ended that no daemon came back to.
var ErrOrphaned = errors.New("no daemon has been connected for too long")

// ServerConfig is what a Server needs.
type ServerConfig struct {
	// Listener gives the connections; the Server closes it.
	Listener Connections
	// Nonce is what a daemon must show.
	Nonce []byte
	Tools []run.Tool
	Log   *slog.Logger
	// Version is told to the daemon.
	Version string
	// PID1 is set when this process is the init of its pid namespace: it then
	// reaps everybody's orphans and ends all processes when it ends.
	PID1 bool
	// Cgroup is a v2 hierarchy that is this sandbox's alone, "" where there is
	// none: for sandboxes with a kernel of their own.
	Cgroup string
	// Passage carries connections of tools to the daemon where a hello asks for it; nil where
	// there is no way.
	Passage *passage.Passage
	// Ripgrep is how the program is started that searches.
	Ripgrep []string
	// Journal is root.Config's, where it is there and can be written.
	Journal string
	// Shrink is run.Env's.
	Shrink []string
	// TreeDir is run.Env's.
	TreeDir string
	// Dir is the root of the file tools; "" is "/".
	Dir string
	// SameUser lets tools run with the agent's own ids. For tests that have no
	// others; a sandbox without the difference protects nothing.
	SameUser bool
}

const (
	maxStrangers   = 16 // connections that have not shown the nonce
	maxCalls       = 512
	maxHeld        = 2 * wire.MaxBody // results that wait to be forgotten
	maxAsked       = 4 * wire.MaxDown // inputs of all that is worked on
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
	held    []int // descriptors that are kept for the daemon
	asked   int64 // bytes of the requests that are worked on
	orphan  *time.Timer
	idle    *time.Timer
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
	c.Dir = cmp.Or(c.Dir, "/")
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
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	// Calls end with it, and the daemon may still hear why.
	told := context.AfterFunc(ctx, func() { s.cancel(&exec.EndedError{Reason: run.ReasonSessionEnded}) })
	defer told()
	stop := context.AfterFunc(s.ctx, func() { _ = s.cfg.Listener.Close() })
	defer stop()
	err := s.accept()
	s.cancel(err)
	s.end()
	switch cause := context.Cause(s.ctx); {
	case errors.Is(cause, ErrOrphaned):
		return cause
	case ctx.Err() != nil:
		return context.Cause(ctx)
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
			s.over(c)
		}
	}
}

// over ends a connection, and says so where that is of interest.
func (s *Server) over(c *net.UnixConn) {
	_ = c.Close()
	if one, ok := s.cfg.Listener.(oneByOne); ok {
		one.over()
	}
}

// end stops all that runs.
func (s *Server) end() {
	s.mu.Lock()
	for _, c := range s.calls {
		c.cancel(&exec.EndedError{Reason: run.ReasonSessionEnded})
		c.update(nil, func() { c.ring.ended = true })
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
	if ses.programs.Stop() {
		ses.root.Close()
	}
}
