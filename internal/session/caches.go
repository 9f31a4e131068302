package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
)

// Caches are what tenants keep for later sessions.
type Caches struct{ *roster }

// Bytes is what is kept of caches, and what live sessions have added to them.
func (c *Caches) Bytes() (kept, layers int64) { return c.cfg.Caches.Bytes() }

// Check is a line of doctor: what is kept, what may be, and whether each cache has a bound.
func (c *Caches) Check() client.Check {
	check := client.Check{Group: "disk", Name: "caches", Status: client.CheckOK}
	list, err := c.cfg.Caches.List("")
	if err != nil {
		check.Status, check.Detail = client.CheckFail, err.Error()
		check.Hint = "no cache is swept while it is there: put the file back from a backup, or remove it, and that cache begins anew"
		return check
	}
	kept, layers := c.Bytes()
	check.Detail = fmt.Sprintf("%d are kept, %s; live sessions have added %s", len(list), client.Size(kept), client.Size(layers))
	if most := c.settings.Load().CacheBytes; most > 0 {
		check.Detail += fmt.Sprintf("; at most %s are kept (daemon.caches)", client.Size(most))
	}
	if err := c.cfg.Trees.Bounded(); err != nil {
		check.Status = client.CheckWarn
		check.Detail += "; what a session adds has no bound: " + err.Error()
		check.Hint = "sessions with --cache can fill the state directory: it takes mke2fs (e2fsprogs) and loop devices"
	}
	return check
}

// ListCaches implements server.Caches.
func (c *Caches) ListCaches(_ context.Context, p auth.Principal) (client.List[client.Cache], error) {
	items, err := c.cfg.Caches.List(p.Of())
	if err != nil {
		return client.List[client.Cache]{}, c.internal("list caches", err)
	}
	return client.List[client.Cache]{Items: items}, nil
}

// RemoveCache implements server.Caches.
func (c *Caches) RemoveCache(_ context.Context, p auth.Principal, name string) error {
	set := c.settings.Load().Caches.Of(p.Tenant, name)
	if !p.Admin && set != nil && set.Mode == client.CacheCow {
		return fault.Forbidden.Errorf("what was promoted is removed by admins: %s", name).Next("ask an admin")
	}
	if err := c.audit(p, &client.Session{Tenant: p.Tenant}, record.Cache{Operation: "remove", Name: name}); err != nil {
		return err
	}
	err := c.cfg.Caches.Remove(p.Tenant, name)
	if errors.Is(err, cache.ErrNone) {
		return fault.NotFound.Errorf("nothing is kept of a cache %q", shown(name)).Next("toolctl cache ls lists what is kept")
	}
	if err != nil {
		return c.internal("remove a cache", err)
	}
	return nil
}

// stillFor is how long running calls are waited for by a promotion.
const stillFor = 2 * time.Second

// PromoteCache implements server.Caches.
func (c *Caches) PromoteCache(ctx context.Context, p auth.Principal, id, name string) (*client.Cache, error) {
	s, err := c.notOver(ctx, p, id)
	if err != nil {
		return nil, err
	}
	row := s.Row()
	if err := c.mayPromote(p, &row, name); err != nil {
		return nil, err
	}
	if err := c.audit(p, &row.Session, record.Cache{Operation: "promote", Name: name}); err != nil {
		return nil, err
	}
	release, err := quieten(ctx, s)
	if err != nil {
		return nil, err
	}
	defer release()
	made, err := c.cfg.Caches.Promote(ctx, s.id, name)
	if err != nil {
		return nil, c.internal("promote a cache", notPromoted(&row, name, err))
	}
	c.publish(s.event(client.EventCachePromoted, made))
	return made, nil
}

// mayPromote: what becomes a base, all later sessions run. The profile must be the one that
// the session began with, too: in another one it may have run anything.
func (c *Caches) mayPromote(p auth.Principal, row *store.Session, name string) error {
	if p.Admin {
		return nil
	}
	set := c.settings.Load().Caches.Of(row.Tenant, name)
	if set != nil && slices.Contains(set.Promote, row.Profile) && slices.Contains(set.Promote, row.Request.Profile) {
		return nil
	}
	return fault.Forbidden.Errorf("sessions with the profile %s may not promote the cache %s", row.Profile, shown(name)).
		Next("ask an admin, who can also name the profile in the cache's setting promote")
}

// quieten waits until nothing of the tools runs in a session.
func quieten(ctx context.Context, s *Session) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, stillFor)
	defer cancel()
	if release, err = s.calls.Still(ctx); err != nil {
		return nil, fault.Conflict.Errorf("calls of session %s are running, and may be writing to the cache", s.id).
			Next("wait for them to end, or abort them: toolctl abort " + s.id + " CALL")
	}
	if e, err := s.Errand(); err == nil {
		if err := e.Aside(ctx); err != nil {
			s.log.Warn("end waiting shells before a promotion", "error", err)
		}
	}
	return release, nil
}

// notPromoted words what a promotion failed for.
func notPromoted(row *store.Session, name string, err error) error {
	switch {
	case errors.Is(err, cache.ErrNone):
		return fault.NotFound.Errorf("session %s has no cache %q", row.ID, shown(name)).Next(fmt.Sprintf("create sessions with it: toolctl session create --cache %s", shown(name)))
	case errors.Is(err, cache.ErrShared):
		return fault.Invalid.Errorf("cache %s is shared: what a session writes is there for all at once, without a promotion", name)
	case errors.Is(err, unix.ENOSPC) && !errors.Is(err, cache.ErrFull):
		return fault.Overloaded.Errorf("the host's disk has no room for cache %s: %w", name, err).Next(freesSpace + "; then try again")
	case errors.Is(err, cache.ErrFull):
		return fault.Quota.Errorf("cache %s would be larger than it may be", name).
			Next(fmt.Sprintf("give it a larger size in [[cache]], or begin anew: toolctl cache rm %s", name))
	}
	return err
}

func (c *Caches) audit(p auth.Principal, s *client.Session, what record.Cache) error {
	if c.cfg.Auditor == nil {
		return nil
	}
	return c.cfg.Auditor.Cache(p, s, what)
}
