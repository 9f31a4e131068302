// Package auth says who makes a request: a user of the host, or the holder of a
// session's token.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/toold/toold/internal/fault"
)

// DefaultTenant is the tenant of admins.
const DefaultTenant = "default"

// Principal is who asks. The server makes it once per connection, from the peer's
// credentials, and never from anything that the client says.
type Principal struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
	PID      int32
	Tenant   string
	Admin    bool
	// AllTenants is set when an admin asks about what all tenants have. Tenant is the one
	// that the admin acts for all the same.
	AllTenants bool
	// Session is set when the request came with a session's bearer token: it is
	// then good for calls in that session and nothing else. SessionName is the
	// session's name, "" for none.
	Session, SessionName string
}

// Sees reports whether what belongs to a session of a tenant exists for p.
func (p Principal) Sees(tenant, session string) bool {
	return (p.AllTenants || tenant == p.Tenant) && (p.Session == "" || p.Session == session)
}

// Of is whose things p asks about: a tenant, "" for all of them.
func (p Principal) Of() string {
	if p.AllTenants {
		return ""
	}
	return p.Tenant
}

// Whole refuses a session's token where a user is wanted.
func (p Principal) Whole() error {
	if p.Session == "" {
		return nil
	}
	return fault.Forbidden.Errorf("a session's token is good for calls in that session alone").
		Next("ask as the user who created the session")
}

// Administers refuses everybody but administrators.
func (p Principal) Administers() error {
	if p.Admin && p.Session == "" {
		return nil
	}
	return fault.Forbidden.Errorf("this is for administrators").Next("ask as a user of the configuration's [admin] section")
}

// Credential names what p came with: the session whose token it was, or else the
// user. Two principals with the same one are the same to approvals.
func (p Principal) Credential() string {
	if p.Session != "" {
		return "session " + p.Session
	}
	return fmt.Sprintf("uid %d", p.UID)
}

// TokenPrefix begins every token. After it come the random part of nothing but the
// session's id, and 256 random bits. The id is there to find the session; only the
// bits are secret, and only the hash of the whole is kept.
const TokenPrefix = "toold_"

// NewToken makes a token for a session, and the hash of it that is kept.
func NewToken(session string) (token string, hash []byte) {
	var secret [32]byte
	// rand.Read does not return without randomness: the process ends instead.
	_, _ = rand.Read(secret[:])
	token = TokenPrefix + strings.TrimPrefix(session, "ses_") + "_" + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(token))
	return token, sum[:]
}

// TokenSession is the id of the session that a token claims to be of.
func TokenSession(token string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(token, TokenPrefix), "_")
	return "ses_" + id
}

// TokenIs reports whether hash is that of the token. It takes as long for no hash at
// all as for a wrong one.
func TokenIs(token string, hash []byte) bool {
	known := len(hash) == sha256.Size
	want := make([]byte, sha256.Size)
	if known {
		want = hash
	}
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], want) == 1 && known
}
