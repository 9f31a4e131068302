package config

import "slices"

// unsupported are settings that belong to toold but not to this version. Each
// is refused by name: a rule that is silently ignored is worse than none. A
// "*" stands for any one part of a key.
var unsupported = [][]string{
	{"daemon", "debug_listen"},
	{"sandbox", "strict"},
	{"sandbox", "pool"},
	{"limits", "jobs"},
	{"network", "allow"},
	{"network", "deny"},
	{"network", "learn"},
	{"network", "inject"},
	{"tools", "*", "env"},
	{"tools", "webfetch"},
	{"tools", "websearch"},
	{"tools", "codesearch"},
	{"tools", "multiedit"},
	{"tools", "apply_patch"},
	{"tools", "task"},
	{"tools", "skill"},
	{"tools", "batch"},
	{"tools", "lsp"},
	{"tools", "question"},
	{"mcp"},
	{"skills"},
	{"profile", "*", "tools"},
	{"tenant", "*", "limits", "jobs"},
}

// tenantWeight is a setting of earlier versions. It never had an effect, so files
// that have it are still taken.
var tenantWeight = []string{"tenant", "*", "weight"}

// isUnsupported reports whether path names a setting of a later version.
func isUnsupported(path []string) bool {
	return slices.ContainsFunc(unsupported, func(u []string) bool { return matchesPath(u, path) })
}

func matchesPath(pattern, path []string) bool {
	return slices.EqualFunc(pattern, path, func(p, part string) bool { return p == "*" || p == part })
}
