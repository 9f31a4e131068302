package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/toold/toold/internal/tomltext"
	"github.com/toold/toold/internal/tool/run/wildcard"
)

// Bounds of a configuration.
const (
	maxRules    = 5000
	maxProfiles = 500
)

// Sections are the top level keys of a configuration that are not policy's. Parse
// leaves them alone, so that it takes a whole config.toml as well as a file of
// rules alone. Of tenants it reads the permission and the profiles, of network the
// ports of TLS.
var Sections = []string{
	"daemon", "metrics", "sandbox", "limits", "worktrees", "network", "truncate", "tools",
	"doom_loop", "approvals", "audit", "hook", "cache", "budget", "admin", "mcp", "mcp_server", "skills",
}

// Parse reads the policy of a configuration: the sections permission, profile,
// rule and test, of tenants permission and profiles, of network the ports of TLS. name stands for the
// text in messages and in the sources of rules. The error is a *tomltext.Error
// with every problem, failed tests included; a syntax error stands alone.
func Parse(name string, text []byte) (*Set, error) {
	doc, err := tomltext.Parse(name, text)
	if err != nil {
		return nil, err
	}
	p := newParser(doc)
	p.alone = true
	return p.parse()
}

// FromDocument is Parse for a configuration that was read already, and whose
// other sections somebody else checks.
func FromDocument(doc *tomltext.Document) (*Set, error) { return newParser(doc).parse() }

func (p *parser) parse() (*Set, error) {
	p.document()
	if len(p.problems) > 0 {
		return nil, tomltext.Join(p.problems)
	}
	p.test() // only rules that hold together can be tried
	p.set.warnings = tomltext.Sort(p.lint())
	return p.set, tomltext.Join(p.problems)
}

// parser collects the rules of a document and what is wrong with them.
type parser struct {
	doc      *tomltext.Document
	set      *Set
	problems []tomltext.Problem
	warnings []tomltext.Problem
	tests    []expectation
	count    int // of rules
	// narrow: the document is a ceiling's, where nothing but rules may stand.
	narrow bool
	// alone: nobody else looks at the document.
	alone bool
}

func newParser(doc *tomltext.Document) *parser { return &parser{doc: doc, set: newSet()} }

func (p *parser) problem(n *tomltext.Node, format string, args ...any) {
	p.problems = append(p.problems, p.about(n.Line, format, args...))
}

// nearest is a hint for one of the first problems: to look for each of many names
// among many takes long.
func (p *parser) nearest(name string, known []string, otherwise string) string {
	if len(p.problems) >= maxProblems {
		return otherwise
	}
	return nearest(name, known, otherwise)
}

func (p *parser) warn(line int, format string, args ...any) {
	p.warnings = append(p.warnings, p.about(line, format, args...))
}

func (p *parser) about(line int, format string, args ...any) tomltext.Problem {
	return tomltext.Problem{Source: p.doc.Name, Line: line, Message: fmt.Sprintf(format, args...)}
}

func (p *parser) document() {
	for _, n := range p.doc.Root.Keys {
		raw := p.doc.Values[n.Name]
		switch {
		case n.Name == "permission":
			p.set.base = append(p.set.base, p.permission(n, raw, n.Name)...)
		case n.Name == "rule":
			p.each(n, raw, p.rule)
		case p.narrow:
			p.problem(n, "%s has no place here: only permission and rule do", tomltext.Dotted(n.Name))
		case n.Name == "test":
			p.each(n, raw, p.expectation)
		case n.Name == "network":
			p.set.tls = tlsOf(raw)
		case n.Name == "profile":
			p.named(n, raw, p.profile)
		case n.Name == "tenant":
			p.named(n, raw, p.tenant)
		case p.alone && !slices.Contains(Sections, n.Name):
			p.problem(n, "unknown key %s: %s", tomltext.Dotted(n.Name), p.nearest(n.Name, append([]string{"permission", "profile", "rule", "test", "tenant"}, Sections...), "remove it"))
		}
	}
	p.set.base = inOrder(p.set.base)
	p.checkProfiles()
}

