package client

import (
	"context"
	"net/url"
	"time"
)

// CacheUse asks for a cache in a session: a built-in one or one of the configuration.
type CacheUse struct {
	Name string `json:"name"`
	// Mode refuses a cache that the configuration gives another one; "" takes any.
	Mode CacheMode `json:"mode,omitempty"`
	// From are directories of the host that the session begins with instead of what was
	// promoted, by the names of the cache's directories ("build" and "mod" of go). They are
	// read and never written. The same rules hold for them as for mounts.
	From map[string]string `json:"from,omitempty"`
}

// CacheMode says who sees what a session writes to a cache.
type CacheMode string

// The modes of caches.
const (
	// CacheCow: what the session writes is its own, and is thrown away with it.
	CacheCow CacheMode = "cow"
	// CacheShared: all sessions of the tenant write to one directory, and trust each other.
	CacheShared CacheMode = "shared"
)

// Cache is what a tenant keeps of one cache for later sessions.
type Cache struct {
	Name   string    `json:"name"`
	Tenant string    `json:"tenant"`
	Mode   CacheMode `json:"mode"`
	Size   Size      `json:"size"`  // the most that it may have
	Bytes  int64     `json:"bytes"` // on the host's disk
	Files  int64     `json:"files,omitempty"`
	// Session is the one whose layer this was, Made when that was promoted, or when a shared
	// one was made, and Used when a session last began with it.
	Session string    `json:"session,omitempty"`
	Made    time.Time `json:"made"`
	Used    time.Time `json:"used"`
	// Skipped is how many entries a promotion left out: devices, sockets and the like.
	Skipped int64 `json:"skipped,omitempty"`
}

// EventCachePromoted is the type of an event: what a session wrote to a cache is what later
// ones begin with. Its data is a Cache.
const EventCachePromoted = "cache.promoted"

// ofCaches are the methods of a Client about what the tenant keeps of caches.
type ofCaches struct{ c *Client }

// CacheQuery selects caches.
type CacheQuery struct {
	AllTenants bool // those of all tenants, for admins
}

// ListCaches lists what the tenant keeps of caches.
func (x ofCaches) ListCaches(ctx context.Context, q CacheQuery) (*List[Cache], error) {
	v := url.Values{}
	setAllTenants(v, q.AllTenants)
	return fetch[List[Cache]](ctx, x.c, request{method: "GET", path: "/v1/caches", query: v})
}

// RemoveCache removes what the tenant keeps of a cache. Sessions that have it keep it.
func (x ofCaches) RemoveCache(ctx context.Context, name string) error {
	return x.c.wait(ctx, request{method: "DELETE", path: "/v1/caches/" + url.PathEscape(name)}, nil)
}

// PromoteCache makes the cache of a live session, as it is now, what later sessions begin
// with. For admins, and for the tenant's users where the configuration trusts the session's
// profile with it.
func (x ofCaches) PromoteCache(ctx context.Context, session, name string) (*Cache, error) {
	return await[Cache](ctx, x.c, request{method: "POST", path: sessionPath(session, "caches", url.PathEscape(name), "promote")})
}
