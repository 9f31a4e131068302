package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/toold/toold/client"
)

// Session is a session's row.
type Session struct {
	// Session is what clients see. Usage and Token are not kept.
	client.Session
	// Request is what was asked for, without the values of its environment:
	// those may be secrets, and only the sandbox needs them.
	Request client.SessionCreate `json:"request"`
	// OwnerUID is the uid of the peer that created the session.
	OwnerUID    uint32 `json:"owner_uid"`
	Incarnation string `json:"incarnation"`
	Nonce       []byte `json:"nonce"`
	UIDBase     uint32 `json:"uid_base"`
	// LeaseStart is the start time, in clock ticks, of the process LeasePID.
	LeaseStart uint64 `json:"lease_start,omitempty"`
	// Shell runs the commands of bash as long as the session lives; its text is
	// read accordingly. nil in rows of earlier versions.
	Shell []string `json:"shell,omitempty"`
	// WorktreeRules is the text of the worktree's rules file at creation.
	WorktreeRules string `json:"worktree_rules,omitempty"`
	// Record is the driver's, empty until the sandbox was made.
	Record json.RawMessage `json:"record,omitempty"`
	// Keep says that the outputs stay until retention although it has ended.
	Keep bool `json:"keep,omitempty"`
	// KeyHash is a hash of all that was asked for with Key.
	KeyHash []byte `json:"key_hash,omitempty"`
	// TokenHash is the SHA-256 of the bearer token, nil without one.
	TokenHash []byte `json:"-"`
}

// Live reports whether the session may still have a sandbox.
func (s *Session) Live() bool {
	return s.State != client.SessionEnded && s.State != client.SessionLost
}

const sqlPutSession = `INSERT INTO sessions (id, tenant, name, key, state, live, created, ended, token_hash, body)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (id) DO UPDATE SET name = excluded.name, key = excluded.key, state = excluded.state, live = excluded.live,
		ended = excluded.ended, token_hash = excluded.token_hash, body = excluded.body`

// PutSession writes a session's row. ErrExists when another live session of the
// tenant has its name, or any other its key.
func (tx *Tx) PutSession(s *Session) error {
	body := *s
	body.Usage, body.Token = client.Usage{}, ""
	b, err := json.Marshal(&body)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID, err)
	}
	live := 0
	if s.Live() {
		live = 1
	}
	_, err = tx.st.putSession.Exec(s.ID, s.Tenant, s.Name, s.Key, string(s.State), live,
		s.Created.UnixMilli(), millis(s.Ended), s.TokenHash, b)
	return err
}

// DropSession removes the row of a session of which nothing ever existed.
func (tx *Tx) DropSession(id string) error {
	_, err := tx.st.dropSession.Exec(id)
	return err
}

// SessionFilter selects sessions, oldest first.
type SessionFilter struct {
	Tenant string // "" = all
	Live   bool   // only those that have neither ended nor been lost
	State  client.SessionState
	After  string // an id
	Limit  int    // 0 = no limit
}

const sqlSessionColumns = "SELECT body, token_hash FROM sessions "

// Session reads one session.
func (s *Store) Session(ctx context.Context, id string) (*Session, error) {
	row := s.rd.session.QueryRowContext(ctx, id)
	v, err := scanSession(row.Scan)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", classify(err))
	}
	return v, nil
}

// SessionByKey reads the session of a tenant that was made with this key.
func (s *Store) SessionByKey(ctx context.Context, tenant, key string) (*Session, error) {
	row := s.rd.sessionByKey.QueryRowContext(ctx, tenant, key)
	v, err := scanSession(row.Scan)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", classify(err))
	}
	return v, nil
}

// Sessions lists sessions.
func (s *Store) Sessions(ctx context.Context, f SessionFilter) ([]*Session, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = -1
	}
	live := 0
	if f.Live {
		live = 1
	}
	all, err := list(ctx, s.rd.sessions.QueryContext, scanSession, f.After, f.Tenant, f.Tenant, live, string(f.State), string(f.State), limit)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return all, nil
}

func scanSession(scan scanner) (*Session, error) {
	var body, token []byte
	if err := scan(&body, &token); err != nil {
		return nil, err
	}
	v := &Session{TokenHash: token}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return v, nil
}

// CountCalls counts the calls that a session has had.
func (s *Store) CountCalls(ctx context.Context, session string) (int64, error) {
	if err := s.flush(ctx); err != nil {
		return 0, fmt.Errorf("count calls: %w", err)
	}
	var n int64
	err := s.rd.countCalls.QueryRowContext(ctx, session).Scan(&n)
	return n, classify(err)
}

// readers are the prepared statements of the reading connections.
type readers struct {
	prepared

	session, sessionByKey, sessions, countCalls   *sql.Stmt
	call, callByKey, calls, openCalls, oldOutputs *sql.Stmt
	events                                        *sql.Stmt
	leases                                        *sql.Stmt
}

func prepareReaders(ctx context.Context, db *sql.DB) (*readers, error) {
	rd := &readers{}
	return rd, rd.prepare(ctx, db, []statement{
		{&rd.session, sqlSessionColumns + "WHERE id = ?"},
		{&rd.sessionByKey, sqlSessionColumns + "WHERE tenant = ? AND key = ? AND key <> ''"},
		{&rd.sessions, sqlSessionColumns + "WHERE id > ? AND (? = '' OR tenant = ?) AND live >= ? AND (? = '' OR state = ?) ORDER BY id LIMIT ?"},
		{&rd.countCalls, "SELECT count(*) FROM calls WHERE session = ?"},
		{&rd.call, sqlCallColumns + "WHERE id = ?"},
		{&rd.callByKey, sqlCallColumns + "WHERE session = ? AND key = ? AND key <> ''"},
		{&rd.calls, sqlCallColumns + "WHERE session = ? AND id > ? AND (? = '' OR status = ?) AND (? = '' OR tool = ?) ORDER BY id LIMIT ?"},
		{&rd.openCalls, sqlCallColumns + "WHERE session = ? AND status IN ('pending', 'running') ORDER BY id"},
		{&rd.oldOutputs, "SELECT session, id FROM calls WHERE id < ? AND out_file = 1 AND ended > 0 AND ended < ? ORDER BY id LIMIT ?"},
		{&rd.events, sqlEvents},
		{&rd.leases, "SELECT base, session, quarantined, reason FROM leases ORDER BY base"},
	})
}

// lastID is the newest id of any row, so that new ids sort after it.
func (s *Store) lastID(ctx context.Context) (string, error) {
	var last string
	var newest uint64
	for _, table := range []string{"sessions", "calls", "events"} {
		var id sql.NullString
		if err := s.read.QueryRowContext(ctx, "SELECT max(id) FROM "+table).Scan(&id); err != nil {
			return "", err
		}
		if t := ticks(id.String); t > newest {
			last, newest = id.String, t
		}
	}
	return last, nil
}
