package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toold/toold/internal/tool/run"
)

// ErrOver says that there is no agent any more, because its session is over.
var ErrOver = errors.New("the session is over")

// Peer is one connection to an agent; a *Conn is one.
type Peer interface {
	Prepare(ctx context.Context, r Request) (*run.Prepared, error)
	Run(ctx context.Context, r Request, s Sink) (*Outcome, error)
	Resume(ctx context.Context, callID string, offset int64, s Sink) (*Outcome, error)
	Ack(callID string, offset int64) error
	Forget(callID string) error
	Abort(callID string, reason run.Reason) error
	Hold(callID string, most time.Duration) error
	FreeTmp(ctx context.Context, least int64) error
	Ping(ctx context.Context) error
	Done() <-chan struct{}
	Err() error
	Close() error
}

// Runner runs calls in one session's agent, over as many connections as it takes: whoever
// notices that one is lost makes the next and gives it to Replace, and what was under way
// goes on with that. Its zero value has no connection yet. It is safe for concurrent use.
type Runner struct {
	mu     sync.Mutex // guards the fields below
	link   *Link      // nil before the first and after the last
	sealed bool
}

// Link is one of a Runner's connections.
type Link struct {
	Peer
	// next is closed when another one, or none, has taken its place.
	next chan struct{}
}

// Follower takes what a running call sends, and knows how much of it has come.
type Follower interface {
	Sink
	// Offset is how many bytes of output have come.
	Offset() int64
	// Safe is how many of them the agent need not keep any longer, negative for unknown.
	Safe() int64
}

// Link is the present connection, or ErrOver.
func (r *Runner) Link() (*Link, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link == nil {
		return nil, ErrOver
	}
	return r.link, nil
}

// Replace puts a new connection into the place of the old one. It reports false where the
// session is ending and nobody would close it.
func (r *Runner) Replace(p Peer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed {
		return false
	}
	if r.link != nil {
		close(r.link.next)
	}
	r.link = &Link{Peer: p, next: make(chan struct{})}
	return true
}

// Seal takes no further connection.
func (r *Runner) Seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = true
}

// Close ends the connection, and everything that waits for another.
func (r *Runner) Close() {
	r.mu.Lock()
	l := r.link
	r.link, r.sealed = nil, true
	r.mu.Unlock()
	if l != nil {
		close(l.next)
		_ = l.Close()
	}
}

// Detach ends the connection for a daemon that leaves. What runs goes on without it.
func (r *Runner) Detach() {
	if l, err := r.Link(); err == nil {
		_ = l.Close()
	}
}

// after waits for the connection that follows a lost one; ErrOver where none does.
func (r *Runner) after(ctx context.Context, lost *Link) (*Link, error) {
	for {
		r.mu.Lock()
		l := r.link
		r.mu.Unlock()
		switch {
		case l == nil: // lost was the last
			return nil, ErrOver
		case l != lost:
			return l, nil
		}
		select {
		case <-lost.next:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Prepare resolves what a call names. It has no effect, so a lost connection is no reason to
// give up.
func (r *Runner) Prepare(ctx context.Context, q Request) (*run.Prepared, error) {
	l, err := r.Link()
	for err == nil {
		var prep *run.Prepared
		prep, err = l.Prepare(ctx, q)
		if !errors.Is(err, ErrLost) {
			return prep, err
		}
		l, err = r.after(ctx, l)
	}
	return nil, err
}

// Run runs a call. Once the request may have reached the agent it is never sent again: a
// later connection takes the call up where it is, or finds that it is not known and
// therefore lost (ErrUnknownCall).
func (r *Runner) Run(ctx context.Context, q Request, f Follower) (*Outcome, error) {
	l, err := r.Link()
	if err != nil {
		return nil, err
	}
	out, err := l.Run(ctx, q, f)
	if errors.Is(err, ErrLost) {
		return r.resume(ctx, q.CallID, f, l)
	}
	return out, err
}

// Resume goes on with a call that an earlier connection began, this daemon's or another's.
func (r *Runner) Resume(ctx context.Context, callID string, f Follower) (*Outcome, error) {
	l, err := r.Link()
	if err != nil {
		return nil, err
	}
	out, err := follow(ctx, callID, f, l)
	if errors.Is(err, ErrLost) {
		return r.resume(ctx, callID, f, l)
	}
	return out, err
}

// resume follows a call, whose connection l was lost, from one to the next until it has ended.
func (r *Runner) resume(ctx context.Context, callID string, f Follower, l *Link) (*Outcome, error) {
	for {
		var err error
		if l, err = r.after(ctx, l); err != nil {
			return nil, err
		}
		if out, err := follow(ctx, callID, f, l); !errors.Is(err, ErrLost) {
			return out, err
		}
	}
}

// follow takes a call up. What is safe is acknowledged again: the agent may not have heard
// of it, and one that holds as much as it may sends nothing new.
func follow(ctx context.Context, callID string, f Follower, l *Link) (*Outcome, error) {
	if safe := f.Safe(); safe >= 0 {
		if err := l.Ack(callID, safe); err != nil {
			return nil, err
		}
	}
	return l.Resume(ctx, callID, f.Offset(), f)
}

// Ack, Forget, Abort and Hold are messages. That one does not arrive is noticed by Run, and mended
// when there is another connection.

// Ack says how many bytes of a call's output are safe.
func (r *Runner) Ack(callID string, offset int64) {
	if l, err := r.Link(); err == nil {
		_ = l.Ack(callID, offset)
	}
}

// Forget has the agent drop a call.
func (r *Runner) Forget(callID string) {
	if l, err := r.Link(); err == nil {
		_ = l.Forget(callID)
	}
}

// Abort asks the agent to end a call.
func (r *Runner) Abort(callID string, why run.Reason) {
	if l, err := r.Link(); err == nil {
		_ = l.Abort(callID, why)
	}
}

// Hold lets a call's time stand still, or go on for 0. It ends with the connection.
func (r *Runner) Hold(callID string, most time.Duration) {
	if l, err := r.Link(); err == nil {
		_ = l.Hold(callID, most)
	}
}
