package session

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/steady"
)

// budgetPause is how often a session with a budget is looked at while it has calls, and
// budgetIdle while it has none, which use nothing up but time.
const (
	budgetPause = 500 * time.Millisecond
	budgetIdle  = time.Minute
)

// untilSpent is how long a session with a budget need not be looked at.
func untilSpent(s *Session) time.Duration {
	b, d := s.budget(), budgetIdle
	switch {
	case b == (client.Budget{}):
		return maxTTL
	case s.calls.Open() > 0:
		d = budgetPause
	}
	if b.Wall > 0 {
		d = min(d, time.Duration(b.Wall-s.age()))
	}
	return d
}

// lookAtBudget has supervise look at what is left, when a call begins or ends to use it up.
func lookAtBudget(s *Session) {
	if s.budget() != (client.Budget{}) {
		wake(s)
	}
}

// settleBudget fills in what a session may use in all: the least of what the configuration
// says for all, for its profile and for its tenant. It may ask for less.
func (s *Settings) settleBudget(r *client.SessionCreate, ten Tenant) error {
	profile := cmp.Or(r.Profile, policy.DefaultProfile)
	b := &r.Budget
	for _, most := range []client.Budget{s.Budget, s.Budgets[profile], ten.Budget} {
		for _, err := range []error{
			tighten("calls", &b.Calls, most.Calls), tighten("cpu", &b.CPU, most.CPU),
			tighten("wall", &b.Wall, most.Wall), tighten("output", &b.Output, most.Output),
		} {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// tighten bounds one part of a budget.
func tighten[T ~int64](name string, at *T, most T) error {
	if *at < 0 {
		return fault.In(fault.Invalid.Errorf("budget.%s is negative (%v); leave it out for no bound", name, *at), "budget", name)
	}
	if most > 0 && (*at == 0 || *at > most) {
		*at = most
	}
	return nil
}

// budgetOf is nil for none.
func budgetOf(b client.Budget) *client.Budget {
	if b == (client.Budget{}) {
		return nil
	}
	return &b
}

func (s *Session) budget() client.Budget {
	if b := s.Row().Budget; b != nil {
		return *b
	}
	return client.Budget{}
}

// left is what is left of the session's budget; nil without one.
func (s *Session) left(ctx context.Context) *client.BudgetLeft {
	b := s.budget()
	if b == (client.Budget{}) {
		return nil
	}
	calls, printed := s.calls.Spent()
	l := &client.BudgetLeft{}
	if b.Calls > 0 {
		l.Calls = new(max(b.Calls-calls, 0))
	}
	if b.Output > 0 {
		l.Output = new(max(b.Output-client.Size(printed), 0))
	}
	if b.Wall > 0 {
		l.Wall = new(max(b.Wall-s.age(), 0))
	}
	if b.CPU > 0 {
		used := client.Duration(0)
		if now, ok := s.read(ctx); ok {
			used = client.Duration(now.cpuMillis) * client.Duration(time.Millisecond)
		}
		l.CPU = new(max(b.CPU-used, 0))
	}
	return l
}

// age is how long ago the session was made.
func (s *Session) age() client.Duration {
	row := s.Row()
	return client.Duration(-steady.Now().Left(row.Created, row.Born))
}

// spent says which part of the budget is used up, "" for none. Calls that were let in may
// end.
func (s *Session) spent() string {
	l, b := s.left(s.ctx), s.budget()
	switch {
	case l == nil:
	case l.Calls != nil && *l.Calls == 0 && s.calls.Open() == 0:
		return "budget: it has made its " + plain.Count(b.Calls, "call", "calls")
	case l.CPU != nil && *l.CPU == 0:
		return fmt.Sprintf("budget: it has used its cpu time of %s", b.CPU)
	case l.Wall != nil && *l.Wall == 0:
		return fmt.Sprintf("budget: it has lived for its %s", b.Wall)
	case l.Output != nil && *l.Output == 0:
		return fmt.Sprintf("budget: its calls have printed their %s", b.Output)
	}
	return ""
}
