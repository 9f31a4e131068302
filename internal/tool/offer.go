package tool

import (
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run/wildcard"
)

// Restriction says to whom a tool is offered: [tools.NAME] providers and models
// of the configuration. An empty list is no restriction.
type Restriction struct {
	// Providers are names such as "anthropic", compared without regard to case.
	Providers []string
	// Models are model ids, in which a * stands for any text: "gpt-5*".
	Models []string
}

// Offered is s without the tools that restrictions, by tool name, keep from this
// provider and model. A provider or model that is "" was not asked about,
// and nothing is left out for it.
func (s *Set) Offered(provider, model string, restrictions map[string]Restriction) *Set {
	out := &Set{Revision: s.Revision, Absent: slices.Clone(s.Absent)}
	for _, d := range s.Tools {
		switch only := restrictions[d.Name]; {
		case !listed(only.Providers, provider):
			out.Absent = append(out.Absent, Absent{d.Name, "it is only for models of " + strings.Join(only.Providers, ", ")})
		case !listed(only.Models, model):
			out.Absent = append(out.Absent, Absent{d.Name, "it is only for the models " + strings.Join(only.Models, ", ")})
		default:
			out.Tools = append(out.Tools, d)
		}
	}
	return out
}

func listed(patterns []string, name string) bool {
	if len(patterns) == 0 || name == "" {
		return true
	}
	name = strings.ToLower(name)
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(strings.ToLower(p), name) })
}

// matches reports whether a name is one that a pattern stands for.
func matches(pattern, name string) bool {
	g := wildcard.Compile(pattern)
	return g.Match(name)
}
