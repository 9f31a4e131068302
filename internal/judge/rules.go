// Package judge decides whether a session's calls may run: by the rules of the
// configuration, of the session and of its worktree, by saved approvals, and by what
// the session has done before.
package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// WorktreeRules is the rules file of a worktree, relative to it.
const WorktreeRules = ".toold/policy.toml"

// Config is what judgements go by. It does not change: another one takes its place.
type Config struct {
	Policy  *policy.Set       // nil: policy.Default
	Opaque  string            // [tools.bash] opaque: rule, ask or deny; "" = rule
	Loop    policy.LoopConfig // what counts as a loop
	Choices Choices           // the tools of profiles and tenants
	// Unanswered: nobody answers approvals, so what would be asked is denied.
	Unanswered bool
}

// Saved are the rules that approvers have saved.
type Saved interface {
	// Version changes with the rules.
	Version() uint64
	// RulesOf gives those for a session with this profile, and until when that holds;
	// the zero time is for ever.
	RulesOf(tenant, session, profile string, now time.Time) ([]policy.Rule, time.Time)
}

// Court is what the judges of all sessions have in common.
type Court struct {
	saved  Saved
	store  *store.Store
	tools  Tools
	config atomic.Pointer[Config]

	mu     sync.Mutex                  // guards the fields below
	of     *Config                     // that stacks are made of
	stacks map[[2]string]*policy.Stack // by profile and tenant
}

// Tools is what a judge needs of a *tool.Registry.
type Tools interface {
	Parse(name string, raw json.RawMessage) (*tool.Invocation, error)
	Get(name string) (*tool.Definition, bool)
	Set(lacks func(*tool.Definition) string) *tool.Set
}

// NewCourt makes a Court that goes by c until Configure.
func NewCourt(c *Config, saved Saved, st *store.Store, tools Tools) *Court {
	k := &Court{saved: saved, store: st, tools: tools}
	k.config.Store(c)
	return k
}

// Configure has calls that are judged from now on go by c.
func (k *Court) Configure(c *Config) { k.config.Store(c) }

// Unanswered reports whether what would be asked is denied, as nobody answers.
func (k *Court) Unanswered() bool { return k.config.Load().Unanswered }

// base gives the rules that sessions of the same profile and tenant have in common.
func (k *Court) base(c *Config, profile, tenant string) (*policy.Stack, error) {
	key := [2]string{profile, tenant}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of != c {
		k.of, k.stacks = c, make(map[[2]string]*policy.Stack)
	}
	if st, ok := k.stacks[key]; ok {
		return st, nil
	}
	st, err := c.policy().Stack(profile, tenant)
	if err != nil {
		return nil, err
	}
	k.stacks[key] = st
	return st, nil
}

func (c *Config) policy() *policy.Set {
	if c.Policy == nil {
		return policy.Default()
	}
	return c.Policy
}

// Check says why there is no such profile for a tenant; nil where there is.
func (k *Court) Check(tenant, profile string) error {
	_, err := k.base(k.config.Load(), profile, tenant)
	if err != nil {
		return fault.In(fault.Invalid.Errorf("profile: %w", err), "profile")
	}
	return nil
}

// RulesWithout gives the rules of a tenant and a profile, with those of a session that
// may be over where row is not nil; never with what approvers have saved.
func (k *Court) RulesWithout(tenant, profile string, row *store.Session) (*Rules, error) {
	c := k.config.Load()
	st, err := k.base(c, profile, tenant)
	if err != nil {
		return nil, fault.In(fault.Invalid.Errorf("profile: %w", err), "profile")
	}
	r, err := c.over(st, profile, row)
	if err != nil {
		return nil, fault.Invalid.Errorf("the rules of session %s: %w", row.ID, err)
	}
	r.tools, r.choices, r.lacking = k.tools, c.Choices.of(profile, tenant, row), c.Choices.lacking(row)
	if row != nil {
		r.older = row.Lacks
	}
	return r, nil
}

// RulesOf gives the rules that another set of rules has for a session.
func (k *Court) RulesOf(set *policy.Set, row *store.Session) (*Rules, error) {
	st, err := set.Stack(row.Profile, row.Tenant)
	if err != nil {
		return nil, err
	}
	return k.config.Load().over(st, row.Profile, row)
}

func (c *Config) over(st *policy.Stack, profile string, row *store.Session) (*Rules, error) {
	if row != nil {
		ceilings, err := Ceilings(row)
		if err != nil {
			return nil, err
		}
		st = st.With(ceilings...)
	}
	return &Rules{stack: st, config: c, profile: profile}, nil
}

