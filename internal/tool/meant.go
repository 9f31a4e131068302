package tool

import (
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/wildcard"
)

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
