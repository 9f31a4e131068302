package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
)

// Bounds of what may wait and of what may be saved, so that nobody can fill the
// daemon's memory with either.
const (
	maxPendingSession = 64
	maxPendingTenant  = 512
	maxPendingBytes   = 32 << 20 // of the inputs of one tenant's
	maxSavedTenant    = 1000
)

// programsAtOnce bounds how many programs that answer approvals run at a time on
// the host. The others wait, no longer than until their approvals expire.
const programsAtOnce = 16

// approvals are the pending approvals of all sessions and the rules that
// approvers have saved.
type approvals struct {
	m *Manager
	// version changes with the rules that are saved.
	version atomic.Uint64
	// programs has one for each program that answers at the moment.
	programs chan struct{}

	mu      sync.Mutex // guards the fields below
	pending map[string]*pending
	saved   map[string][]*client.SavedApproval // by tenant, oldest first
}

// pending is a call that waits for somebody to allow it.
type pending struct {
	c     *call
	j     *judge.Judgement
	row   store.Approval // as it was asked; it does not change
	reply chan reply     // gets the one answer; capacity 1
	again chan struct{}  // says that the rules have changed; capacity 1
	told  atomic.Bool    // it is on disk, so it may be seen and answered

	// mu is held while an answer is written, so that there is only one.
	mu  sync.Mutex // guards the field below
	end bool       // it was answered
}

// reply is how an approval ended.
type reply struct {
	how     string // one of the replies
	by      string // "uid 1000", "command", "rules", ""
	message string
	saved   []*client.SavedApproval
}

// The replies, as the store, observers and events have them.
const (
	replyOnce    = string(client.AnswerOnce)
	replyAlways  = string(client.AnswerAlways)
	replyReject  = string(client.AnswerReject)
	replyTimeout = "timeout"
	replyStale   = "stale"
	replyGone    = "gone" // with its call or session
)

// byRules is who answers when the rules have changed meanwhile.
const byRules = "rules"

var errAnswered = errors.New("the approval was answered before")

func newApprovals(m *Manager) *approvals {
	return &approvals{
		m: m, programs: make(chan struct{}, programsAtOnce),
		pending: make(map[string]*pending), saved: make(map[string][]*client.SavedApproval),
	}
}

// load reads what was saved.
func (a *approvals) load(ctx context.Context) error {
	saved, err := a.m.store.Saved(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	for _, v := range saved {
		a.saved[v.Tenant] = append(a.saved[v.Tenant], v)
	}
	a.mu.Unlock()
	a.version.Add(1)
	return nil
}

// endLost ends approvals whose call ended without them.
func (a *approvals) endLost(ctx context.Context) error {
	left, err := a.m.store.PendingApprovals(ctx)
	if err != nil || len(left) == 0 {
		return err
	}
	return a.m.store.Write(func(tx *store.Tx) error {
		for _, row := range left {
			row.Reply, row.Answered = replyGone, new(time.Now().UTC())
			if err := tx.AnswerApproval(row); err != nil && !errors.Is(err, store.ErrExists) {
				return err
			}
		}
		return nil
	})
}

// add registers a pending approval, unless too many wait already.
func (a *approvals) add(p *pending) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	session, tenant, bytes := 0, 0, len(p.j.Inv.JSON)
	for _, o := range a.pending {
		if o.row.Tenant == p.row.Tenant {
			tenant++
			bytes += len(o.j.Inv.JSON)
		}
		if o.c.s == p.c.s {
			session++
		}
	}
	if session < maxPendingSession && tenant < maxPendingTenant && bytes <= maxPendingBytes {
		a.pending[p.row.ID] = p
		return nil
	}
	e := &client.Error{Code: client.CodeOverloaded, Hint: "have some of them answered, then try again: toolctl approvals"}
	switch {
	case session >= maxPendingSession:
		e.Message = fmt.Sprintf("%d calls of session %s wait for approval, which is as many as may", session, p.row.SessionID)
	case tenant >= maxPendingTenant:
		e.Message = fmt.Sprintf("%d calls of tenant %s wait for approval, which is as many as may", tenant, p.row.Tenant)
	default:
		e.Message = fmt.Sprintf("the calls of tenant %s that wait for approval have inputs of %d bytes, with this one; at most %d", p.row.Tenant, bytes, maxPendingBytes)
	}
	return e
}

func (a *approvals) remove(p *pending) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, p.row.ID)
}

