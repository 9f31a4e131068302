package session

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
)

// caching is the part of a session that is its caches, and its mounts of mode cow: a layer of
// the session's own over a directory of the host.
type caching struct {
	nothing
	roster *roster
}

// maxCaches bounds the caches of a session.
const maxCaches = 16

func (c caching) claim(_ context.Context, pl *plan) error {
	if len(pl.req.Caches) > maxCaches {
		return fault.In(fault.Invalid.Errorf("%d caches; at most %d", len(pl.req.Caches), maxCaches).Next("leave some out"), "caches")
	}
	pl.caches.env = map[string]string{}
	for i := range pl.req.Caches {
		if err := c.claimOne(pl, &pl.req.Caches[i]); err != nil {
			return fault.In(err, "caches", strconv.Itoa(i))
		}
	}
	if len(pl.req.Caches) > 0 {
		if err := checkCachePlaces(pl); err != nil {
			return err
		}
	}
	for i := range pl.req.Mounts {
		if mt := &pl.req.Mounts[i]; mt.Mode == client.MountCow {
			if err := c.claimMount(pl, mt); err != nil {
				return fmt.Errorf("mount %s: %w", mt.Target, fault.In(err, "mounts", strconv.Itoa(i)))
			}
		}
	}
	return nil
}

// checkCachePlaces checks the places of caches together with all others.
func checkCachePlaces(pl *plan) error {
	places := []string{pl.req.Worktree.Target}
	for _, m := range pl.req.Mounts {
		places = append(places, m.Target)
	}
	for _, m := range pl.caches.mounts {
		if !under(m.Target, builtin.Root) { // where no request can have anything else
			places = append(places, m.Target)
		}
	}
	return checkFields(places, len(pl.req.Mounts))
}

// claimMount makes of a mount of mode cow what a cache is that begins with a directory of the
// host. Its target is its name, which no cache can have.
func (c caching) claimMount(pl *plan, mt *client.Mount) error {
	d, err := c.roster.pinMount(pl, mt)
	if err != nil {
		return err
	}
	pl.caches.mounts = append(pl.caches.mounts, mountOf(d, mt.Target)) // which has it closed
	u := cache.Use{Name: mt.Target, Mode: client.CacheCow, Size: pl.disk, Dirs: []cache.Dir{{Name: "mount", From: &d.Source}}, Mount: true}
	if err := c.roster.cfg.Trees.Bounded(); err != nil && pl.disk > 0 {
		u.Size = 0
		pl.notes = append(pl.notes, fmt.Sprintf("what is written at %s lies in the state directory: its size has no bound (%v)", mt.Target, err))
	}
	if u.Size > 0 {
		pl.req.Limits.Disk = u.Size
		pl.caches.places = append(pl.caches.places, store.CachePlace{Target: mt.Target, Size: u.Size})
	}
	pl.caches.uses = append(pl.caches.uses, u)
	return nil
}

// claimOne checks what is asked for of one cache.
func (c caching) claimOne(pl *plan, r *client.CacheUse) error {
	set := pl.set.Caches.Of(pl.p.Tenant, r.Name)
	if set == nil {
		return fault.Invalid.Errorf("there is no cache %q; there are: %s", shown(r.Name), strings.Join(pl.set.Caches.Names(pl.p.Tenant), ", ")).
			Next("name one of these, or have an admin add it to the configuration as [[cache]]")
	}
	if r.Mode != "" && r.Mode != set.Mode {
		return fault.Invalid.Errorf("cache %s has the mode %s, and is asked for with the mode %q", set.Name, set.Mode, shown(string(r.Mode))).
			Next("leave the mode, or the cache, out; a project file may ask for caches of mode cow")
	}
	if slices.ContainsFunc(pl.caches.uses, func(u cache.Use) bool { return u.Name == r.Name }) {
		return fault.Invalid.Errorf("cache %s is asked for twice", r.Name).Next("name it once")
	}
	u := cache.Use{Name: set.Name, Mode: set.Mode, Size: set.Size}
	if err := c.roster.cfg.Trees.Bounded(); err != nil {
		u.Size = 0
		pl.notes = append(pl.notes, fmt.Sprintf("cache %s lies in the state directory: its size has no bound (%v)", u.Name, err))
	}
	if set.Mode == client.CacheShared {
		pl.notes = append(pl.notes, fmt.Sprintf("cache %s is shared: what any session of the tenant writes there, all others read and may run", u.Name))
	}
	for i := range set.Dirs {
		if err := c.claimDir(pl, set, &set.Dirs[i], &u, r.From); err != nil {
			return err
		}
	}
	for name := range r.From {
		if !slices.ContainsFunc(set.Dirs, func(d builtin.Dir) bool { return d.Name == name }) {
			return fault.Invalid.Errorf("cache %s has no directory %q to begin with", set.Name, shown(name)).
				Next("leave it out of from")
		}
	}
	pl.caches.uses = append(pl.caches.uses, u)
	maps.Copy(pl.caches.env, set.Environ())
	return nil
}

