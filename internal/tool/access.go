package tool

import (
	"encoding/json"
	"slices"
)

// externalDirectory is the permission to reach what is not the session's own.
const externalDirectory = "external_directory"

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

// named reads the strings that an Access looks at out of a normalised input.
// Fields that are absent or of other types are "".
func named(input json.RawMessage, names ...string) map[string]string {
	var all map[string]json.RawMessage
	out := make(map[string]string, len(names))
	if json.Unmarshal(input, &all) != nil {
		return out // not from Parse; the empty path and pattern match no allowance
	}
	for _, name := range names {
		var s string
		if json.Unmarshal(all[name], &s) == nil {
			out[name] = s
		}
	}
	return out
}

// fileAccess is the Access of a tool that touches the one file that its field
// called name says.
func fileAccess(permission, name string, write bool) func(json.RawMessage, []string) Access {
	return func(input json.RawMessage, _ []string) Access {
		path := named(input, name)[name]
		return Access{
			Requests: []Request{{Permission: permission, Pattern: path, Path: path, Write: write}},
			Prepare:  true,
		}
	}
}

// searchAccess is the Access of a tool that searches for its pattern below a
// path; only a path that is given has to be resolved. place says which, with the rest
// of the pattern.
func searchAccess(permission string, place func(path, pattern string) (string, string)) func(json.RawMessage, []string) Access {
	return func(input json.RawMessage, _ []string) Access {
		in := named(input, "pattern", "path")
		dir, _ := place(in["path"], in["pattern"])
		return Access{
			Requests: []Request{{Permission: permission, Pattern: in["pattern"], Path: dir}},
			Prepare:  dir != "",
			Title:    in["pattern"],
		}
	}
}

// asGiven is the place of a pattern that names none.
func asGiven(path, pattern string) (string, string) { return path, pattern }
