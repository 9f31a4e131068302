package tool

import (
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/wildcard"
)

// The permissions that calls of the built-in tools ask for. Most are called like a tool,
// but what they allow is not one tool: "edit" is every change of a file.
const (
	PermissionBash      = "bash"
	PermissionEdit      = "edit"
	PermissionRead      = "read"
	PermissionGlob      = "glob"
	PermissionGrep      = "grep"
	PermissionList      = "list"
	PermissionTodoRead  = "todoread"
	PermissionTodoWrite = "todowrite"
	PermissionBatch     = "batch"
	PermissionSkill     = "skill"
	PermissionExternal  = "external_directory" // to reach what is not the session's own
)

// PermissionMeant is the permission that calls ask for which people may think to be named
// so; "" for none.
func PermissionMeant(name string) string {
	switch name {
	case "write", "multiedit", "apply_patch":
		return PermissionEdit
	}
	return ""
}

// PermissionsMeant are the permissions that calls of the tools ask for which a name means that
// is not theirs: one of another system, in any spelling, or theirs as providers write it
// ("toold_bash", also with wildcards, "mcp__toold__*"). None for other names.
func PermissionsMeant(name string) []string {
	own := bare(name)
	if own == name && strings.ContainsAny(name, "*?") {
		return nil
	}
	folded, glob := plain.Folded(own), wildcard.Compile(own)
	var all []string
	for _, t := range meanings() {
		if slices.Contains(t.names, folded) || own != name && glob.Match(t.tool) {
			all = append(all, t.permission)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// meaning is what names a tool of ours, and the permission that its calls ask for.
type meaning struct {
	tool, permission string
	names            []string // folded
}

var meanings = sync.OnceValue(func() []meaning {
	var all []meaning
	for _, d := range builtin() {
		if d.Hidden {
			continue
		}
		m := meaning{tool: d.Name, names: []string{plain.Folded(d.Name)}}
		for _, t := range d.also.tools {
			name, _, _ := strings.Cut(t, " ")
			m.names = append(m.names, plain.Folded(name))
		}
		for _, p := range d.Permissions() {
			if m.permission = p; p != PermissionExternal {
				break
			}
		}
		all = append(all, m)
	}
	return all
})

// Paths are the distinct paths of a's requests: what a Prepare must resolve.
func (a Access) Paths() []string {
	var paths []string
	seen := make(map[string]bool)
	for _, r := range a.Requests {
		if r.Path != "" && !seen[r.Path] {
			seen[r.Path] = true
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// accessBuilder gathers requests, each once.
type accessBuilder struct {
	requests []Request
	seen     map[Request]bool
}

func (b *accessBuilder) add(r Request) {
	if b.seen == nil {
		b.seen = make(map[Request]bool)
	}
	if !b.seen[r] {
		b.seen[r] = true
		b.requests = append(b.requests, r)
	}
}

// access asks for a Prepare if there is a path to resolve.
func (b *accessBuilder) access() Access {
	return Access{
		Requests: b.requests,
		Prepare:  slices.ContainsFunc(b.requests, func(r Request) bool { return r.Path != "" }),
	}
}

// asWhole is the access of a call that names nothing.
func asWhole(permission string) Access {
	return Access{Requests: []Request{{Permission: permission, Pattern: "*"}}}
}
