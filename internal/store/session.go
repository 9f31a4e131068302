package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/worktree"
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
	// HomeDisk says that the home directory lies on a disk of limits.disk.
	HomeDisk bool `json:"home_disk,omitempty"`
	// CachePlaces are the directories of its caches that have a bound.
	CachePlaces []CachePlace `json:"cache_places,omitempty"`
	// Alone says that it reaches nothing of a person's beside its worktree: no mount that is not Granted, no cache that
	// others write, nothing of the host but its programs. OnlyMounts says so of all but mounts. Both are
	// false in rows of earlier versions.
	Alone      bool `json:"alone,omitempty"`
	OnlyMounts bool `json:"only_mounts,omitempty"`
	// Closed are the targets of mounts that its agent keeps from commands which name nothing in them (see
	// wire.KnowsUnseen). nil in rows of earlier versions, whose commands see all.
	Closed []string `json:"closed,omitempty"`
	// Sources are the directories of the host that it was given, the worktree's first if it has
	// one. nil in rows of earlier versions.
	Sources []Source `json:"sources,omitempty"`
	// Granted says that whoever asked for its mounts is the only one there is, so that no built-in
	// rule asks about them.
	Granted bool `json:"granted,omitempty"`
	// WorktreeRules is the text of the worktree's rules file at creation.
	WorktreeRules string `json:"worktree_rules,omitempty"`
	// Record is the driver's, empty until the sandbox was made.
	Record json.RawMessage `json:"record,omitempty"`
	// Until stands beside Expires; nil without that, and in rows of earlier versions.
	Until *steady.Deadline `json:"until,omitempty"`
	// Born stands beside Created; nil in rows of earlier versions.
	Born *steady.Deadline `json:"born,omitempty"`
	// Keep says that the outputs stay until retention although it has ended.
	Keep bool `json:"keep,omitempty"`
	// KeyHash is a hash of all that was asked for with Key.
	KeyHash []byte `json:"key_hash,omitempty"`
	// Lacks are the tools that its agent, of an older toold, has not.
	Lacks []string `json:"lacks,omitempty"`
	// Internal says that the daemon made it for a request of somebody's, with which it ends. false in rows of
	// earlier versions.
	Internal bool `json:"internal,omitempty"`
	// Tasks is the agent's list of tasks.
	Tasks Tasks `json:"tasks,omitzero"`
	// TokenHash is the SHA-256 of the bearer token, nil without one.
	TokenHash []byte `json:"-"`
}

// CachePlace is a directory inside that belongs to a cache; those of one cache share its Size.
// One that belongs to none is a mount of mode cow.
type CachePlace struct {
	Cache  string      `json:"cache,omitempty"`
	Target string      `json:"target"`
	Size   client.Size `json:"size"`
}

// Source is a directory of the host that a session has at Target.
type Source struct {
	worktree.Source
	Target string `json:"target"`
	// Is says what was at its path instead when it was last looked at, or that something was mounted in
	// it; "" = the directory itself, as it was.
	Is string `json:"is,omitempty"`
	// Mounted is what was mounted in it when the session was made: see worktree.Mounts. "" where that is not
	// known, and in rows of earlier versions.
	Mounted string `json:"mounted,omitempty"`
}

// IsMountedIn reports whether it is at its path, with something mounted in it that its session does not see.
func (s *Source) IsMountedIn() bool { return s.Is == worktree.IsMountedIn }

// Tasks is a list of tasks, and the call that wrote it.
type Tasks struct {
	Call string        `json:"call"`
	List []client.Todo `json:"list"`
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
	_, err = tx.st.exec(sqlPutSession, s.ID, s.Tenant, s.Name, s.Key, string(s.State), s.Live(),
		s.Created.UnixMilli(), millis(s.Ended), s.TokenHash, b)
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
func (s *Store) Session(ctx context.Context, id string) (_ *Session, err error) {
	defer naming(&err, "read session")
	return one(ctx, &s.rd, sqlSessionColumns+"WHERE id = ?", scanSession, id)
}

// SessionByKey reads the session of a tenant that was made with this key.
func (s *Store) SessionByKey(ctx context.Context, tenant, key string) (_ *Session, err error) {
	defer naming(&err, "read session")
	return one(ctx, &s.rd, sqlSessionColumns+"WHERE tenant = ? AND key = ? AND key <> ''", scanSession, tenant, key)
}

// Sessions lists sessions.
func (s *Store) Sessions(ctx context.Context, f SessionFilter) (_ []*Session, err error) {
	defer naming(&err, "list sessions")
	limit := f.Limit
	if limit <= 0 {
		limit = -1
	}
	return list(ctx, &s.rd, sqlSessionColumns+"WHERE id > ? AND (? = '' OR tenant = ?) AND live >= ? AND (? = '' OR state = ?) ORDER BY id LIMIT ?", scanSession,
		f.After, f.Tenant, f.Tenant, f.Live, string(f.State), string(f.State), limit)
}

func scanSession(scan scanner) (*Session, error) {
	var body, token []byte
	if err := scan(&body, &token); err != nil {
		return nil, err
	}
	v := &Session{TokenHash: token}
	return v, unmarshal(body, v)
}

// CountCalls counts the calls that a session has had.
func (s *Store) CountCalls(ctx context.Context, session string) (_ int64, err error) {
	defer naming(&err, "count calls")
	if err := s.flush(ctx); err != nil {
		return 0, err
	}
	return one(ctx, &s.rd, "SELECT count(*) FROM calls WHERE session = ?", column[int64], session)
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
