package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/steady"
)

// Approval is the row of an approval: what approvers see of it, what its call
// needs to be taken up again by another daemon, and how it was answered.
type Approval struct {
	client.Approval
	// UID, GID and PID are of the peer that made the call; Token is the session
	// whose bearer token it came with, "" for none.
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	PID   int32  `json:"pid"`
	Token string `json:"token,omitempty"`
	// Start is that of the process PID (auth.Process), where it made the call for an admin and not for
	// an agent; else 0.
	Start uint64 `json:"start,omitempty"`
	// State is a hash of everything that the approval is bound to.
	State []byte `json:"state"`
	// TimeoutMillis, Split and Env are the call's; of its environment only the
	// names are kept, since the values may be secrets.
	TimeoutMillis int64    `json:"timeout_ms,omitempty"`
	Split         bool     `json:"split,omitempty"`
	Env           []string `json:"env,omitempty"`
	Hidden        bool     `json:"hidden,omitempty"`

	// Reply is how it ended, "" while it is pending; By who ended it, and Message
	// what they said.
	Reply    string     `json:"reply,omitempty"`
	By       string     `json:"by,omitempty"`
	Message  string     `json:"message,omitempty"`
	Answered *time.Time `json:"answered,omitempty"`
	// Until stands beside Expires; nil in rows of earlier versions.
	Until *steady.Deadline `json:"until,omitempty"`
}

// SavedApproval is the row of a rule that an approver has saved.
type SavedApproval struct {
	client.SavedApproval
	// Until stands beside Expires; nil without that, and in rows of earlier versions.
	Until *steady.Deadline `json:"until,omitempty"`
}

const (
	sqlSweepApprovals = "DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE id < ? AND answered > 0 AND answered < ? LIMIT ?)"
	sqlSweepSaved     = "DELETE FROM saved_approvals WHERE id IN (SELECT id FROM saved_approvals WHERE expires > 0 AND expires < ? LIMIT ?)"
)

// Takes is how many bytes of the disk an approval takes: its row and the event that says
// the same. The answer is small.
func (a *Approval) Takes() int64 {
	b, _ := json.Marshal(a) // InsertApproval says what is wrong with it
	return 2 * int64(len(b))
}

// InsertApproval adds a pending approval, and counts what it takes to the record of its
// call.
func (tx *Tx) InsertApproval(a *Approval) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("approval %s: %w", a.ID, err)
	}
	if _, err := tx.st.exec("INSERT INTO approvals (id, tenant, session, call, reply, answered, body) VALUES (?, ?, ?, ?, '', 0, ?)",
		a.ID, a.Tenant, a.SessionID, a.CallID, b); err != nil {
		return err
	}
	_, err = tx.st.exec("UPDATE calls SET beside = beside + ? WHERE id = ?", a.Takes(), a.CallID)
	return err
}

// AnswerApproval writes how an approval ended. ErrExists when that is written
// already, ErrNotFound when there is no such approval: it ends once.
func (tx *Tx) AnswerApproval(a *Approval) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("approval %s: %w", a.ID, err)
	}
	r, err := tx.st.exec("UPDATE approvals SET reply = ?, answered = ?, body = ? WHERE id = ? AND reply = ''",
		a.Reply, millis(a.Answered), b, a.ID)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return fmt.Errorf("answer approval %s: it is not pending: %w", a.ID, ErrExists)
}

// InsertSaved keeps a rule that an approver has saved.
func (tx *Tx) InsertSaved(a *SavedApproval) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("saved approval %s: %w", a.ID, err)
	}
	_, err = tx.st.exec("INSERT INTO saved_approvals (id, tenant, session, expires, body) VALUES (?, ?, ?, ?, ?)",
		a.ID, a.Tenant, a.SessionID, millis(a.Expires), b)
	return err
}

// DropSaved removes a saved rule.
func (tx *Tx) DropSaved(id string) error {
	_, err := tx.st.exec("DELETE FROM saved_approvals WHERE id = ?", id)
	return err
}

// DropSavedOf removes the rules that were saved for one session.
func (tx *Tx) DropSavedOf(session string) error {
	_, err := tx.st.exec("DELETE FROM saved_approvals WHERE session = ? AND session <> ''", session)
	return err
}

