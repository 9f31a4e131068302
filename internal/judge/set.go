package judge

import (
	"maps"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// Choices are the tools that the configuration chooses for profiles and tenants.
type Choices struct {
	Profiles, Tenants map[string][]string
	// Lacking says why this host has not what tools need.
	Lacking map[tool.Need]string
}

// lacking says why a session has not what tools need; row is nil where there is none.
func (c *Choices) lacking(row *store.Session) map[tool.Need]string {
	all := maps.Clone(c.Lacking)
	if row != nil && row.Network.Mode == client.NetworkNone {
		if all == nil {
			all = make(map[tool.Need]string)
		}
		all[tool.NeedsNetwork] = "the session has no network"
	}
	return all
}

// of gives those that hold for a session; row is nil where there is none.
func (c *Choices) of(profile, tenant string, row *store.Session) []tool.Choice {
	var all []tool.Choice
	add := func(of string, names []string) {
		if len(names) > 0 {
			all = append(all, tool.Choice{Of: of, Names: names})
		}
	}
	add("profile "+profile, c.Profiles[profile])
	add("tenant "+tenant, c.Tenants[tenant])
	if row != nil {
		add("this session", row.Request.Tools)
	}
	return all
}

// Unchosen says why calls of a tool do not run, whatever the rules say; "" where they may.
func (r *Rules) Unchosen(d *tool.Definition) string {
	if why := r.lacking[d.Needs]; why != "" {
		return why
	}
	if slices.Contains(r.older, d.Name) {
		return "it was made by an older toold: create another session"
	}
	for _, c := range r.choices {
		if why := c.Lacks(d.Name); why != "" {
			return why
		}
	}
	return ""
}

// lacks says why a tool is not offered.
func (r *Rules) lacks(d *tool.Definition) string {
	if why := r.Unchosen(d); why != "" {
		return why
	}
	if p := PermissionOf(d); r.Hides(p) {
		return "the rules deny " + p + " whatever it is for"
	}
	return ""
}

// Set is the tools that who is judged by r has.
func (r *Rules) Set() *tool.Set {
	r.once.Do(func() { r.set = r.tools.Set(r.lacks) })
	return r.set
}