// named reads a table of tables that have names of their own.
func (p *parser) named(n *tomltext.Node, raw any, read func(*tomltext.Node, map[string]any)) {
	all, ok := raw.(map[string]any)
	if !ok {
		p.problem(n, "%s is a table of tables: write [%s.NAME]", n.Name, n.Name)
		return
	}
	for _, k := range n.Keys {
		t, ok := all[k.Name].(map[string]any)
		if !ok {
			path := tomltext.Dotted(n.Name, k.Name)
			p.problem(k, "%s is a table: write [%s]", path, path)
			continue
		}
		read(k, t)
	}
}

// each reads an array of tables.
func (p *parser) each(n *tomltext.Node, raw any, read func(*tomltext.Node, map[string]any)) {
	all, ok := raw.([]map[string]any)
	if !ok {
		p.problem(n, "%s is an array of tables: write [[%s]]", n.Name, n.Name)
		return
	}
	for i, t := range all {
		item := n.Item(i)
		if item == nil {
			item = n
		}
		read(item, t)
	}
}

// permission reads a table of permissions: name → action, or name → table of
// patterns. path is its own, for messages.
func (p *parser) permission(n *tomltext.Node, raw any, path ...string) []*rule {
	t, ok := raw.(map[string]any)
	if !ok {
		p.problem(n, "%s is a table: write [%s]", tomltext.Dotted(path...), tomltext.Dotted(path...))
		return nil
	}
	if len(t) == 0 {
		p.warn(n.Line, "%s is empty: it says nothing", tomltext.Dotted(path...))
	}
	var rules []*rule
	for _, k := range n.Keys {
		sub := append(slices.Clip(path), k.Name)
		if err := checkPermission(k.Name); err != nil {
			p.problem(k, "%s: %v", tomltext.Dotted(path...), err)
			continue
		}
		switch v := t[k.Name].(type) {
		case string:
			rules = p.add(rules, k, sub, Rule{Permission: k.Name, Pattern: "*", Action: Action(v)})
		case map[string]any:
			rules = append(rules, p.patterns(k, v, sub)...)
		default:
			p.problem(k, `%s: want an action ("allow", "ask", "deny") or a table of patterns, not %v`, tomltext.Dotted(sub...), shown(v))
		}
	}
	return rules
}

// patterns reads the table of one permission: pattern → action, or pattern →
// { action, reason }.
func (p *parser) patterns(n *tomltext.Node, t map[string]any, path []string) []*rule {
	if len(t) == 0 {
		p.warn(n.Line, "%s is empty: it says nothing", tomltext.Dotted(path...))
	}
	if _, ok := t["action"]; ok {
		p.problem(n, `%s: a permission's table has patterns: write %s = { "*" = { action = … } } for an action with a reason`,
			tomltext.Dotted(path...), tomltext.Dotted(n.Name))
		return nil
	}
	var rules []*rule
	for _, k := range n.Keys {
		sub := append(slices.Clip(path), k.Name)
		r := Rule{Permission: n.Name, Pattern: k.Name}
		switch v := t[k.Name].(type) {
		case string:
			r.Action = Action(v)
			rules = p.add(rules, k, sub, r)
		case map[string]any:
			if p.verdict(k, v, sub, &r) {
				rules = p.add(rules, k, sub, r)
			}
		default:
			p.problem(k, `%s: want an action ("allow", "ask", "deny") or { action = …, reason = … }, not %v`, tomltext.Dotted(sub...), shown(v))
		}
	}
	return rules
}