// ReplaceInput changes what a call that has not ended asks for.
func (tx *Tx) ReplaceInput(call string, input json.RawMessage) error {
	_, err := tx.st.exec("UPDATE calls SET input = ? WHERE id = ? AND ended = 0", []byte(input), call)
	return err
}

// RequeueCall makes a running call a pending one again: it turned out that it has
// not run.
func (tx *Tx) RequeueCall(call string) error {
	_, err := tx.st.exec("UPDATE calls SET status = 'pending', started = 0 WHERE id = ? AND ended = 0", call)
	return err
}

// Approval reads one approval.
func (s *Store) Approval(ctx context.Context, id string) (_ *Approval, err error) {
	defer naming(&err, "read approval")
	return one(ctx, &s.rd, "SELECT body FROM approvals WHERE id = ?", scanJSON[Approval], id)
}

// OpenApprovals lists the last approval of each call of a session that has not
// ended, answered or not.
func (s *Store) OpenApprovals(ctx context.Context, session string) ([]*Approval, error) {
	if err := s.flush(ctx); err != nil {
		return nil, fmt.Errorf("list open approvals: %w", err)
	}
	return list(ctx, &s.rd, `SELECT body FROM approvals a WHERE session = ?
		AND EXISTS (SELECT 1 FROM calls WHERE calls.id = a.call AND status = 'pending')
		AND NOT EXISTS (SELECT 1 FROM approvals b WHERE b.call = a.call AND b.id > a.id) ORDER BY id`, scanJSON[Approval], session)
}

// PendingApprovals lists approvals that were never answered and whose call has
// ended: their daemon died between the two.
func (s *Store) PendingApprovals(ctx context.Context) ([]*Approval, error) {
	if err := s.flush(ctx); err != nil {
		return nil, fmt.Errorf("list pending approvals: %w", err)
	}
	return list(ctx, &s.rd, `SELECT body FROM approvals a WHERE answered = 0
		AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.id = a.call AND status = 'pending') ORDER BY id`, scanJSON[Approval])
}

// Saved lists the saved rules of all tenants, oldest first.
func (s *Store) Saved(ctx context.Context) ([]*SavedApproval, error) {
	return list(ctx, &s.rd, "SELECT body FROM saved_approvals ORDER BY id", scanJSON[SavedApproval])
}

func scanJSON[T any](scan scanner) (*T, error) {
	body, err := column[[]byte](scan)
	if err != nil {
		return nil, err
	}
	v := new(T)
	return v, unmarshal(body, v)
}

// RecentFilter selects calls, newest first.
type RecentFilter struct {
	Session string // "" = all
	Tenant  string // "" = all
	Since   time.Time
	Limit   int
}

// Recent gives calls to fn, one after the other and newest first, so that no more
// than one is in memory. It stops with fn's error.
func (s *Store) Recent(ctx context.Context, f RecentFilter, fn func(*Call) error) (err error) {
	defer naming(&err, "list recent calls")
	if err := s.flush(ctx); err != nil {
		return err
	}
	since := ""
	if !f.Since.IsZero() {
		since = idAt("call_", f.Since)
	}
	query, args := sqlCallColumns+"WHERE id > ? AND (? = '' OR tenant = ?) ORDER BY id DESC LIMIT ?", []any{since, f.Tenant, f.Tenant, f.Limit}
	if f.Session != "" { // has an index of its own
		query, args = sqlCallColumns+"WHERE session = ? AND id > ? AND (? = '' OR tenant = ?) ORDER BY id DESC LIMIT ?",
			[]any{f.Session, since, f.Tenant, f.Tenant, f.Limit}
	}
	return each(ctx, &s.rd, query, scanCall, fn, args...)
}

// SweepApprovals removes approvals that were answered before a time, and saved ones
// that have expired now.
func (s *Store) SweepApprovals(ctx context.Context, before, now time.Time) (_ int64, err error) {
	defer naming(&err, "sweep approvals")
	return sweep(
		ctx,
		s.deletion(sqlSweepApprovals, idAt("apr_", before), before.UnixMilli(), sweepRows),
		s.deletion(sqlSweepSaved, now.UnixMilli(), sweepRows),
	)
}
