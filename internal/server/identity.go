package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/plain"
)

// overflowUID is what the kernel reports for a peer whose user id has no mapping
// in the daemon's user namespace (/proc/sys/kernel/overflowuid).
const overflowUID = 65534

// Peers are users by uid and by group, supplementary groups included.
type Peers struct{ UIDs, GIDs []uint32 }

// IdentityConfig says who the users of this host are to the daemon.
type IdentityConfig struct {
	Admins  Peers
	Tenants map[string]Peers
}

// Identity maps peers to principals. It does not change once made.
type Identity struct {
	adminUID, adminGID   map[uint32]bool
	tenantUID, tenantGID map[uint32]string
	tenants              map[string]bool
}

// NewIdentity makes an Identity of cfg, in which nobody is in two tenants, or an admin and
// in another tenant than auth.DefaultTenant: package config refuses that.
func NewIdentity(cfg IdentityConfig) *Identity {
	id := &Identity{
		adminUID: set(cfg.Admins.UIDs), adminGID: set(cfg.Admins.GIDs),
		tenantUID: map[uint32]string{}, tenantGID: map[uint32]string{},
		tenants: map[string]bool{auth.DefaultTenant: true},
	}
	for name, p := range cfg.Tenants {
		id.tenants[name] = true
		for _, uid := range p.UIDs {
			id.tenantUID[uid] = name
		}
		for _, gid := range p.GIDs {
			id.tenantGID[gid] = name
		}
	}
	return id
}

// resolve says who a peer is. Its uid decides before its groups do.
func (id *Identity) resolve(p peer) (auth.Principal, error) {
	who := auth.Principal{UID: p.uid, GID: p.gid, Groups: p.groups, PID: p.pid}
	if !p.known {
		return who, forbidden("the connection does not tell who its peer is", "connect over the Unix socket itself")
	}
	if id.adminUID[p.uid] {
		who.Admin, who.Tenant = true, auth.DefaultTenant
		return who, nil
	}
	if t, ok := id.tenantUID[p.uid]; ok {
		who.Tenant = t
		return who, nil
	}
	if p.uid == overflowUID {
		return who, forbidden(fmt.Sprintf("uid %d is what users without a mapping in the daemon's user namespace look like", p.uid),
			"connect from the daemon's own user namespace")
	}
	return id.resolveGroups(who, p)
}

func (id *Identity) resolveGroups(who auth.Principal, p peer) (auth.Principal, error) {
	var tenants []string
	for _, g := range append([]uint32{p.gid}, p.groups...) {
		if id.adminGID[g] {
			who.Admin, who.Tenant = true, auth.DefaultTenant
			return who, nil
		}
		if t, ok := id.tenantGID[g]; ok && !slices.Contains(tenants, t) {
			tenants = append(tenants, t)
		}
	}
	switch len(tenants) {
	case 0:
		return who, forbidden(fmt.Sprintf("uid %d is neither an admin nor in a tenant", p.uid),
			"an admin can add it to [admin] or to a [tenant.NAME] of the daemon's config.toml")
	case 1:
		who.Tenant = tenants[0]
		return who, nil
	}
	slices.Sort(tenants)
	return who, forbidden(fmt.Sprintf("uid %d is by its groups in several tenants: %q", p.uid, tenants),
		"an admin can list the uid itself in one [tenant.NAME]")
}

// principal says who asks: the connection's peer, or the holder of a session's
// token, who may be a peer that is nobody otherwise. An admin may act for another
// tenant.
func (s *Server) principal(r *http.Request) (auth.Principal, error) {
	p, _ := r.Context().Value(peerKey{}).(peer)
	who, err := s.identity.Load().resolve(p)
	tenants := r.Header.Values("Toold-Tenant")
	if sent := r.Header.Values("Authorization"); len(sent) > 0 {
		return s.tokenHolder(r.Context(), p, sent, tenants)
	}
	if err != nil || len(tenants) == 0 {
		return who, err
	}
	if len(tenants) > 1 {
		return who, invalid("more than one Toold-Tenant header", "send one")
	}
	err = s.actFor(&who, tenants[0], "leave the tenant out: --tenant of toolctl, the header Toold-Tenant")
	return who, err
}

// actFor makes an admin act for another tenant. hint says how others ask.
func (s *Server) actFor(who *auth.Principal, tenant, hint string) error {
	switch {
	case tenant == who.Tenant:
	case !who.Admin:
		return forbidden("only admins may act for another tenant", hint)
	case !s.identity.Load().tenants[tenant]:
		return invalid(fmt.Sprintf("no tenant %q", plain.Cut(tenant, maxShown)), "the daemon's config.toml has them as [tenant.NAME]")
	}
	who.Tenant = tenant
	return nil
}

// tokenHolder is the principal of a request with an Authorization header. The
// peer's own rights do not count then: a token narrows what a request may do.
func (s *Server) tokenHolder(ctx context.Context, p peer, sent, tenants []string) (auth.Principal, error) {
	who := auth.Principal{UID: p.uid, GID: p.gid, Groups: p.groups, PID: p.pid}
	if !p.known || (p.uid == overflowUID && !s.identity.Load().lists(p.uid)) {
		return who, forbidden("tokens are not taken from peers without a mapped uid", "connect from the daemon's own user namespace")
	}
	token, ok := strings.CutPrefix(sent[0], "Bearer ")
	if !ok || len(sent) > 1 || len(tenants) > 0 {
		return who, invalid("Authorization must be one header, Bearer and a session's token, without Toold-Tenant", "see POST /v1/sessions, token")
	}
	holder, err := s.cfg.API.Sessions.TokenSession(ctx, token)
	if err != nil {
		return who, err
	}
	if !s.identity.Load().tenants[holder.Tenant] {
		// With the tenant its rules are gone, which this session was made under.
		return who, forbidden(fmt.Sprintf("the tenant %q of this session is not configured any more", holder.Tenant),
			"an admin can put it back into the daemon's config.toml, or end the session")
	}
	who.Session, who.SessionName, who.Tenant = holder.Session, holder.SessionName, holder.Tenant
	return who, nil
}

// lists reports whether the uid itself is configured.
func (id *Identity) lists(uid uint32) bool { return id.adminUID[uid] || id.tenantUID[uid] != "" }

func set(ns []uint32) map[uint32]bool {
	m := make(map[uint32]bool, len(ns))
	for _, n := range ns {
		m[n] = true
	}
	return m
}

func forbidden(message, hint string) *client.Error {
	return &client.Error{Code: client.CodeForbidden, Message: message, Hint: hint}
}
