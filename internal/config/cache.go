package config

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/cache/builtin"
)

// minCache is the least that a cache may have.
const minCache = 16 << 20

var (
	cacheName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)
)

func (v *validator) caches(c *Config) {
	v.check(c.Daemon.Caches >= minCache, "daemon.caches", "must be at least 16MiB")
	type entry struct{ name, tenant string }
	seen := map[entry]bool{}
	for i := range c.Caches {
		x := &c.Caches[i]
		at := func(key string) string { return strings.Join([]string{"cache", strconv.Itoa(i + 1), key}, ".") }
		v.check(cacheName.MatchString(x.Name), at("name"), "%q is not 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit", x.Name)
		v.check(!seen[entry{x.Name, x.Tenant}], at("name"), "%q is there already", x.Name)
		seen[entry{x.Name, x.Tenant}] = true
		if x.Mode != "" {
			v.oneOf(at("mode"), x.Mode, []string{"cow", "shared"})
		}
		v.check(x.Size == 0 || x.Size >= minCache, at("size"), "must be at least 16MiB")
		if _, ok := c.Tenants[x.Tenant]; x.Tenant != "" && x.Tenant != auth.DefaultTenant && !ok {
			v.check(false, at("tenant"), "there is no [tenant.%s]", x.Tenant)
		}
		v.cachePlace(x, at)
	}
}

// cachePlace checks where a cache is in a session.
func (v *validator) cachePlace(x *Cache, at func(string) string) {
	if _, ok := builtin.Find(x.Name); ok {
		v.check(x.Path == "" && len(x.Env) == 0, at("path"), "%s is built in: leave path and env out, or give the cache another name", x.Name)
		return
	}
	v.check(x.Path == "" || filepath.IsAbs(x.Path) && filepath.Clean(x.Path) == x.Path, at("path"),
		"%q is no absolute path: nothing can be mounted in a session's home directory; give one such as /caches/%s, and the variables that lead there in env", x.Path, x.Name)
	for _, name := range x.Env {
		v.check(variable.MatchString(name), at("env"), "%q is no name of a variable", name)
	}
}
