package agent

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
// no program of the session is there, and it is killed when another program is
// started before it is taken: from its first moment to its command it never
// lives beside a process of a tool. That nobody is there can be known only with
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
	idle    *time.Timer
	closed  bool
	ending  sync.WaitGroup // shells that are being killed; Add happens under mu
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
		// A waiting shell sets these itself, or does not read BASH_ENV.
		case "_", "SECONDS", "BASH_EXECUTION_STRING", "POSIXLY_CORRECT", "BASH_ENV":
			return true
		}
		return false
	})
}

// enter counts a program that is to be started. Until over is called for it no
// shell is started. It gives the shell that waits where the program is command
// for it, and ends it otherwise.
func (s *shells) enter(c run.Command) *waiting {
	if s.shell == nil {
		return nil
	}
	fits := s.fits(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	s.wanted = s.wanted || fits
	w := s.next
	s.next = nil
	if w == nil || fits {
		return w
	}
	s.ending.Go(w.discard)
	return nil
}

// fits reports whether c is what a waiting shell does when it is given the last
// argument.
func (s *shells) fits(c run.Command) bool {
	n := len(s.shell)
	return len(c.Argv) == n+2 && slices.Equal(c.Argv[:n], s.shell) && c.Argv[n] == "-c" &&
		len(c.Argv[n+1]) <= maxGiven && strings.IndexByte(c.Argv[n+1], 0) < 0 &&
		len(c.Env) == 0 && (c.Dir == "" || c.Dir == s.dir) &&
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
	if s.shell == nil || s.closed || !s.wanted || s.running > 0 || s.next != nil || s.failed >= shellFailures {
		return nil
	}
	s.wanted = false
	s.next = &waiting{made: make(chan struct{})}
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

// take gives command to w, which enter gave.
func (s *shells) take(w *waiting, command string) bool {
	<-w.made
	if w.err != nil {
		return false
	}
	err := w.give(command, s.shell[0])
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed++
		s.ending.Go(w.end)
		return false
	}
	s.failed = 0
	return true
}

// drop ends the shell that waits.
func (s *shells) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.next; w != nil {
		s.next = nil
		s.ending.Go(w.discard)
	}
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
