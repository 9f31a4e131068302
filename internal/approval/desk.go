// Package approval holds the calls that wait for approval: who is asked, what an
// approver sees and may answer, and which answers are saved.
package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/store"
)

// Bounds of what may wait and of what may be saved, so that nobody can fill the
// daemon's memory with either.
const (
	MaxPendingSession = 64
	maxPendingTenant  = 512
	MaxPendingBytes   = 32 << 20 // of the inputs of one tenant's
	maxSavedTenant    = 1000
)

// ProgramsAtOnce bounds how many programs that answer approvals run at a time on
// the host. The others wait, no longer than until their approvals expire.
const ProgramsAtOnce = 16

// Config is [approvals] of the configuration.
type Config struct {
	Timeout     time.Duration // how long an approval may stay pending; 0 = ten minutes
	None        bool          // nobody answers: what would be asked is denied at once
	SelfApprove bool          // the credential that made a call may approve it
	// Command, when set, is a program that answers: the approval as JSON on its
	// standard input, a client.ApprovalAnswer from its standard output. Whatever
	// goes wrong is a rejection.
	Command []string
}

// Expires is when an approval that is asked for now ends.
func (c *Config) Expires(now time.Time) time.Time { return now.Add(cmp.Or(c.Timeout, 10*time.Minute)) }

// Setup is what a Desk needs of the daemon.
type Setup struct {
	Store   *store.Store
	Log     *slog.Logger
	Config  func() *Config // of the moment
	Replied func(a *client.Approval, reply string, waited time.Duration)
	// Programs has one for each program that answers at the moment.
	Programs chan struct{}
}

// Desk has the pending approvals of all sessions and the rules that approvers have
// saved.
type Desk struct {
	Setup
	// version changes with the rules that are saved.
	version atomic.Uint64
	mu      sync.Mutex // guards the fields below
	pending map[string]*Pending
	saved   map[string][]*store.SavedApproval // by tenant, oldest first
}

// Pending is a call that waits for somebody to allow it.
type Pending struct {
	Row       store.Approval // as it was asked; it does not change
	Judgement *judge.Judgement
	// Unreadable says why an agent may not see what its call makes of files: the rules do not let it
	// read one of them. It is "" where it may; nil is always.
	Unreadable func() string
	// tell tells who listens to the call, and the agents among them toAgent where that is not nil.
	tell  func(typ string, data, toAgent any)
	reply chan Reply      // gets the one answer; capacity 1
	again chan struct{}   // says that the rules have changed; capacity 1
	told  atomic.Bool     // it is on disk, so it may be seen and answered
	over  <-chan struct{} // closed when the call has ended: it takes no answer then

	// mu is held while an answer is written, so that there is only one.
	mu  sync.Mutex // guards the field below
	end bool       // it was answered
}

// NewPending makes a pending approval. tell tells who listens to the call, which over, closed, says
// has ended.
func NewPending(row store.Approval, j *judge.Judgement, tell func(typ string, data, toAgent any), over <-chan struct{}) *Pending {
	return &Pending{Row: row, Judgement: j, tell: tell, over: over, reply: make(chan Reply, 1), again: make(chan struct{}, 1)}
}

// late reports whether the call has ended, and who asked for it has not said so yet.
func (p *Pending) late() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// Told lets it be seen and answered, and tells who listens to the call.
func (p *Pending) Told() {
	p.told.Store(true)
	p.tell(client.EventApprovalAsked, p.Shown(false), p.Shown(true))
}

// Rejudge has the call be judged again.
func (p *Pending) Rejudge() {
	select {
	case p.again <- struct{}{}:
	default: // it is about to be
	}
}

// Reply is how an approval ended.
type Reply struct {
	How     string // one of the replies
	By      string // "uid 1000", "command", "rules", ""
	Message string
	saved   []*store.SavedApproval
}

// Allows reports whether the call may run.
func (r Reply) Allows() bool { return r.How == Once || r.How == Always }

// told is what clients are told of the reply to the approval id.
func (r Reply) told(id string) *client.ApprovalReply {
	v := &client.ApprovalReply{ID: id, Answer: r.How, By: r.By, Message: r.Message}
	for _, saved := range r.saved {
		v.Saved = append(v.Saved, saved.SavedApproval)
	}
	return v
}

