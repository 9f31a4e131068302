// Package builtin knows the caches of common package managers and compilers: where each is
// in a sandbox, which variables lead there, and where a user of the host has it.
package builtin

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Root is where caches are in a sandbox, and nothing else.
const Root = "/caches"

// Cache is one that a session can ask for by name. It is one directory or several, which
// belong together: a base has all of them, or none.
type Cache struct {
	Name string
	Dirs []Dir
	// Env are variables for the tools besides those of the directories.
	Env map[string]string
}

// Dir is one directory of a cache.
type Dir struct {
	Name string // below Root and the cache's name
	Vars []string
	// Scratch is not part of what becomes a base: what a build writes and throws away.
	Scratch bool
	// Host are places where a user of a host has it, the best first. Each begins with a
	// variable, or with ~ for the home directory.
	Host []string
}

// Target is where the directory is in a sandbox.
func (c *Cache) Target(d *Dir) string { return filepath.Join(Root, c.Name, d.Name) }

// all are the built-in caches. What a tool keeps together with secrets of its user (the
// homes of cargo and Gradle) is never taken from a host.
var all = []Cache{
	{Name: "go", Dirs: []Dir{
		{Name: "build", Vars: []string{"GOCACHE"}, Host: []string{"$GOCACHE", "$XDG_CACHE_HOME/go-build", "~/.cache/go-build"}},
		{Name: "mod", Vars: []string{"GOMODCACHE"}, Host: []string{"$GOMODCACHE", "$GOPATH/pkg/mod", "~/go/pkg/mod"}},
		{Name: "tmp", Vars: []string{"GOTMPDIR"}, Scratch: true},
	}},
	{Name: "npm", Dirs: []Dir{{Name: "npm", Vars: []string{"npm_config_cache"}, Host: []string{"$npm_config_cache", "~/.npm"}}}},
	{Name: "pip", Dirs: []Dir{{Name: "pip", Vars: []string{"PIP_CACHE_DIR"}, Host: []string{"$PIP_CACHE_DIR", "$XDG_CACHE_HOME/pip", "~/.cache/pip"}}}},
	{
		Name: "uv", Dirs: []Dir{{Name: "uv", Vars: []string{"UV_CACHE_DIR"}, Host: []string{"$UV_CACHE_DIR", "$XDG_CACHE_HOME/uv", "~/.cache/uv"}}},
		Env: map[string]string{"UV_LINK_MODE": "copy"}, // the environment is on another file system
	},
	{Name: "cargo", Dirs: []Dir{{Name: "home", Vars: []string{"CARGO_HOME"}}}},
	{
		Name: "maven", Dirs: []Dir{{Name: "repository", Host: []string{"~/.m2/repository"}}},
		Env: map[string]string{"MAVEN_ARGS": "-Dmaven.repo.local=" + Root + "/maven/repository"},
	},
	{Name: "gradle", Dirs: []Dir{{Name: "home", Vars: []string{"GRADLE_USER_HOME"}}}},
	{Name: "ccache", Dirs: []Dir{{Name: "ccache", Vars: []string{"CCACHE_DIR"}, Host: []string{"$CCACHE_DIR", "$XDG_CACHE_HOME/ccache", "~/.cache/ccache"}}}},
}

// Find gives a built-in cache by its name.
func Find(name string) (*Cache, bool) {
	i := slices.IndexFunc(all, func(c Cache) bool { return c.Name == name })
	if i < 0 {
		return nil, false
	}
	return &all[i], true
}

// Names are those of all built-in caches.
func Names() []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// Environ gives the variables that lead tools to the cache.
func (c *Cache) Environ() map[string]string {
	env := maps.Clone(c.Env)
	if env == nil {
		env = map[string]string{}
	}
	for i := range c.Dirs {
		d := &c.Dirs[i]
		for _, v := range d.Vars {
			env[v] = c.Target(d)
		}
	}
	return env
}

// OnHost gives the directories of the cache that a user of this host has, by their names.
// getenv reads the user's environment; is says whether a path is a directory.
func (c *Cache) OnHost(getenv func(string) string, is func(path string) bool) map[string]string {
	found := map[string]string{}
	for i := range c.Dirs {
		for _, h := range c.Dirs[i].Host {
			if path := place(h, getenv); filepath.IsAbs(path) && is(path) {
				found[c.Dirs[i].Name] = path
				break
			}
		}
	}
	return found
}

// place is a path of Dir.Host, "" where its variable is not set.
func place(h string, getenv func(string) string) string {
	first, rest, _ := strings.Cut(h, "/")
	root := getenv("HOME")
	if name, ok := strings.CutPrefix(first, "$"); ok {
		root = getenv(name)
	}
	if root == "" {
		return ""
	}
	return filepath.Join(root, rest)
}