// claimDir opens what one directory is to begin with.
func (c caching) claimDir(pl *plan, set *cache.Setting, d *builtin.Dir, u *cache.Use, from map[string]string) error {
	dir := cache.Dir{Name: d.Name, Scratch: d.Scratch}
	m := sandbox.Mount{Target: set.Target(d)}
	if source := from[d.Name]; source != "" {
		if set.Mode == client.CacheShared {
			return fault.Invalid.Errorf("cache %s is shared: it cannot begin with a directory of the host", set.Name).Next("leave from out")
		}
		rules := pl.set.mountRules()
		rules.AnyRoot = pl.p.Admin
		pinned, err := c.roster.pinDirectory(pl.p, rules, source)
		if err != nil {
			return fmt.Errorf("cache %s, from %s: %w", set.Name, d.Name, err)
		}
		m = mountOf(pinned, m.Target)
		dir.From = &pinned.Source
	}
	pl.caches.mounts = append(pl.caches.mounts, m) // which has it closed
	u.Dirs = append(u.Dirs, dir)
	if u.Size > 0 {
		pl.caches.places = append(pl.caches.places, store.CachePlace{Cache: set.Name, Target: m.Target, Size: u.Size})
	}
	return nil
}

// open makes the layers that the session writes to, and gives them to the sandbox.
func (c caching) open(_ context.Context, s *Session, pl *plan) (err error) {
	plan := &pl.caches
	if len(plan.uses) == 0 {
		return nil
	}
	if plan.opened, err = c.roster.cfg.Caches.Begin(s.id, s.tenant.Name, plan.uses); err != nil {
		return err
	}
	for i, l := range plan.opened.Layers {
		m := plan.mounts[i]
		if l.Source != nil {
			m.Source = l.Source
		}
		if l.Upper == nil {
			m.Write = true
		} else {
			m.Overlay = &sandbox.Overlay{Upper: l.Upper}
			if l.Lower != nil {
				m.Overlay.Lower = append(m.Overlay.Lower, l.Lower)
			}
		}
		pl.spec.Mounts = append(pl.spec.Mounts, m)
	}
	return nil
}

// close throws away what the session wrote.
func (c caching) close(s *Session, _ ending, left error) (notes []string, err error) {
	if left != nil {
		return nil, nil // something may still write to it: it is found again as a leftover
	}
	return nil, c.roster.cfg.Caches.End(s.id)
}

// leftovers are the caches of sessions that are over.
func (c caching) leftovers(context.Context) (all []leftover, err error) {
	store := c.roster.cfg.Caches
	sessions, err := store.Sessions()
	for _, id := range sessions {
		if c.roster.liveByID(id) != nil {
			continue
		}
		all = append(all, leftover{
			Garbage: client.Garbage{Kind: "cache", Name: path.Base(id), Session: id, Bytes: store.SessionBytes(id)},
			remove:  func() error { return store.End(id) },
		})
	}
	return all, err
}
