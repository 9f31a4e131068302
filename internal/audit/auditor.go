package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/session"
)

// Log is what a session.Config wants.
var _ session.Auditor = (*Log)(nil)

// maxReason bounds a reason, in bytes: rules, approvers and hooks give them.
const maxReason = 4 << 10

// maxRequests bounds how many permissions of one decision are listed one by one.
const maxRequests = 256

// Decided implements session.Auditor.
func (l *Log) Decided(d *judge.Decision) error {
	b := record.Body{
		Time: d.Time.UTC(), Kind: record.KindDecision,
		Tenant: d.Principal.Tenant, Peer: peerOf(&d.Principal),
		Session: d.Session, Call: d.Call, Tool: d.Tool, Profile: d.Profile,
		InputHash: hex.EncodeToString(d.InputHash[:]),
		Verdict:   string(d.Verdict.Action), Rule: d.Verdict.Rule, Reason: plain.Cut(d.Verdict.Reason, maxReason),
		Provided: d.Provided, Approver: d.Approver, Approval: d.ApprovalID,
		Requests: requestsOf(d.Requests), RequestsMore: max(0, len(d.Requests)-maxRequests),
	}
	if d.Typed {
		b.Caller = &record.Caller{Typed: true}
	}
	switch {
	case !l.cfg.Inputs || len(d.Input) == 0:
	case len(d.Input) > record.MaxInput || !json.Valid(d.Input):
		b.InputBytes = len(d.Input)
	default:
		b.Input = d.Input
	}
	return l.write(&b, l.cfg.Strict)
}

// Finished implements session.Auditor.
func (l *Log) Finished(p auth.Principal, c *client.Call, outputHash [32]byte) error {
	b := record.Body{
		Time: l.now().UTC(), Kind: record.KindFinished,
		Tenant: p.Tenant, Peer: peerOf(&p), Session: c.SessionID, Call: c.ID, Tool: c.Tool,
		Status: string(c.Status), OutputHash: hex.EncodeToString(outputHash[:]),
		Times:         record.Times{Queued: &c.Time.Queued, Started: c.Time.Started, Ended: c.Time.Ended},
		AgentReported: reported(c), Caller: callerOf(c),
	}
	if len(c.Input) > 0 {
		sum := sha256.Sum256(c.Input)
		b.InputHash = hex.EncodeToString(sum[:])
	}
	if c.Permission != nil {
		b.Verdict, b.Rule, b.Approval = c.Permission.Verdict, c.Permission.Rule, c.Permission.ApprovalID
	}
	if c.Error != nil {
		b.Code = string(c.Error.Code)
	}
	return l.write(&b, false)
}

// Worktree implements session.Auditor.
func (l *Log) Worktree(p auth.Principal, s *client.Session, w record.Worktree) error {
	b := record.Body{
		Time: l.now().UTC(), Kind: record.KindWorktree,
		Tenant: s.Tenant, Peer: peerOf(&p), Session: s.ID, Profile: s.Profile, Act: record.Act{Worktree: &w},
	}
	return l.write(&b, l.cfg.Strict)
}

// Cache implements session.Auditor.
func (l *Log) Cache(p auth.Principal, s *client.Session, c record.Cache) error {
	b := record.Body{
		Time: l.now().UTC(), Kind: record.KindCache,
		Tenant: s.Tenant, Peer: peerOf(&p), Session: s.ID, Profile: s.Profile, Act: record.Act{Cache: &c},
	}
	return l.write(&b, l.cfg.Strict)
}

// Admin implements session.Auditor.
func (l *Log) Admin(p auth.Principal, a record.Admin) error {
	b := record.Body{Time: l.now().UTC(), Kind: record.KindAdmin, Tenant: p.Tenant, Peer: peerOf(&p), Act: record.Act{Admin: &a}}
	return l.write(&b, l.cfg.Strict)
}

// peerOf names the peer, where there is one: calls that an earlier daemon began
// have none any more.
func peerOf(p *auth.Principal) *record.Peer {
	if p.PID == 0 {
		return nil
	}
	return &record.Peer{UID: p.UID, GID: p.GID, PID: p.PID, Token: p.Session != "", AsAdmin: p.Admin}
}

func requestsOf(judged []judge.Judged) []record.Request {
	if len(judged) == 0 {
		return nil
	}
	listed := judged[:min(len(judged), maxRequests)]
	all := make([]record.Request, 0, len(listed))
	for _, j := range listed {
		all = append(all, record.Request{Permission: j.Request.Permission, Action: string(j.Action), Rule: j.Rule})
	}
	return all
}

// reported is what of a call's end only the agent knows.
func reported(c *client.Call) *record.AgentReported {
	if c.Time.Started == nil {
		return nil
	}
	a := &record.AgentReported{
		Bill:    record.Bill(c.Usage),
		IsError: c.IsError && c.Status == client.CallCompleted,
	}
	if s, ok := c.Metadata["reason"].(string); ok {
		a.Reason = plain.Cut(s, maxReason)
	}
	switch n := c.Metadata["exit_code"].(type) {
	case int:
		a.Exit = new(int64(n))
	case int64:
		a.Exit = &n
	case float64: // of a call that an earlier daemon began
		a.Exit = new(int64(n))
	}
	return a
}

func callerOf(c *client.Call) *record.Caller {
	if c.Key == "" && c.MessageID == "" && c.Agent == "" && c.Model == "" && len(c.Extra) == 0 && !c.Typed {
		return nil
	}
	v := &record.Caller{Key: c.Key, MessageID: c.MessageID, Agent: c.Agent, Model: c.Model, Typed: c.Typed}
	if json.Valid(c.Extra) {
		v.Extra = c.Extra
	}
	return v
}
