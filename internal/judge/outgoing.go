package judge

import (
	"sync"
	"time"

	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
)

// Outgoing judges a connection of the session, or an HTTP request on one, as a call with this
// profile makes it. Records name the permission where those of calls name the tool.
func (j *Judge) Outgoing(profile string, q policy.Request) *Judgement {
	input, _ := policy.OutgoingInput(q.Permission, q.Pattern)
	inv := &tool.Invocation{Tool: &tool.Definition{Name: q.Permission}, JSON: input}
	m := &Judgement{Question: Question{Profile: profile, Inv: inv}, requests: []policy.Request{q}}
	j.Weigh(m)
	return m
}

// revision counts the rules of a session.
type revision struct {
	mu     sync.Mutex // guards the fields below
	n      uint64
	config *Config
	saved  uint64
	until  time.Time // that what was saved holds, for whichever profile; zero: until it changes
}

// holds notes how long rules hold that were given to somebody.
func (r *revision) holds(until time.Time) {
	if until.IsZero() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until.IsZero() || until.Before(r.until) {
		r.until = until
	}
}

// Anew moves the revision: whose rules hold for what is open may be another's now.
func (j *Judge) Anew() {
	j.revision.mu.Lock()
	defer j.revision.mu.Unlock()
	j.revision.config = nil
}

// Revision changes with the rules of the session: those of the file, and what approvers have saved,
// taken back, or allowed until now; and with Anew.
func (j *Judge) Revision() uint64 {
	c, saved, now := j.court.config.Load(), j.court.saved.Version(), time.Now()
	r := &j.revision
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config != c || r.saved != saved || !r.until.IsZero() && !now.Before(r.until) {
		row := j.row()
		r.n, r.config, r.saved = r.n+1, c, saved
		_, r.until = j.court.saved.RulesOf(row.Tenant, row.ID, row.Profile, now)
	}
	return r.n
}

// Stack gives the rules themselves; nil where everything is denied.
func (r *Rules) Stack() *policy.Stack {
	if r.err != nil {
		return nil
	}
	return r.stack
}
