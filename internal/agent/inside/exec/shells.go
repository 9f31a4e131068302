package exec

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/internal/tool/run"
)

// shells keeps one shell waiting for the next command of a session, since most
// of what a short command takes is the start of its shell.
//
// Nothing of one call may reach the next by it. So a shell is started only when
// no program of the session is there, and when another program is to be started
// before it is taken it is killed first: from its first moment until a call has
// it, it never lives beside a process of a tool. That nobody is there can be known only with
// cgroups; without them no shell waits.
type shells struct {
	spawner *spawner
	groups  *groups
	shell   []string // nil: no shell waits
	env     []string
	dir     string
	ctx     context.Context

	mu      sync.Mutex // guards the fields below
	running int        // programs that may have a process
	wanted  bool       // a command has been run since a shell was started
	next    *waiting
	failed  int // shells in a row that came to nothing
	used    []group
	leaving []*waiting // shells that are being killed
	idle    *time.Timer
	closed  bool
	ending  sync.WaitGroup // one for each of leaving; Add happens under mu
}

const (
	// shellIdle is how long a shell waits for a command.
	shellIdle = 30 * time.Second
	// shellFailures is how many shells in a row may come to nothing before no
	// more are started: this session's shell is none that can wait.
	shellFailures = 3
)

// canWait reports whether the shell is one that can be started ahead with env.
func canWait(shell, env []string) bool {
	if len(shell) != 3 || path.Base(shell[0]) != "bash" || !path.IsAbs(shell[0]) ||
		shell[1] != "--noprofile" || shell[2] != "--norc" {
		return false
	}
	return !slices.ContainsFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		// A waiting shell sets these itself, says other things about them, or does
		// not read BASH_ENV.
		case "_", "SECONDS", "LINENO", "BASH_EXECUTION_STRING", "BASH_XTRACEFD", "POSIXLY_CORRECT", "POSIX_PEDANTIC", "BASH_ENV":
			return true
		}
		return false
	})
}

// enter counts a program that is to be started. Until over is called for it no
// shell is started. It gives the shell that has got the command, where c is one
// for the shell that waits. Otherwise none is left when it returns, neither to be
// touched by the program nor to count against the limit of processes. After an
// error, which is why ctx has ended, the program does not count.
func (s *shells) enter(ctx context.Context, c run.Command) (*waiting, error) {
	if s.shell == nil {
		return nil, nil
	}
	fits := s.fits(c)
	s.mu.Lock()
	s.running++
	s.wanted = s.wanted || fits
	w := s.next
	s.next = nil
	if w != nil && !fits {
		s.dismissLocked(w)
	}
	s.mu.Unlock()
	if w != nil && fits && s.take(ctx, w, c) {
		return w, nil
	}
	if err := s.alone(ctx); err != nil {
		s.over(nil)
		return nil, err
	}
	return nil, nil
}

// dismissLocked ends w, which nobody else knows any more.
func (s *shells) dismissLocked(w *waiting) {
	s.leaving = append(s.leaving, w)
	s.ending.Go(func() {
		w.discard()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leaving = slices.DeleteFunc(s.leaving, func(o *waiting) bool { return o == w })
		close(w.gone)
	})
}

// alone waits until the shells that are being killed are gone. The error is why
// ctx has ended, also where there was nothing to wait for.
func (s *shells) alone(ctx context.Context) error {
	s.mu.Lock()
	leaving := slices.Clone(s.leaving)
	s.mu.Unlock()
	for _, w := range leaving {
		select {
		case <-w.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return context.Cause(ctx)
}

// fits reports whether c is what a waiting shell does when it is given the last
// argument.
func (s *shells) fits(c run.Command) bool {
	n := len(s.shell)
	return c.Stdin == "" && len(c.Argv) == n+2 && slices.Equal(c.Argv[:n], s.shell) && c.Argv[n] == "-c" &&
		len(c.Argv[n+1]) <= maxGiven && strings.IndexByte(c.Argv[n+1], 0) < 0 &&
		len(c.Env) == 0 && len(c.Unseen) == 0 && (c.Dir == "" || c.Dir == s.dir) &&
		(c.Stderr == nil || c.Stderr == c.Stdout)
}

// over is the end of what enter began; g, the group of the program, may be nil
// when none was made. A program of which a process may be left keeps all further
// shells from waiting.
func (s *shells) over(g group) {
	if s.shell == nil || g != nil && !g.empty() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// leave is over, and leaves the removal of g to rest.
func (s *shells) leave(g group) {
	s.over(g)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = append(s.used, g)
}

// rest does what can wait until the result of a call is on its way: it removes
// the groups of its programs, and starts the shell for the next one.
func (s *shells) rest() {
	s.mu.Lock()
	used := s.used
	s.used = nil
	s.mu.Unlock()
	if w := s.place(); w != nil {
		s.fill(w)
	}
	for _, g := range used {
		g.remove()
	}
}

// place makes room for a shell, if there may be one.
func (s *shells) place() *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell == nil || s.closed || !s.wanted || s.running > 0 || s.next != nil || len(s.leaving) > 0 || s.failed >= shellFailures {
		return nil
	}
	s.wanted = false
	s.next = &waiting{made: make(chan struct{}), gone: make(chan struct{})}
	if s.idle == nil {
		s.idle = time.AfterFunc(shellIdle, s.idled)
	} else {
		s.idle.Reset(shellIdle)
	}
	return s.next
}

// fill starts w.
func (s *shells) fill(w *waiting) {
	defer close(w.made)
	var g group
	if g, w.err = s.groups.make(); w.err == nil {
		w.err = w.begin(s.ctx, s.spawner, g, s.shell, s.env, s.dir)
	}
	if w.err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed++
	if s.next == w {
		s.next = nil
	}
}

// take gives command to w, and ends w where that cannot be. A shell that is just
// being started is waited for, but no longer than for the call.
func (s *shells) take(ctx context.Context, w *waiting, c run.Command) bool {
	select {
	case <-w.made:
	case <-ctx.Done():
	}
	given, failed := false, false
	if ctx.Err() == nil && w.err == nil {
		label(w.group, c.Call)
		given = w.give(c.Argv[len(c.Argv)-1], s.shell[0]) == nil
		failed = !given
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case given:
		s.failed = 0
		return true
	case failed:
		s.failed++
	}
	s.dismissLocked(w)
	return false
}

// drop ends the shell that waits.
func (s *shells) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.next; w != nil {
		s.next = nil
		s.dismissLocked(w)
	}
}

// aside ends the shell that waits, and none is started before another command has run. It
// waits until that is done.
func (s *shells) aside(ctx context.Context) error {
	if s.shell == nil {
		return nil
	}
	s.mu.Lock()
	s.wanted = false
	s.mu.Unlock()
	s.drop()
	return s.alone(ctx)
}

// idled gives back what was kept for a next command that has not come.
func (s *shells) idled() {
	s.drop()
	s.groups.trim()
}

// close ends the shell that waits; no program may be started any more.
func (s *shells) close() {
	s.mu.Lock()
	s.closed = true
	if s.idle != nil {
		s.idle.Stop()
	}
	s.mu.Unlock()
	s.rest()
	s.drop()
	s.ending.Wait()
	s.groups.trim()
}
