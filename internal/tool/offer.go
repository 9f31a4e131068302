package tool

import (
	"slices"
	"strings"
)

// Restriction says to whom a tool is offered: [tools.NAME] providers and models
// of the configuration. An empty list is no restriction.
type Restriction struct {
	// Providers are names such as "anthropic", compared without regard to case.
	Providers []string
	// Models are model ids, in which a * stands for any text: "gpt-5*".
	Models []string
}

// Offered is List without the tools that restrictions, by tool name, keep from
// this provider and model. A provider or model that is "" was not asked about,
// and nothing is left out for it.
func (r *Registry) Offered(provider, model string, restrictions map[string]Restriction) []*Definition {
	var out []*Definition
	for _, d := range r.List() {
		only := restrictions[d.Name]
		if listed(only.Providers, provider) && listed(only.Models, model) {
			out = append(out, d)
		}
	}
	return out
}

func listed(patterns []string, name string) bool {
	if len(patterns) == 0 || name == "" {
		return true
	}
	name = strings.ToLower(name)
	return slices.ContainsFunc(patterns, func(p string) bool { return starMatch(strings.ToLower(p), name) })
}

// starMatch reports whether s is pattern with some text for each *. Unlike
// path.Match it lets a * stand for slashes, which model ids have.
func starMatch(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = after
	}
	return strings.HasSuffix(s, parts[last])
}