// The replies, as the store, observers and events have them.
const (
	Once    = string(client.AnswerOnce)
	Always  = string(client.AnswerAlways)
	Reject  = string(client.AnswerReject)
	Timeout = "timeout"
	Stale   = "stale"
	Gone    = "gone" // with its call or session
)

// ByRules is who answers when the rules have changed meanwhile.
const ByRules = "rules"

// ErrAnswered says that somebody else was first.
var ErrAnswered = errors.New("the approval was answered before")

// New makes a Desk. Load must be called before anything else.
func New(s Setup) *Desk {
	return &Desk{
		Setup:   s,
		pending: make(map[string]*Pending), saved: make(map[string][]*store.SavedApproval),
	}
}

// Load reads what was saved.
func (d *Desk) Load(ctx context.Context) error {
	saved, err := d.Store.Saved(ctx)
	if err != nil {
		return err
	}
	d.keep(saved)
	return nil
}

// EndLost ends approvals whose call ended without them.
func (d *Desk) EndLost(ctx context.Context) error {
	left, err := d.Store.PendingApprovals(ctx)
	if err != nil || len(left) == 0 {
		return err
	}
	return d.Store.Write(func(tx *store.Tx) error {
		for _, row := range left {
			row.Reply, row.Answered = Gone, new(time.Now().UTC())
			if err := tx.AnswerApproval(row); err != nil && !errors.Is(err, store.ErrExists) {
				return err
			}
		}
		return nil
	})
}

// Add registers a pending approval, unless too many wait already.
func (d *Desk) Add(p *Pending) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	session, tenant, bytes := 0, 0, len(p.Judgement.Inv.JSON)
	for _, o := range d.pending {
		if o.Row.Tenant == p.Row.Tenant {
			tenant++
			bytes += len(o.Judgement.Inv.JSON)
		}
		if o.Row.SessionID == p.Row.SessionID {
			session++
		}
	}
	if session < MaxPendingSession && tenant < maxPendingTenant && bytes <= MaxPendingBytes {
		d.pending[p.Row.ID] = p
		return nil
	}
	var e *fault.Error
	switch {
	case session >= MaxPendingSession:
		e = fault.Overloaded.Errorf("%d calls of session %s wait for approval, the maximum", session, p.Row.SessionID)
	case tenant >= maxPendingTenant:
		e = fault.Overloaded.Errorf("%d calls of tenant %s wait for approval, the maximum", tenant, p.Row.Tenant)
	default:
		e = fault.Overloaded.Errorf("the calls of tenant %s that wait for approval have inputs of %d bytes, with this one; at most %d", p.Row.Tenant, bytes, MaxPendingBytes)
	}
	return e.Next("have some of them answered, then try again: toolctl approvals")
}

func (d *Desk) remove(p *Pending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pending, p.Row.ID)
}

// get finds a pending approval of a tenant.
func (d *Desk) get(tenant, id string) *Pending {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.pending[id]; p != nil && p.Row.Tenant == tenant && p.told.Load() {
		return p
	}
	return nil
}

// of lists the pending approvals that ok selects.
func (d *Desk) of(ok func(*Pending) bool) []*Pending {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*Pending
	for _, p := range d.pending {
		if ok(p) {
			all = append(all, p)
		}
	}
	return all
}

// Settle ends an approval. The first to come decides; everyone else gets
// ErrAnswered. The end is on disk before anybody hears of it.
func (d *Desk) Settle(p *Pending, r Reply) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end || r.How != Gone && p.late() {
		return ErrAnswered
	}
	row := p.Row
	row.Reply, row.By, row.Message, row.Answered = r.How, r.By, r.Message, new(time.Now().UTC().Truncate(time.Millisecond))
	said := *r.told(row.ID)
	told := event.New(client.EventApprovalReplied, row.Tenant, row.SessionID, row.CallID, said)
	err := d.Store.Write(func(tx *store.Tx) error {
		if err := tx.AnswerApproval(&row); err != nil {
			return err
		}
		for _, v := range r.saved {
			if err := tx.InsertSaved(v); err != nil {
				return err
			}
		}
		tx.AddEvent(told)
		return nil
	})
	if err != nil {
		return fmt.Errorf("store the answer to approval %s: %w", row.ID, err)
	}
	p.end = true
	d.remove(p)
	d.keep(r.saved)
	p.tell(client.EventApprovalReplied, said, nil)
	d.Replied(&row.Approval, r.How, row.Answered.Sub(row.Created))
	p.reply <- r
	return nil
}

