package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/toold/toold/internal/call"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

// checkRules checks the profile and the rules of a session that is asked for.
func (dm *daemon) checkRules(tenant string, r *client.SessionCreate) error {
	r.Profile = cmp.Or(r.Profile, policy.DefaultProfile)
	if err := dm.court.Check(tenant, r.Profile); err != nil {
		return err
	}
	if len(r.Permission) == 0 {
		return nil
	}
	if _, err := policy.CheckRules("session", r.Permission); err != nil {
		return fault.In(fault.Invalid.Errorf("permission: %v", err), "permission")
	}
	if err := policy.CheckSpelling("session", r.Permission); err != nil {
		return fault.In(fault.Invalid.Errorf("permission: %v", err), "permission")
	}
	return nil
}

const (
	// maxWorktreeRules bounds it, in bytes.
	maxWorktreeRules = 64 << 10
	// worktreeRulesTime bounds the reading of it.
	worktreeRulesTime = 10 * time.Second
)

// denyAll are the rules of a worktree whose own cannot be read.
const denyAll = "[[rule]]\npermission = '*'\npattern = '*'\naction = 'deny'\n"

// enclose gives a session its worktree's rules. One of the daemon's own, which looks at changes,
// is there for no calls: rules that cannot be read keep nobody from these changes, and all calls
// are denied in it.
func (dm *daemon) enclose(ctx context.Context, s *Session, internal bool) error {
	err := dm.readWorktreeRules(ctx, s)
	if !internal || !errors.Is(err, fault.Invalid) {
		return err
	}
	if _, err := policy.ParseCeiling("", []byte(denyAll)); err != nil {
		return err
	}
	return s.write("", func(row *store.Session) error { row.WorktreeRules = denyAll; return nil })
}

// readWorktreeRules reads the rules file of the worktree, if there is one. It is
// read once, as the tool user and inside the sandbox: what calls make of the file
// later has no effect, and neither has a link that leads out of the worktree.
func (dm *daemon) readWorktreeRules(ctx context.Context, s *Session) error {
	row := s.Row()
	if row.Worktree.Mode == client.WorktreeEmpty {
		return nil
	}
	e, err := s.Errand()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, worktreeRulesTime)
	defer cancel()
	name := path.Join(row.Worktree.Target, judge.WorktreeRules)
	text, err := e.File(ctx, name, maxWorktreeRules, worktreeRulesTime, func(t *run.Target) error {
		if !under(t.Path, row.Worktree.Target) {
			return fmt.Errorf("it leads out of the worktree, to %s", shown(t.Path))
		}
		return nil
	})
	if text == nil && err == nil {
		return nil // there are none
	}
	if err == nil {
		_, err = policy.ParseCeiling(name, text)
	}
	if err != nil {
		return badWorktreeRules(name, err)
	}
	return s.write("", func(row *store.Session) error { row.WorktreeRules = string(text); return nil })
}

// maxDoubts bounds the notes about rules that a session begins with.
const maxDoubts = 5

// doubtsOf are notes about rules of a session and its worktree that cannot do what they say. Without a
// network there is nothing for them to do.
func doubtsOf(row *store.Session) []string {
	ceilings, err := judge.Ceilings(row)
	if err != nil || row.Network.Mode != client.NetworkRules {
		return nil
	}
	var all []string
	for _, c := range ceilings {
		for _, doubt := range policy.Doubts(c.Rules) {
			all = append(all, plain.Cut(doubt, call.MaxNote))
		}
	}
	if more := len(all) - maxDoubts; more > 0 {
		all = append(all[:maxDoubts], "and "+plain.Count(more, "more rule that cannot do what it says", "more rules that cannot do what they say"))
	}
	return all
}

// badWorktreeRules refuses a session whose worktree has rules that do not hold;
// nil for no error.
func badWorktreeRules(name string, err error) error {
	var re *run.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &re):
		err = errors.New(plain.Cut(re.Message, call.MaxNote))
	case errors.Is(err, agent.ErrLost), errors.Is(err, agent.ErrViolation), errors.Is(err, context.Canceled):
		return fmt.Errorf("read %s: %w", name, err)
	}
	return fault.Invalid.Errorf("the worktree's rules %s cannot be used: %s", name, plain.Cut(err.Error(), call.MaxNote)).
		Next("mend the file or remove it; it can only narrow what the session may do")
}
