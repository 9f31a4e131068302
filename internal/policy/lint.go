package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tomltext"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run/wildcard"
)

// maxLinted bounds the rules of a list that are compared with each other, or with
// all profiles.
const maxLinted = 1000

// lint looks for rules that do not do what whoever wrote them will have meant.
// They are warnings: each can be right.
func (p *parser) lint() []tomltext.Problem {
	for _, l := range p.lists() {
		p.lintNames(l)
		p.lintBare(l)
		p.lintRequests(l)
		if len(l) <= maxLinted {
			p.lintOrder(l)
		}
	}
	if len(p.set.scoped) <= maxLinted {
		p.lintScopes()
		p.lintTenants()
	}
	return p.warnings
}

// lists are the rules of the document, by the list in which they compete.
func (p *parser) lists() [][]*rule {
	lists := [][]*rule{fromFile(p.set.base)}
	for _, name := range p.set.Profiles() {
		lists = append(lists, p.set.profiles[name].own)
	}
	scopes := make(map[string]int)
	for _, s := range p.set.scoped {
		key := s.scope()
		if _, ok := scopes[key]; !ok {
			scopes[key] = len(lists)
			lists = append(lists, nil)
		}
		lists[scopes[key]] = append(lists[scopes[key]], s.rule)
	}
	return lists
}

// lintTenants warns of rules that look as if they gave a tenant something.
func (p *parser) lintTenants() {
	for i, s := range p.set.scoped {
		if s.tenant == nil || s.Action != Allow {
			continue
		}
		excepts := func(o *scopedRule) bool {
			return o.tenant != nil && o.Action != Allow && (nameCovers(o.rule, s.rule) || nameCovers(s.rule, o.rule))
		}
		if !slices.ContainsFunc(p.set.scoped[:i], excepts) {
			p.warn(s.line, "%s allows nothing: rules of tenants can only make things stricter, and there is none above that it is an exception from", s.label)
		}
	}
}

// scope tells apart rules that need not meet in one list.
func (r *scopedRule) scope() string {
	text := func(g *wildcard.Glob) string {
		if g == nil {
			return ""
		}
		return g.String()
	}
	return text(r.profile) + "\x00" + text(r.tenant)
}

// fromFile leaves the built-in rules out.
func fromFile(rules []*rule) []*rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r *rule) bool { return r.line == 0 })
}

// lintNames warns of permissions that no tool asks for.
func (p *parser) lintNames(rules []*rule) {
	seen := make(map[string]bool)
	for _, r := range rules {
		if p.lintAlias(r) || seen[r.Permission] || slices.ContainsFunc(permissions, r.names) {
			continue
		}
		hint := nearest(r.Permission, permissions, "")
		if hint == "" && strings.Contains(r.Permission, "_") {
			continue // tools of MCP servers are called server_tool
		}
		if hint == "" {
			hint = "there are " + strings.Join(permissions, ", ")
		}
		seen[r.Permission] = true
		p.warn(r.line, "no tool asks for the permission %s: %s", r.Permission, hint)
	}
}

// lintAlias warns of a permission that is another name of a tool.
func (p *parser) lintAlias(r *rule) bool {
	meant := r.also
	if r.Action == Allow && !slices.Contains(permissions, r.Permission) {
		meant = tool.PermissionsMeant(r.Permission)
	}
	if len(meant) == 0 {
		return false
	}
	list := strings.Join(meant, " and ")
	if r.Action == Allow {
		p.warn(r.line, "%s allows nothing: calls of the tool that has this name elsewhere ask for %s", r.label, list)
	} else {
		p.warn(r.line, "%s is taken as one of %s, for which calls of the tool ask that has this name elsewhere: write that", r.label, list)
	}
	return true
}

// lintBare warns of commands that were written without their arguments.
func (p *parser) lintBare(rules []*rule) {
	whole := make(map[string]bool)
	for _, r := range rules {
		if r.names(tool.PermissionBash) {
			whole[r.Pattern] = true
		}
	}
	for _, r := range rules {
		if r.Permission != tool.PermissionBash || strings.ContainsAny(r.Pattern, " *?/") {
			continue
		}
		if !whole[r.Pattern+" *"] {
			p.warn(r.line, "bash %q is about the command without arguments only: write %q for all", r.Pattern, r.Pattern+" *")
		}
	}
}

