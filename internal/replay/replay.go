// Package replay judges recorded calls by other rules, to show what these would change.
// Nothing is run or stored.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// Bounds of a replay.
const (
	defaultCalls = 10_000
	maxCalls     = 100_000
	maxRules     = 1 << 20 // bytes of a ruleset
	maxAnswer    = 8 << 20 // bytes of the inputs that are shown
	maxChanges   = 1000    // that are shown
)

// Sessions is what a replay needs of those who hold sessions; *session.Manager
// implements it.
type Sessions interface {
	// SessionID is the id of the session that p means by an id or a name.
	SessionID(ctx context.Context, p auth.Principal, idOrName string) (string, error)
	// Reader reads the commands of a session, for judging them.
	Reader(row *store.Session) *tool.Reader
	// Court makes rules those of a session.
	Court() *judge.Court
	// AwaitTold waits until the ends of calls that somebody has been told are stored.
	AwaitTold()
}

// Config is what a Replayer needs.
type Config struct {
	Store    *store.Store
	Tools    *tool.Registry
	Sessions Sessions
}

// Replayer replays the calls of a daemon.
type Replayer struct{ cfg Config }

// New makes a Replayer.
func New(cfg Config) *Replayer { return &Replayer{cfg} }

// Replay judges the calls that r selects by its rules, for administrators.
func (m *Replayer) Replay(ctx context.Context, p auth.Principal, r client.PolicyReplay) (*client.PolicyReplayed, error) {
	if err := p.Administers(); err != nil {
		return nil, err
	}
	f, err := m.filter(ctx, p, r)
	if err != nil {
		return nil, err
	}
	if len(r.Rules) > maxRules {
		return nil, fault.In(fault.Invalid.Errorf("rules has %d bytes; at most %d", len(r.Rules), maxRules), "rules")
	}
	set, err := policy.Parse(cmp.Or(shown(r.Name), "rules"), []byte(r.Rules))
	if err != nil {
		return nil, fault.In(fault.Invalid.Errorf("rules: %v", err), "rules")
	}
	y := &replay{
		Config: m.cfg, set: set, known: make(map[string]*recorded),
		out: &client.PolicyReplayed{Changes: []client.PolicyChange{}, Notes: []string{
			"paths are taken as they stand in the input: where they led when the call was made is not recorded",
			"approvals that were saved, and loops, are left out",
		}},
	}
	m.cfg.Sessions.AwaitTold()
	err = m.cfg.Store.Recent(ctx, f, func(row *store.Call) error { return errors.Join(ctx.Err(), y.judge(ctx, row)) })
	if err == nil {
		err = y.connections(ctx, f)
	}
	if errors.Is(err, errFull) {
		y.out.Notes = append(y.out.Notes, "there are more changes than are shown: ask for fewer calls (session, since, limit)")
	} else if err != nil {
		return nil, fmt.Errorf("replay calls: %w", err)
	}
	if y.notKept > 0 {
		y.out.Notes = append(y.out.Notes, plain.Count(y.notKept, "call was", "calls were")+" passed over: large inputs are not kept, only hashes of them")
	}
	if y.passed > 0 {
		y.out.Notes = append(y.out.Notes, plain.Count(y.passed, "call was", "calls were")+" passed over: no rule was asked about that, or none can be")
	}
	return y.out, nil
}