// get finds a pending approval of a tenant.
func (a *approvals) get(tenant, id string) *pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pending[id]; p != nil && p.row.Tenant == tenant && p.told.Load() {
		return p
	}
	return nil
}

// of lists the pending approvals that ok selects.
func (a *approvals) of(ok func(*pending) bool) []*pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*pending
	for _, p := range a.pending {
		if ok(p) {
			all = append(all, p)
		}
	}
	return all
}

// settle ends an approval. The first to come decides; everyone else gets
// errAnswered. The end is on disk before anybody hears of it.
func (a *approvals) settle(p *pending, r reply) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end {
		return errAnswered
	}
	row := p.row
	row.Reply, row.By, row.Message, row.Answered = r.how, r.by, r.message, new(time.Now().UTC().Truncate(time.Millisecond))
	said := client.ApprovalReply{ID: row.ID, Answer: r.how, By: r.by, Message: r.message}
	event := p.c.s.event(client.EventApprovalReplied, said)
	event.Call = p.c.id
	err := a.m.store.Write(func(tx *store.Tx) error {
		if err := tx.AnswerApproval(&row); err != nil {
			return err
		}
		for _, v := range r.saved {
			if err := tx.InsertSaved(v); err != nil {
				return err
			}
		}
		tx.AddEvent(event)
		return nil
	})
	if err != nil {
		return fmt.Errorf("store the answer to approval %s: %w", row.ID, err)
	}
	p.end = true
	a.remove(p)
	a.keep(r.saved)
	p.c.tell(client.EventApprovalReplied, said)
	a.m.observe(func(o Observer) { o.ApprovalReplied(&row.Approval, r.how, row.Answered.Sub(row.Created)) })
	p.reply <- r
	return nil
}

// drop takes an approval out whose end could not be stored: its call ends, so
// nobody can answer it any more.
func (a *approvals) drop(p *pending) {
	p.mu.Lock()
	p.end = true
	p.mu.Unlock()
	a.remove(p)
}

// rejudge has all pending calls judged again, "" for those of all tenants.
func (a *approvals) rejudge(tenant string) {
	for _, p := range a.of(func(p *pending) bool { return tenant == "" || p.row.Tenant == tenant }) {
		select {
		case p.again <- struct{}{}:
		default: // it is about to be
		}
	}
}

// keep adds saved rules.
func (a *approvals) keep(saved []*client.SavedApproval) {
	if len(saved) == 0 {
		return
	}
	a.mu.Lock()
	for _, v := range saved {
		a.saved[v.Tenant] = append(a.saved[v.Tenant], v)
	}
	a.mu.Unlock()
	a.version.Add(1)
}

// unsave removes the saved rules that ok selects.
func (a *approvals) unsave(tenant string, ok func(*client.SavedApproval) bool) {
	a.mu.Lock()
	var left []*client.SavedApproval
	for _, v := range a.saved[tenant] {
		if !ok(v) {
			left = append(left, v)
		}
	}
	gone := len(left) < len(a.saved[tenant])
	a.saved[tenant] = left
	a.mu.Unlock()
	if gone {
		a.version.Add(1)
	}
}

// Version implements judge.Saved.
func (a *approvals) Version() uint64 { return a.version.Load() }

// savedOf lists the saved rules of a tenant that have not expired.
func (a *approvals) savedOf(tenant string, now time.Time) []*client.SavedApproval {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*client.SavedApproval
	for _, v := range a.saved[tenant] {
		if v.Expires == nil || now.Before(*v.Expires) {
			all = append(all, v)
		}
	}
	return all
}

// RulesOf implements judge.Saved: it gives what was saved for a session with this profile, and until when
// that holds; the zero time is for ever.
func (a *approvals) RulesOf(tenant, session, profile string, now time.Time) (rules []policy.Rule, until time.Time) {
	for _, v := range a.savedOf(tenant, now) {
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
		if v.Expires != nil && (until.IsZero() || v.Expires.Before(until)) {
			until = *v.Expires
		}
	}
	return rules, until
}

// sessionOver forgets what was saved for a session alone.
func (a *approvals) sessionOver(s *Session) {
	own := func(v *client.SavedApproval) bool { return v.Scope == client.ScopeSession && v.SessionID == s.id }
	a.unsave(s.tenant.name, own)
	if err := a.m.store.Write(func(tx *store.Tx) error { return tx.DropSavedOf(s.id) }); err != nil {
		s.log.Error("remove the approvals that were saved for the session", "error", err)
	}
}