// Drop takes an approval out whose end could not be stored: its call ends, so
// nobody can answer it any more.
func (d *Desk) Drop(p *Pending) {
	p.mu.Lock()
	p.end = true
	p.mu.Unlock()
	d.remove(p)
}

// Rejudge has all pending calls judged again, "" for those of all tenants.
func (d *Desk) Rejudge(tenant string) {
	for _, p := range d.of(func(p *Pending) bool { return tenant == "" || p.Row.Tenant == tenant }) {
		p.Rejudge()
	}
}

// keep adds saved rules.
func (d *Desk) keep(saved []*store.SavedApproval) {
	if len(saved) == 0 {
		return
	}
	d.mu.Lock()
	for _, v := range saved {
		d.saved[v.Tenant] = append(d.saved[v.Tenant], v)
	}
	d.mu.Unlock()
	d.version.Add(1)
}

// unsave removes the saved rules that ok selects.
func (d *Desk) unsave(tenant string, ok func(*store.SavedApproval) bool) {
	d.mu.Lock()
	left := slices.DeleteFunc(d.saved[tenant], ok)
	gone := len(left) < len(d.saved[tenant])
	d.saved[tenant] = left
	d.mu.Unlock()
	if gone {
		d.version.Add(1)
	}
}

// Version implements judge.Saved.
func (d *Desk) Version() uint64 { return d.version.Load() }

// askAgain is how long rules of what was saved for a time are gone by: the clock may be set
// meanwhile, or the machine sleep.
const askAgain = time.Minute

// ends is when a saved rule ends, by the clock as it is now.
func ends(v *store.SavedApproval, now time.Time) time.Time {
	m := steady.Now()
	m.Wall = now
	return now.Add(m.Left(*v.Expires, v.Until))
}

// savers are the tenants that p asks about, of those that have saved something.
func (d *Desk) savers(p auth.Principal) []string {
	if !p.AllTenants {
		return []string{p.Tenant}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.saved))
}

// savedOf lists the saved rules of a tenant that have not expired.
func (d *Desk) savedOf(tenant string, now time.Time) []*store.SavedApproval {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*store.SavedApproval
	for _, v := range d.saved[tenant] {
		if v.Expires == nil || now.Before(ends(v, now)) {
			all = append(all, v)
		}
	}
	return all
}

// RulesOf implements judge.Saved: it gives what was saved for a session with this profile, and until when
// that holds; the zero time is for ever.
func (d *Desk) RulesOf(tenant, session, profile string, now time.Time) (rules []policy.Rule, until time.Time) {
	for _, v := range d.savedOf(tenant, now) {
		switch v.Scope {
		case client.ScopeSession:
			if v.SessionID != session {
				continue
			}
		case client.ScopeProfile:
			if v.Profile != profile {
				continue
			}
		case client.ScopeTenant:
		default:
			continue
		}
		rules = append(rules, policy.Rule{
			Permission: v.Permission, Pattern: v.Pattern, Action: policy.Allow,
			Reason: "saved by " + v.By, Source: "approval " + v.ID,
		})
		if v.Expires == nil {
			continue
		}
		end := ends(v, now)
		if again := now.Add(askAgain); v.Until != nil && again.Before(end) {
			end = again
		}
		if until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return rules, until
}

// SessionOver forgets what was saved for a session alone.
func (d *Desk) SessionOver(tenant, session string) {
	own := func(v *store.SavedApproval) bool { return v.Scope == client.ScopeSession && v.SessionID == session }
	d.unsave(tenant, own)
	if err := d.Store.Write(func(tx *store.Tx) error { return tx.DropSavedOf(session) }); err != nil {
		d.Log.Error("remove the approvals that were saved for the session", "session", session, "error", err)
	}
}

// PendingOf gives the approvals that a call waits for.
func (d *Desk) PendingOf(call string) []*Pending {
	return d.of(func(p *Pending) bool { return p.Row.CallID == call && p.told.Load() })
}
