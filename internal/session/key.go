package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
)

// keyHash is over all that a request asks for, and who asks. What it saw of a directory is no part: the
// same one may have been made anew.
func keyHash(p auth.Principal, r *client.SessionCreate) ([]byte, error) {
	asked := *r
	asked.Worktree.Seen = ""
	asked.Mounts = slices.Clone(asked.Mounts)
	for i := range asked.Mounts {
		asked.Mounts[i].Seen = ""
	}
	b, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d:", p.UID)
	_, _ = h.Write(b) // a hash takes everything
	return h.Sum(nil), nil
}

// keyed gives the session that a request with this key has made before; nil where
// there is none. One that is being made is waited for. A request that failed has
// made none: its key is free again.
func (l *life) keyed(ctx context.Context, p auth.Principal, r *client.SessionCreate) (*client.Session, error) {
	if len(r.Key) > maxKey || !plain.Printable(r.Key) {
		return nil, fault.In(fault.Invalid.Errorf("key is UTF-8 text without control characters, at most %d bytes", maxKey), "key")
	}
	hash, err := keyHash(p, r)
	if err != nil {
		return nil, err
	}
	for {
		l.mu.RLock()
		s := l.keys[tenantName{p.Tenant, r.Key}]
		l.mu.RUnlock()
		if s == nil {
			v, err := l.keyedOver(ctx, p, r.Key, hash)
			if errors.Is(err, errKeyTaken) {
				continue
			}
			return v, err
		}
		if row := s.Row(); !bytes.Equal(row.KeyHash, hash) {
			return nil, keyTaken(&row)
		}
		made, err := l.awaitMade(ctx, s)
		if err != nil {
			return nil, err
		}
		if !made {
			continue
		}
		v := s.snapshot(ctx)
		if r.Token {
			v.Token, err = renewToken(s)
		}
		return v, err
	}
}

// keyedOver is keyed for sessions that are over. One that another request has begun
// to make meanwhile is errKeyTaken.
func (l *life) keyedOver(ctx context.Context, p auth.Principal, key string, hash []byte) (*client.Session, error) {
	row, err := l.store.SessionByKey(ctx, p.Tenant, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case !bytes.Equal(row.KeyHash, hash):
		return nil, keyTaken(row)
	}
	l.mu.RLock()
	live := l.sessions[row.ID] != nil
	l.mu.RUnlock()
	if live {
		return nil, errKeyTaken
	}
	return l.past(ctx, row)
}

func keyTaken(row *store.Session) error {
	return fault.Conflict.Errorf("key %q belongs to session %s, which had another request or another user", row.Key, row.ID).
		Next("use another key for another session")
}

// awaitMade waits until the session is ready, or has failed to be so and is gone.
func (l *life) awaitMade(ctx context.Context, s *Session) (made bool, err error) {
	if s.making == nil { // an earlier daemon made it
		return true, nil
	}
	select {
	case <-s.making:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if row := s.Row(); row.Key != "" && row.State != client.SessionCreating {
		return true, nil
	}
	l.mu.RLock()
	known := l.keys[tenantName{s.tenant.Name, s.key}] == s
	l.mu.RUnlock()
	if !known {
		return false, nil
	}
	select {
	case <-s.over:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// renewToken gives the session another token: only a hash is kept of the one that
// the first answer had.
func renewToken(s *Session) (string, error) {
	token, hash := auth.NewToken(s.id)
	err := s.write("", func(r *store.Session) error { r.TokenHash = hash; return nil })
	return token, err
}
