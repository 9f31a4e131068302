package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run/wildcard"
)

// rule is a Rule whose patterns are compiled. It does not change.
type rule struct {
	Rule
	name wildcard.Glob // of permissions
	// named: the permission has a character of its own. Without one it says
	// nothing about the permissions that are no tool's.
	named      bool
	text, path pattern
	// also are the permissions that an ask or a deny is about because its own is another name of
	// their tool. What such a name allows stays what it says: nothing.
	also    []string
	outward *outward // of rules for network and http
	label   string   // permission and pattern, for verdicts
	order   int      // in its file
	line    int
	// above: the rule takes its list's opinion back, so that the rules above the
	// built-in profile decide (see profile.go).
	above bool
}

// compile makes a rule. It takes every pattern, so that rules which were stored
// by an earlier version keep their meaning; new ones go through checkPattern.
func compile(r Rule) *rule {
	c := &rule{
		Rule: r, name: wildcard.Compile(r.Permission), named: strings.Trim(r.Permission, "*?") != "",
		text: compilePattern(r.Pattern), label: r.Permission + " " + strconv.Quote(r.Pattern),
	}
	if c.path = c.text; expandHome(r.Pattern) != r.Pattern {
		c.path = compilePathPattern(r.Pattern)
	}
	c.outward = compileOutward(&r)
	if (r.Action == Ask || r.Action == Deny) && !slices.Contains(permissions, r.Permission) {
		c.also = tool.PermissionsMeant(r.Permission)
	}
	return c
}

func compileAll(rules []Rule) []*rule {
	all := make([]*rule, len(rules))
	for i, r := range rules {
		all[i] = compile(r)
	}
	return all
}

// names reports whether the rule is about a permission.
func (r *rule) names(permission string) bool {
	if r.Permission == permission {
		return true // as most are: a sixth of the time of judging is saved
	}
	switch permission {
	case PermissionDoomLoop, PermissionExternal:
		if !r.named {
			return false
		}
	case PermissionNetwork, PermissionHTTP:
		return r.Permission == permission
	}
	return r.name.Match(permission) || slices.Contains(r.also, permission)
}

// match reports whether the rule is about a request.
func (r *rule) match(q *Request) bool {
	switch {
	case !r.names(q.Permission):
		return false
	case (q.Prefixed || q.Wraps) && r.everything():
		return false
	case r.outward != nil:
		return r.outward.match(q, r.Action)
	case q.below != "":
		return r.coversBelow(q.below) || r.Action != Allow && !r.above && r.mayMatchBelow(q.below)
	case q.Unknown:
		return r.Pattern == "*" || r.Action != Allow && !r.above
	case q.Opaque && (r.Action == Allow || r.above):
		// Nothing narrower than all may allow what cannot be judged by its
		// parts; the wildcards of a pattern would be such a judgement.
		return r.Pattern == "*" || r.isText(q.Pattern)
	case q.Path != "":
		return r.path.match(q.Path) || q.Relative != "" && r.path.match(q.Relative)
	}
	if (r.Action == Ask || r.Action == Deny) && !r.above && q.Also != "" {
		for also := range strings.SplitSeq(q.Also, "\x00") {
			if r.text.match(also) {
				return true
			}
		}
	}
	return r.text.match(q.Pattern) || q.Variables != "" && r.text.match(q.Variables+q.Pattern)
}

// isText reports whether the rule's pattern stands for this text and nothing
// else. One with wildcards does not stand for the text that is written like it:
// there they are the shell's, which makes of "find *" what the names of files say.
func (r *rule) isText(text string) bool {
	return r.Pattern == text && !strings.ContainsAny(text, "*?")
}

// coversBelow reports whether the rule is about every path in dir.
func (r *rule) coversBelow(dir string) bool { return covers(expandHome(r.Pattern), dir+"/*") }

// mayMatchBelow reports whether the rule may be about a path in dir. It may say yes where the answer is no.
func (r *rule) mayMatchBelow(dir string) bool {
	p := expandHome(r.Pattern)
	i := strings.IndexAny(p, "*?")
	return strings.HasPrefix(p, dir+"/") || i >= 0 && (strings.HasPrefix(dir+"/", p[:i]) || strings.HasPrefix(p[:i], dir+"/"))
}

// opensAddress reports whether the rule's pattern is this address alone.
func (r *rule) opensAddress(to endpoint.Endpoint) bool {
	if r.outward == nil || r.outward.host == nil {
		return false
	}
	p, literal := r.outward.host.Prefix()
	return literal && p.IsSingleIP() && r.outward.host.Match(to, true)
}

// everything reports whether the rule's pattern is about all requests.
func (r *rule) everything() bool { return strings.Trim(r.Pattern, "*") == "" }

// maxName bounds the name of a permission, in bytes.
const maxName = 128

// checkPermission refuses names that no tool can have, and those that a person
// may think are judged but are not.
func checkPermission(name string) error {
	if name == "" {
		return fmt.Errorf(`a permission is empty: write "*" for every tool's`)
	}
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !isNameRune(r) }) {
		return fmt.Errorf("%s is not a permission: a name has letters, digits, _, -, . and the wildcards * and ?, at most %d", quoted(name), maxName)
	}
	if is := tool.PermissionMeant(name); is != "" {
		return fmt.Errorf("%s is judged as %s: write %s, or the rule would never match", name, is, is)
	}
	for _, known := range permissions {
		if known != name && strings.EqualFold(known, name) {
			return fmt.Errorf("%s: permissions are case-sensitive, write %s", name, known)
		}
	}
	return nil
}

func isNameRune(r rune) bool {
	return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.*?", r))
}

// parseAction reads an action.
func parseAction(s string) (Action, error) {
	switch a := Action(s); a {
	case Allow, Ask, Deny:
		return a, nil
	}
	return "", fmt.Errorf(`%s is not one of "allow", "ask", "deny"`, quoted(s))
}

// maxReason bounds a reason, in bytes: it goes into answers and records.
const maxReason = 500

func checkReason(s string) error {
	if len(s) > maxReason || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("a reason is one line of printable text, at most %d bytes", maxReason)
	}
	return nil
}

// quoted shows a string of the configuration.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		s = plain.Cut(s, most)
	}
	return strconv.Quote(s)
}