// verdict reads { action, reason }. Whatever else it may be is most likely a
// pattern with a dot that was not quoted.
func (p *parser) verdict(n *tomltext.Node, t map[string]any, path []string, r *Rule) bool {
	action, ok := t["action"].(string)
	reason, isText := t["reason"].(string)
	_, hasReason := t["reason"]
	for _, k := range n.Keys {
		if k.Dotted || k.Name != "action" && k.Name != "reason" {
			p.problem(k, `%s: a pattern with a dot must stand in quotes: write %q`,
				tomltext.Dotted(append(slices.Clip(path), k.Name)...), n.Name+"."+k.Name)
			return false
		}
	}
	switch {
	case !ok:
		p.problem(n, `%s: want { action = "allow", "ask" or "deny", reason = "…" }`, tomltext.Dotted(path...))
		return false
	case hasReason && !isText:
		p.problem(n, "%s: a reason is text", tomltext.Dotted(path...))
		return false
	}
	r.Action, r.Reason = Action(action), reason
	return true
}

// add checks a rule and appends it.
func (p *parser) add(rules []*rule, n *tomltext.Node, path []string, r Rule) []*rule {
	c := p.newRule(n, tomltext.Dotted(path...), r)
	if c == nil {
		return rules
	}
	return append(rules, c)
}

// newRule checks a rule and compiles it; nil when something is wrong with it.
func (p *parser) newRule(n *tomltext.Node, what string, r Rule) *rule {
	ok := true
	for _, err := range checkRule(&r) {
		p.problem(n, "%s: %v", what, err)
		ok = false
	}
	p.count++
	if most := p.most(); p.count == most+1 {
		p.problem(n, "there are more than %d rules", most)
	}
	if !ok || p.count > p.most() {
		return nil
	}
	r.Source = p.doc.Name + ":" + strconv.Itoa(n.Line)
	c := compile(r)
	c.order, c.line = n.Order, n.Line
	return c
}

func (p *parser) most() int {
	if p.narrow {
		return MaxRules
	}
	return maxRules
}

