package client

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// SessionQuery selects sessions. Those that have ended are listed only with All
// or with a State that says so.
type SessionQuery struct {
	State  SessionState
	Labels map[string]string // all of them must match
	All    bool
	After  string // List.Next of the page before
	Limit  int    // 0 = the daemon's default
	// AllTenants asks for those of all tenants: for admins, from daemons that have GET
	// /v1/sessions?tenant=*; others refuse it.
	AllTenants bool
}

// CreateSession makes a session and waits until it is ready.
func (c *Client) CreateSession(ctx context.Context, r SessionCreate) (*Session, error) {
	return await[Session](ctx, c, request{method: "POST", path: "/v1/sessions", body: r})
}

// CreateQueued is CreateSession that tells where the request stands while it waits
// for a place (r.Queue), from the calling goroutine. The wait ends with ctx.
func (c *Client) CreateQueued(ctx context.Context, r SessionCreate, queued func(SessionQueued)) (*Session, error) {
	return following[Session](ctx, c, request{method: "POST", path: "/v1/sessions", body: r}, "queued", queued)
}

// GetSession shows a session with its live usage.
func (c *Client) GetSession(ctx context.Context, id string) (*Session, error) {
	return fetch[Session](ctx, c, request{method: "GET", path: sessionPath(id)})
}

// ListSessions gives one page of sessions.
func (c *Client) ListSessions(ctx context.Context, q SessionQuery) (*List[Session], error) {
	v := url.Values{}
	setNonEmpty(v, "state", string(q.State))
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		v.Add("label", k+"="+q.Labels[k])
	}
	setFlag(v, "all", q.All)
	setPage(v, q.After, q.Limit)
	setAllTenants(v, q.AllTenants)
	return fetch[List[Session]](ctx, c, request{method: "GET", path: "/v1/sessions", query: v})
}

// PatchSession changes labels, time to live or profile of a live session.
func (c *Client) PatchSession(ctx context.Context, id string, r SessionPatch) (*Session, error) {
	return fetch[Session](ctx, c, request{method: "PATCH", path: sessionPath(id), body: r})
}

// EndOptions say how a session is ended.
type EndOptions struct {
	Force bool // running calls get no grace
	Keep  bool // whole outputs stay until their retention
	// Discard drops the changes of a worktree of mode "overlay" with the session, also of
	// one that is over already. Without it they are kept until Worktree.KeptUntil.
	Discard bool
}

// EndSession ends a session and waits until nothing of it is alive.
func (c *Client) EndSession(ctx context.Context, id string, o EndOptions) (*Session, error) {
	v := url.Values{}
	setFlag(v, "force", o.Force)
	setFlag(v, "keep", o.Keep)
	setFlag(v, "discard", o.Discard)
	return await[Session](ctx, c, request{method: "DELETE", path: sessionPath(id), query: v})
}

func sessionPath(id string, below ...string) string {
	return strings.Join(append([]string{"/v1/sessions", url.PathEscape(id)}, below...), "/")
}

// setAllTenants asks for what all tenants have.
func setAllTenants(v url.Values, all bool) {
	if all {
		v.Set("tenant", "*")
	}
}

func setPage(v url.Values, after string, limit int) {
	setNonEmpty(v, "after", after)
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
}