func (m *Replayer) filter(ctx context.Context, p auth.Principal, r client.PolicyReplay) (store.RecentFilter, error) {
	f := store.RecentFilter{Tenant: r.Tenant, Limit: cmp.Or(r.Limit, defaultCalls)}
	if f.Limit < 0 || f.Limit > maxCalls {
		return f, fault.In(fault.Invalid.Errorf("limit is %d; give up to %d, or 0 for %d", r.Limit, maxCalls, defaultCalls), "limit")
	}
	if r.Since != "" {
		d, err := client.ParseDuration(r.Since)
		if err != nil {
			return f, fault.In(fault.Invalid.Errorf("since: %s", shown(err.Error())), "since")
		}
		if d <= 0 {
			return f, fault.In(fault.Invalid.Errorf("since %q: give a time such as 24h", shown(r.Since)), "since")
		}
		f.Since = time.Now().Add(-time.Duration(d))
	}
	if r.Session == "" {
		return f, nil
	}
	if r.Tenant != "" {
		p.Tenant = r.Tenant
	}
	var err error
	f.Session, err = m.cfg.Sessions.SessionID(ctx, p, r.Session)
	return f, fault.In(err, "session")
}

// errFull says that no more can be shown.
var errFull = errors.New("the answer is full")

// recorded is what a replay knows of a session.
type recorded struct {
	rules  *judge.Rules // nil: there are none for it
	reader *tool.Reader
	places policy.Places
}

// replay judges recorded calls by other rules.
type replay struct {
	Config
	set     *policy.Set
	known   map[string]*recorded // by session
	out     *client.PolicyReplayed
	bytes   int
	passed  int
	notKept int
}

func (y *replay) judge(ctx context.Context, row *store.Call) error {
	was := row.Permission
	if was == nil || was.Rule == judge.RuleProbe || row.Error != nil && row.Error.Code == client.CodeDoomLoop {
		y.passed++
		return nil
	}
	if row.InputNotKept != nil {
		y.notKept++
		return nil
	}
	inv, err := y.Tools.ParseHidden(row.Tool, row.Input)
	if err != nil {
		y.passed++
		return nil // a tool that there is no more
	}
	in, err := y.rulesOf(ctx, row)
	if err != nil {
		return err
	}
	if in.rules == nil {
		y.passed++
		return nil
	}
	y.out.Calls++
	now, _ := in.rules.Judge(policy.AsWritten(inv, in.reader, in.places), in.places.Closed...)
	before := was.Verdict
	if was.ApprovalID != "" {
		before = string(policy.Ask)
	}
	return y.changed(client.PolicyChange{
		CallID: row.ID, SessionID: row.SessionID, Tool: row.Tool, Input: row.Input, Time: row.Time.Queued, Was: before, WasRule: was.Rule,
	}, now)
}

// changed notes a verdict that is now another.
func (y *replay) changed(c client.PolicyChange, now policy.Verdict) error {
	if now.Action == policy.Ask && y.Sessions.Court().Unanswered() {
		now.Action = policy.Deny
	}
	if c.Was == string(now.Action) {
		return nil
	}
	if y.bytes += len(c.Input); y.bytes > maxAnswer || len(y.out.Changes) == maxChanges {
		return errFull
	}
	c.Now, c.NowRule = string(now.Action), now.Rule
	y.out.Changes = append(y.out.Changes, c)
	return nil
}

// rulesOf gives the other rules as they would hold in a call's session.
func (y *replay) rulesOf(ctx context.Context, row *store.Call) (*recorded, error) {
	if r, ok := y.known[row.SessionID]; ok {
		return r, nil
	}
	s, err := y.Store.Session(ctx, row.SessionID)
	if errors.Is(err, store.ErrNotFound) {
		s, err = &store.Session{}, nil // it was swept before its calls
		s.Tenant, s.Profile = row.Tenant, policy.DefaultProfile
	}
	if err != nil {
		return nil, err
	}
	r := &recorded{reader: y.Sessions.Reader(s), places: judge.PlacesOf(s)}
	if r.rules, err = y.Sessions.Court().RulesOf(y.set, s); err != nil {
		y.out.Notes = append(y.out.Notes, fmt.Sprintf("session %s has no rules here: %v", row.SessionID, err))
	}
	y.known[row.SessionID] = r
	return r, nil
}

// shown is s as far as an answer quotes it.
func shown(s string) string { return plain.Cut(s, 80) }
