package tool

import "slices"

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

// Paths are the distinct paths of a's requests and links: what a Prepare must resolve.
func (a Access) Paths() []string {
	var paths []string
	seen := make(map[string]bool)
	for _, r := range a.Requests {
		if r.Path != "" && !seen[r.Path] {
			seen[r.Path] = true
			paths = append(paths, r.Path)
		}
	}
	for _, l := range a.Links {
		if !seen[l.Name] {
			seen[l.Name] = true
			paths = append(paths, l.Name)
		}
	}
	return paths
}

// Named reports whether a path is among a's requests.
func (a Access) Named() bool {
	return slices.ContainsFunc(a.Requests, func(r Request) bool { return r.Path != "" })
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
	a := Access{Requests: b.requests}
	a.Prepare = a.Named()
	return a
}

// asWhole is the access of a call that names nothing.
func asWhole(permission string) Access {
	return Access{Requests: []Request{{Permission: permission, Pattern: "*"}}}
}