// Rules are all that a session is judged by at one time. They do not change.
type Rules struct {
	stack *policy.Stack
	err   error // why there is none: everything is denied

	// What they were made of, and until when they hold.
	config  *Config
	profile string
	saved   uint64
	until   time.Time // zero: as long as the rest is the same
	read    readRules
	choices []tool.Choice
	lacking map[tool.Need]string // why the session has not what tools need
	older   []string             // tools that its agent has not

	tools Tools
	once  sync.Once // for set
	set   *tool.Set
}

// Hides reports whether nothing that needs this permission can be allowed.
func (r *Rules) Hides(permission string) bool { return r.err != nil || r.stack.Hidden(permission) }

// Explain shows each request with the rules that match it; each is what Judge said.
func (r *Rules) Explain(requests []policy.Request, each []Judged) []client.PolicyRequest {
	if r.err != nil {
		return []client.PolicyRequest{}
	}
	all := r.stack.Explain(requests)
	for i := range all {
		if act := string(each[i].Action); all[i].Action != act { // a setting is stricter than the rules
			all[i].Action, all[i].Rule = act, each[i].Rule
		}
	}
	return all
}

// Ceilings are the rules that came with a session, which can only narrow.
func Ceilings(row *store.Session) ([]policy.Ceiling, error) {
	var all []policy.Ceiling
	if len(row.Request.Permission) > 0 {
		rules, err := policy.CheckRules("session", row.Request.Permission)
		if err != nil {
			return nil, fmt.Errorf("permission: %w", err)
		}
		all = append(all, policy.Ceiling{Name: "session", Rules: rules})
	}
	if row.WorktreeRules != "" {
		rules, err := policy.ParseCeiling(path.Join(row.Worktree.Target, WorktreeRules), []byte(row.WorktreeRules))
		if err != nil {
			return nil, err
		}
		all = append(all, policy.Ceiling{Name: "worktree", Rules: rules})
	}
	return all, nil
}

// Judge judges the calls of one session.
type Judge struct {
	court   *Court
	row     func() store.Session
	last    atomic.Pointer[Rules]
	history history
	// revision is of Revision.
	revision revision

	once     sync.Once // for the fields below, once the session is made
	ceilings []policy.Ceiling
	err      error
}

// New makes the judge of the session that row gives, as it is at each moment.
func (k *Court) New(row func() store.Session) *Judge { return &Judge{court: k, row: row} }

// Rules gives the rules of this moment for a profile.
func (j *Judge) Rules(profile string) *Rules {
	c, saved := j.court.config.Load(), j.court.saved.Version()
	now := time.Now()
	if r := j.last.Load(); r != nil && r.config == c && r.profile == profile && r.saved == saved &&
		(r.until.IsZero() || now.Before(r.until)) {
		j.revision.holds(r.until)
		return r
	}
	row := j.row()
	r := &Rules{config: c, profile: profile, saved: saved, tools: j.court.tools, choices: c.Choices.of(profile, row.Tenant, &row), lacking: c.Choices.lacking(&row), older: row.Lacks}
	base, err := j.court.base(c, profile, row.Tenant)
	ceilings, final, cerr := j.ceilingsOf(&row)
	if r.err = cmp.Or(err, cerr); r.err == nil {
		var rules []policy.Rule
		rules, r.until = j.court.saved.RulesOf(row.Tenant, row.ID, profile, now)
		r.stack = base.With(ceilings...).Remember(rules)
		j.revision.holds(r.until)
	}
	if final {
		j.last.Store(r)
	}
	return r
}

// ceilingsOf gives the session's own rules and the worktree's. final is false
// while the session is being made: those of the worktree may not be read yet.
func (j *Judge) ceilingsOf(row *store.Session) (c []policy.Ceiling, final bool, err error) {
	if row.State == client.SessionCreating {
		c, err = Ceilings(row)
		return c, false, err
	}
	j.once.Do(func() { j.ceilings, j.err = Ceilings(row) })
	return j.ceilings, true, j.err
}

// PlacesOf is the lay of a session's sandbox, in which nothing is resolved yet.
func PlacesOf(row *store.Session) policy.Places {
	return policy.Places{
		Worktree: row.Worktree.Target, Mounts: Targets(row.Mounts), Closed: row.Closed, Granted: row.Granted,
		Alone: row.Alone || row.OnlyMounts && len(row.Closed) == len(row.Mounts),
	}
}

// Targets are the places inside where directories are mounted.
func Targets(mounts []client.Mount) []string {
	all := make([]string, 0, len(mounts))
	for _, mt := range mounts {
		all = append(all, mt.Target)
	}
	return slices.Clip(all)
}

// PermissionOf is the permission that a tool needs whatever its input.
func PermissionOf(d *tool.Definition) string {
	for _, p := range d.Permissions() {
		if p != policy.PermissionExternal {
			return p
		}
	}
	return d.Name
}
