package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
)

// whole refuses a session's token where a user is wanted.
func (p Principal) whole() error {
	if p.Session == "" {
		return nil
	}
	return &client.Error{
		Code:    client.CodeForbidden,
		Message: "a session's token is good for calls in that session alone",
		Hint:    "ask as the user who created the session",
	}
}

// credential names what somebody came with: the session whose token it was, or
// else the user.
func credential(p Principal) string {
	if p.Session != "" {
		return "session " + p.Session
	}
	return fmt.Sprintf("uid %d", p.UID)
}

// find gives a live session by its id or name. Sessions of other tenants do not
// exist for the asker.
func (m *Manager) find(p Principal, idOrName string) (*Session, error) {
	m.mu.RLock()
	s := m.sessions[idOrName]
	if s == nil {
		s = m.names[tenantName{p.Tenant, idOrName}]
	}
	m.mu.RUnlock()
	if s == nil || s.tenant.name != p.Tenant || p.Session != "" && p.Session != s.id {
		return nil, noSession(idOrName)
	}
	return s, nil
}

// stored reads the row of a session, live or not.
func (m *Manager) stored(ctx context.Context, p Principal, id string) (*store.Session, error) {
	if !store.ValidID("ses_", id) {
		return nil, noSession(id)
	}
	row, err := m.store.Session(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, noSession(id)
	case err != nil:
		return nil, m.internal("read session "+id, err)
	case row.Tenant != p.Tenant || p.Session != "" && p.Session != row.ID:
		return nil, noSession(id)
	}
	return row, nil
}

// rowOf gives the row of a session, live or not.
func (m *Manager) rowOf(ctx context.Context, p Principal, idOrName string) (*store.Session, error) {
	if s, err := m.find(p, idOrName); err == nil {
		row := s.snapshotRow()
		return &row, nil
	}
	return m.stored(ctx, p, idOrName)
}

// sessionID checks that the asker may see a session, live or not.
func (m *Manager) sessionID(ctx context.Context, p Principal, idOrName string) (string, error) {
	row, err := m.rowOf(ctx, p, idOrName)
	if err != nil {
		return "", err
	}
	return row.ID, nil
}

func noSession(id string) error {
	return &client.Error{
		Code:    client.CodeNotFound,
		Message: fmt.Sprintf("there is no session %q", shown(id)),
		Hint:    "toolctl session list shows those that there are",
	}
}

func noCall(id string) error {
	return &client.Error{
		Code:    client.CodeNotFound,
		Message: fmt.Sprintf("there is no call %q", shown(id)),
		Hint:    "the calls of a session are listed at /v1/sessions/ID/calls",
	}
}

// shown is what a message may quote of something that a client sent.
func shown(s string) string { return plain.Cut(s, 80) }

// A token is "toold_", the random part of nothing but the session's id, and 256
// random bits. The id is there to find the session; only the bits are secret,
// and only the hash of the whole is kept.
const tokenPrefix = "toold_"

func newToken(session string) (token string, hash []byte) {
	var secret [32]byte
	// rand.Read does not return without randomness: the process ends instead.
	_, _ = rand.Read(secret[:])
	token = tokenPrefix + strings.TrimPrefix(session, "ses_") + "_" + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(token))
	return token, sum[:]
}

// TokenSession implements API.
func (m *Manager) TokenSession(token string) (holder Principal, ok bool) {
	id, _, _ := strings.Cut(strings.TrimPrefix(token, tokenPrefix), "_")
	id = "ses_" + id
	m.mu.RLock()
	s := m.sessions[id]
	m.mu.RUnlock()
	want := make([]byte, sha256.Size)
	if s != nil {
		row := s.snapshotRow()
		if len(row.TokenHash) == sha256.Size {
			want, ok = row.TokenHash, true
			holder = Principal{Tenant: s.tenant.name, Session: s.id, SessionName: row.Name}
		}
	}
	got := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(got[:], want) != 1 || !ok {
		return Principal{}, false
	}
	return holder, true
}

// internal logs a failure of our own and answers with its reference alone.
func (m *Manager) internal(what string, err error) error {
	if ce, ok := errors.AsType[*client.Error](err); ok {
		return ce
	}
	if errors.Is(err, store.ErrFull) {
		return &client.Error{
			Code:    client.CodeOverloaded,
			Message: "the disk that holds the daemon's state is full or cannot be written; nothing was begun",
			Hint:    "free space on the host, then try again",
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &client.Error{Code: client.CodeAborted, Message: what + ": the request ended before it was done"}
	}
	ref := m.store.NewID("err_")
	m.log.Error("internal error", "reference", ref, "doing", what, "error", err)
	return &client.Error{
		Code:    client.CodeInternal,
		Message: "internal error " + ref,
		Hint:    "the daemon's log has the cause under this reference",
	}
}

func invalidRequest(format string, args ...any) error {
	return &client.Error{Code: client.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}