// checkRule gives everything that is wrong with a rule.
func checkRule(r *Rule) []error {
	var errs []error
	check := checkPattern(r.Pattern)
	if check == nil && slices.Contains(outgoing, r.Permission) {
		check = checkOutward(r)
	}
	if check != nil {
		errs = append(errs, check)
	}
	if _, err := parseAction(string(r.Action)); err != nil {
		errs = append(errs, err)
	}
	if err := checkReason(r.Reason); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// form is what a table of an array may have.
type form struct {
	what string // the array's name
	// must and may are keys of texts, other those that somebody else reads.
	must, may, other []string
}

// fields reads the texts of a table and refuses every key that it cannot have.
func (p *parser) fields(n *tomltext.Node, t map[string]any, f form) (map[string]string, bool) {
	ok := true
	known := slices.Concat(f.must, f.may, f.other)
	got := make(map[string]string)
	for _, k := range n.Keys {
		s, isText := t[k.Name].(string)
		switch {
		case !slices.Contains(known, k.Name):
			p.problem(k, "unknown key %s of a %s: %s", tomltext.Dotted(k.Name), f.what, p.nearest(k.Name, known, "remove it"))
			ok = false
		case slices.Contains(f.other, k.Name):
		case !isText:
			p.problem(k, "%s.%s: want text, not %v", f.what, k.Name, shown(t[k.Name]))
			ok = false
		default:
			got[k.Name] = s
		}
	}
	for _, key := range f.must {
		if _, there := t[key]; !there {
			p.problem(n, "a %s needs %s", f.what, key)
			ok = false
		}
	}
	return got, ok
}

// rule reads one [[rule]].
func (p *parser) rule(n *tomltext.Node, t map[string]any) {
	may := []string{"reason", "profile", "tenant"}
	if p.narrow {
		may = may[:1]
	}
	f, ok := p.fields(n, t, form{what: "rule", must: []string{"permission", "pattern", "action"}, may: may})
	if !ok {
		return
	}
	if err := checkPermission(f["permission"]); err != nil {
		p.problem(n, "rule: %v", err)
		return
	}
	c := p.newRule(n, "rule", Rule{Permission: f["permission"], Pattern: f["pattern"], Action: Action(f["action"]), Reason: f["reason"]})
	if c == nil {
		return
	}
	s := &scopedRule{rule: c}
	for _, scope := range []struct {
		key string
		set **wildcard.Glob
	}{{"profile", &s.profile}, {"tenant", &s.tenant}} {
		if name, ok := f[scope.key]; ok {
			if name == "" {
				p.problem(n, "rule.%s is empty: leave it out for all", scope.key)
			}
			g := wildcard.Compile(name)
			*scope.set = &g
		}
	}
	if s.profile == nil && s.tenant == nil {
		p.set.base = append(p.set.base, c)
		return
	}
	p.set.scoped = append(p.set.scoped, s)
}

// profileName is what profiles may be called.
var profileName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// profile reads one [profile.NAME].
func (p *parser) profile(n *tomltext.Node, t map[string]any) {
	if !profileName.MatchString(n.Name) {
		p.problem(n, "profile.%s: a profile's name is 1 to 63 of a-z, 0-9, _ and -, and begins with a letter or digit", quoted(n.Name))
		return
	}
	to := p.set.profiles[n.Name]
	if to == nil {
		if len(p.set.profiles) == maxProfiles {
			p.problem(n, "there are more than %d profiles: remove some", maxProfiles)
		}
		to = &profile{}
		p.set.profiles[n.Name] = to
	}
	for _, k := range n.Keys {
		path := []string{"profile", n.Name, k.Name}
		switch k.Name {
		case "permission":
			to.own = p.permission(k, t[k.Name], path...)
		case "description":
			s, ok := t[k.Name].(string)
			if !ok || checkReason(s) != nil {
				p.problem(k, "%s: want one line of text, at most %d bytes", tomltext.Dotted(path...), maxReason)
			}
			to.description = s
		case "truncate", "require_mode": // not policy's
		default:
			if p.alone {
				p.problem(k, "unknown key %s: %s", tomltext.Dotted(path...), p.nearest(k.Name, []string{"description", "permission", "require_mode", "truncate"}, "remove it"))
			}
		}
	}
}

// tenant reads what is policy's of one [tenant.NAME].
func (p *parser) tenant(n *tomltext.Node, t map[string]any) {
	for _, k := range n.Keys {
		path := []string{"tenant", n.Name, k.Name}
		switch k.Name {
		case "permission":
			name := wildcard.Compile(n.Name) // checked elsewhere to have no wildcards
			for _, r := range p.permission(k, t[k.Name], path...) {
				p.set.scoped = append(p.set.scoped, &scopedRule{rule: r, tenant: &name})
			}
		case "profiles":
			list, ok := texts(t[k.Name])
			if !ok {
				p.problem(k, "%s: want a list of profiles in [ ], not %v", tomltext.Dotted(path...), shown(t[k.Name]))
				continue
			}
			if len(list) == 0 {
				p.warn(k.Line, "%s is empty: the tenant can make no session", tomltext.Dotted(path...))
			}
			p.set.tenantProfiles[n.Name] = list
		}
	}
}

func texts(raw any) ([]string, bool) {
	items, ok := raw.([]any)
	if !ok {
		return nil, false
	}
	list := make([]string, len(items))
	for i, item := range items {
		if list[i], ok = item.(string); !ok {
			return nil, false
		}
	}
	return list, true
}

// checkProfiles looks for profiles that tenants may use but nobody defines.
func (p *parser) checkProfiles() {
	known := p.set.Profiles()
	for _, tenant := range slices.Sorted(maps.Keys(p.set.tenantProfiles)) {
		for _, name := range p.set.tenantProfiles[tenant] {
			if p.set.profiles[name] == nil {
				n := p.doc.Root.Nearest("tenant", tenant, "profiles")
				p.problem(n, "%s: there is no profile %s: %s", tomltext.Dotted("tenant", tenant, "profiles"), quoted(name),
					p.nearest(name, known, "define it with [profile.NAME]"))
			}
		}
	}
}

// shown is a value of a document in a message.
func shown(v any) any {
	switch x := v.(type) {
	case string:
		return quoted(x)
	case map[string]any, []map[string]any:
		return "a table"
	case []any:
		return "a list"
	}
	return v
}