// lintRequests warns of rules about requests that cannot be kept as they are written.
func (p *parser) lintRequests(rules []*rule) {
	for _, r := range rules {
		for _, doubt := range r.doubts(p.set.tls) {
			p.warn(r.line, "%s", doubt)
		}
	}
}

// Doubts say what rules of a session or a worktree cannot do as they are written, with where each
// stands. None is an error.
func Doubts(rules []Rule) []string {
	var all []string
	for _, r := range rules {
		for _, doubt := range compile(r).doubts(nil) {
			all = append(all, r.Source+": "+doubt)
		}
	}
	return all
}

// doubts are what a rule about requests cannot do as it is written, where these ports besides 443 are
// TLS's.
func (r *rule) doubts(tls []uint16) []string {
	if r.outward == nil || r.outward.http == nil {
		return nil
	}
	var all []string
	p := r.outward.http
	switch too, alone := p.HTTPS(); {
	case too && r.Action != Allow:
		all = append(all, r.label+" is about https, whose requests cannot be read: its hosts are refused as a whole there; write a rule of network for the host, or http:// for plain HTTP")
	case alone:
		all = append(all, r.label+" is about https, whose requests cannot be read: it allows nothing by itself; a rule of network opens the host")
	case onlyTLS(tls, p.PlainPort()):
		all = append(all, fmt.Sprintf("%s is about plain HTTP on port %d: nothing else passes there then, and so no https", r.label, p.PlainPort()))
	}
	if err := p.Spelling(); err != nil {
		doubt := fmt.Sprintf("%s: %v", r.label, err)
		if r.Action == Allow {
			doubt += "; as it stands it allows nothing"
		}
		all = append(all, doubt)
	}
	switch meant, cidr := p.Network(); {
	case cidr:
		all = append(all, fmt.Sprintf("%s is about a host and a path: patterns of requests have no CIDR; write a rule of network for %q", r.label, meant))
	case meant != "" && r.Action != Allow:
		all = append(all, fmt.Sprintf("%s is about requests whose host is written as this address, and not about names that lead there; write a rule of network for %q", r.label, meant))
	}
	return all
}

// lintOrder warns of rules that never decide anything, because a later one
// matches all that they match.
func (p *parser) lintOrder(rules []*rule) {
	undone := make(map[*rule][]string) // catch-all → lines above it
	for i, r := range rules {
		by := slices.IndexFunc(rules[i+1:], func(later *rule) bool {
			return nameCovers(later, r) && later.covers(r)
		})
		if by < 0 {
			continue
		}
		later := rules[i+1+by]
		if later.everything() && !r.everything() {
			undone[later] = append(undone[later], strconv.Itoa(r.line))
			continue
		}
		p.warn(r.line, "%s never decides: line %d (%s) matches all of it, and the last matching rule wins", r.label, later.line, later.label)
	}
	for r, lines := range undone {
		p.warn(r.line, "%s stands last and undoes %s: the last matching rule wins, so what is about everything belongs on top", r.label, plural(lines))
	}
}

// covers reports whether the pattern of r is about all that the other's is about.
func (r *rule) covers(other *rule) bool {
	if r.outward != nil && other.outward != nil {
		return r.outward.covers(r.Action, other.outward, other.Action)
	}
	return covers(r.Pattern, other.Pattern)
}

// nameCovers reports whether later is about every permission that r is about.
func nameCovers(later, r *rule) bool {
	if !later.named && slices.ContainsFunc([]string{PermissionDoomLoop, PermissionExternal}, r.names) {
		return false
	}
	if later.outward != nil || r.outward != nil {
		return later.Permission == r.Permission
	}
	if slices.ContainsFunc(r.also, func(p string) bool { return !later.names(p) }) {
		return false
	}
	return globCovers(later.Permission, r.Permission)
}

func plural(lines []string) string {
	if len(lines) == 1 {
		return "line " + lines[0]
	}
	return "lines " + strings.Join(lines, ", ")
}

// lintScopes warns of rules for profiles that do not exist.
func (p *parser) lintScopes() {
	profiles := p.set.Profiles()
	for _, s := range p.set.scoped {
		if s.profile != nil && !slices.ContainsFunc(profiles, s.profile.Match) {
			p.warn(s.line, "the rule is for a profile that there is not: there are %s", plain.Cut(strings.Join(profiles, ", "), 200))
		}
	}
}
