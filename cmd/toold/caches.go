package main

import (
	"cmp"
	"path/filepath"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/config"
)

// cacheSize is what a cache may have of which nothing is said.
const cacheSize = 5 << 30

// cacheSettings are the caches that sessions can ask for: those of the configuration, and
// those which are built in.
func cacheSettings(configured []config.Cache) cache.Settings {
	var all cache.Settings
	for i := range configured {
		c := &configured[i]
		s := cache.Setting{
			Tenant: c.Tenant, Mode: cmp.Or(client.CacheMode(c.Mode), client.CacheCow), Size: cmp.Or(c.Size, cacheSize), Promote: c.Promote,
		}
		if known, ok := builtin.Find(c.Name); ok {
			s.Cache = *known
		} else {
			s.Cache = builtin.Cache{Name: c.Name, Dirs: []builtin.Dir{{Name: c.Name, Vars: c.Env}}}
			s.Path = cmp.Or(c.Path, filepath.Join(builtin.Root, c.Name))
		}
		all = append(all, s)
	}
	for _, name := range builtin.Names() {
		known, _ := builtin.Find(name) // it is one of them
		general := false
		for i := range configured {
			general = general || configured[i].Name == name && configured[i].Tenant == ""
		}
		if !general {
			all = append(all, cache.Setting{Cache: *known, Mode: client.CacheCow, Size: cacheSize})
		}
	}
	return all
}
