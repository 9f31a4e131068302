package call

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// site is what the calls of one session find there. It knows no call.
type site struct {
	daemon *Config
	place  Place
	// runners run calls, by what their tools say.
	runners map[tool.By]Runner
	id      string // of the session
	tenant  *Tenant
	judge   *judge.Judge
	limits  client.Limits
	spending
	outDir string      // of the host
	turn   budget.Turn // of its results, where memory is short
	log    *slog.Logger

	// Foreign counts calls that failed for a file of a user who is not in the session.
	Foreign atomic.Int64
	// Spilled is how many bytes the files of outputs have.
	Spilled atomic.Int64

	work crew.Crew // the goroutines of calls
	// ctx ends with agent.ErrOver when the session is over, or with ErrLeaving.
	ctx context.Context //nolint:containedctx // the life of the session
}

// reader reads the session's commands of bash, for a call with an environment of its own.
func (s *site) reader(env map[string]string) *tool.Reader {
	row := s.place.Row()
	return judge.Reader(s.daemon.Settings().ShellOf(&row), row.Request.Env, env)
}

// notReady says why a session takes no calls.
func (s *site) notReady() error {
	row := s.place.Row()
	if row.State == client.SessionCreating {
		return fault.Conflict.Errorf("session %s is still being made", s.id).Next("try again in a moment")
	}
	return OverError(&row)
}

// OverError says that a session is over.
func OverError(row *store.Session) error {
	why := ""
	if row.Reason != "" {
		why = ": " + row.Reason
	}
	return fault.Over.Errorf("session %s is over%s", row.ID, why).Next("create another session")
}

// decided tells a judgement. Its error is why the call must not run.
func (s *site) decided(d *judge.Decision) error {
	s.daemon.observe(func(o Observer) { o.Decided(d) })
	if s.daemon.Auditor == nil {
		return nil
	}
	return s.daemon.Auditor.Decided(d)
}
