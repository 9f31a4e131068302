package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tomltext"
	"github.com/toold/toold/internal/tool/run/wildcard"
)

// Set is the policy part of a configuration that was parsed, linted and tested.
// It is immutable.
type Set struct {
	base     []*rule // defaults and rules for all
	profiles map[string]*profile
	// scoped are the rules that were written for profiles or tenants, in the
	// order of the file.
	scoped []*scopedRule
	// tenantProfiles are those that a tenant may use; a tenant without an entry
	// may use all.
	tenantProfiles map[string][]string
	warnings       []tomltext.Problem
	unmet          []tomltext.Problem
	tests          int      // that were tried
	tls            []uint16 // of [network]
}

// scopedRule is a rule for some profiles, or of the ceiling of some tenants.
type scopedRule struct {
	*rule
	profile, tenant *wildcard.Glob // nil: not restricted
}

func (r *scopedRule) isFor(profile, tenant string) bool {
	return (r.profile == nil || r.profile.Match(profile)) && (r.tenant == nil || r.tenant.Match(tenant))
}

// newSet has the built-in rules only.
func newSet() *Set {
	return &Set{base: defaults(), profiles: builtinProfiles(), tenantProfiles: make(map[string][]string)}
}

// Default is the Set of an empty configuration: the built-in defaults and
// profiles.
func Default() *Set { return newSet() }

// Profiles names the profiles that there are, sorted.
func (s *Set) Profiles() []string { return slices.Sorted(maps.Keys(s.profiles)) }

// Description says in a line what a profile is for; "" when nobody said.
func (s *Set) Description(profile string) string {
	if p := s.profiles[profile]; p != nil {
		return p.description
	}
	return ""
}

// Allowed names the profiles that a tenant may use, sorted.
func (s *Set) Allowed(tenant string) []string {
	only, restricted := s.tenantProfiles[tenant]
	if !restricted {
		return s.Profiles()
	}
	return slices.Sorted(slices.Values(only))
}

// Warnings are what lint found and the tests of Unmet, with file and line, in the order of the file.
func (s *Set) Warnings() []tomltext.Problem {
	return tomltext.Sort(slices.Concat(s.warnings, s.unmet))
}

// Stack gives what a session of that tenant with that profile is judged by; ""
// is DefaultProfile. An unknown profile, or one that the tenant may not use, is
// an error that names those that it may.
//
// It puts compiled rules together; who judges many calls keeps it.
func (s *Set) Stack(profile, tenant string) (*Stack, error) {
	profile = cmp.Or(profile, DefaultProfile)
	may := s.Allowed(tenant)
	if !slices.Contains(may, profile) {
		return nil, profileError(profile, tenant, s.profiles[profile] != nil, may)
	}
	return s.stack(profile, tenant), nil
}

func profileError(profile, tenant string, exists bool, may []string) error {
	list := "it may use " + plain.Cut(strings.Join(may, ", "), 200)
	if len(may) == 0 {
		list = "it may use none: give tenant." + tenant + ".profiles a name"
	}
	if exists {
		return fmt.Errorf("tenant %s may not use the profile %s; %s", tenant, profile, list)
	}
	return fmt.Errorf("there is no profile %s for tenant %s; %s", quoted(profile), tenant, list)
}

func (s *Set) stack(profile, tenant string) *Stack {
	p := s.profiles[profile]
	st := &Stack{list: slices.Concat(s.base, p.builtin), above: len(s.base), tls: s.tls}
	if p.headless {
		st.headless = profile
	}
	own := slices.Clone(p.own)
	var narrow []*rule
	for _, r := range s.scoped {
		switch {
		case !r.isFor(profile, tenant):
		case r.tenant != nil:
			narrow = append(narrow, r.rule)
		default:
			own = append(own, r.rule)
		}
	}
	st.list = append(st.list, inOrder(own)...)
	if len(narrow) > 0 {
		st.ceilings = []ceiling{{"tenant " + tenant, inOrder(narrow)}}
	}
	return st
}

// inOrder sorts rules as their file has them.
func inOrder(rules []*rule) []*rule {
	slices.SortStableFunc(rules, func(a, b *rule) int { return a.order - b.order })
	return rules
}
