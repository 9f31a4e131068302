package cache

import (
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache/builtin"
)

// Setting is what holds for a cache that sessions can ask for.
type Setting struct {
	builtin.Cache
	Path   string // of its one directory inside; "" for a built-in one
	Tenant string // whose it is; "" for any
	Mode   client.CacheMode
	Size   client.Size
	// Promote are profiles whose sessions the tenant's users may promote.
	Promote []string
}

// Target is where a directory of the cache is in a sandbox.
func (s *Setting) Target(d *builtin.Dir) string {
	if s.Path != "" {
		return s.Path
	}
	return s.Cache.Target(d)
}

// Environ are variables that lead tools to the cache.
func (s *Setting) Environ() map[string]string {
	env := s.Cache.Environ()
	if s.Path != "" {
		for k := range env {
			env[k] = s.Path
		}
	}
	return env
}

// Settings are all caches that sessions can ask for.
type Settings []Setting

// Of is what holds for a cache of a tenant: what is said for it alone goes before what is
// said for all. nil: there is no such cache.
func (all Settings) Of(tenant, name string) *Setting {
	var found *Setting
	for i := range all {
		c := &all[i]
		if c.Name == name && (c.Tenant == tenant || c.Tenant == "" && found == nil) {
			found = c
		}
	}
	return found
}

// Names are those of all caches that a tenant's sessions may have.
func (all Settings) Names(tenant string) []string {
	var names []string
	for i := range all {
		if t := all[i].Tenant; t == "" || t == tenant {
			names = append(names, all[i].Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
