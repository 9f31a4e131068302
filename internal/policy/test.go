package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tomltext"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run/readrule"
)

// expectation is one [[test]]: how a call is to be judged. A file whose
// expectations are not met is refused, so that nobody loosens a rule that
// somebody relied on without seeing it. Where more is asked or denied than was expected
// a daemon starts all the same (see Unmet): a later version reads some calls more strictly.
type expectation struct {
	at              *tomltext.Node
	tool            string
	input           map[string]any
	want            Action
	profile, tenant string
	rule            string // permission and pattern of the rule that decides; "" = any
}

// expectation reads one [[test]].
func (p *parser) expectation(n *tomltext.Node, t map[string]any) {
	f, ok := p.fields(n, t, form{
		what: "test", must: []string{"tool", "expect"}, may: []string{"profile", "tenant", "rule"}, other: []string{"input"},
	})
	input, isTable := t["input"].(map[string]any)
	if raw, has := t["input"]; has && !isTable {
		p.problem(n, `test.input: want a table, such as { command = "git status" }, not %v`, shown(raw))
		ok = false
	}
	if !ok {
		return
	}
	want, err := parseAction(f["expect"])
	if err != nil {
		p.problem(n, "test.expect: %v", err)
		return
	}
	p.tests = append(p.tests, expectation{
		at: n, tool: f["tool"], input: input, want: want, profile: f["profile"], tenant: f["tenant"], rule: f["rule"],
	})
}

// maxTestWork bounds what all expectations of a file may take together: rules
// times bytes that are compared with each. A second has room for about that many.
const maxTestWork = 1 << 30

// maxFailed is after how many failures the others are not tried.
const maxFailed = 100

// test tries every expectation.
func (p *parser) test() {
	if len(p.tests) == 0 {
		return
	}
	tools, work := tool.NewRegistry(), maxTestWork
	for i := range p.tests {
		stricter, err := p.try(tools, &p.tests[i], &work)
		if work < 0 {
			p.problem(p.tests[i].at, "the tests up to this one, number %d of %d, take too long: remove some, or make their inputs shorter", i+1, len(p.tests))
			break
		}
		if err == nil {
			continue
		}
		if stricter && !p.alone {
			p.set.unmet = append(p.set.unmet, p.about(p.tests[i].at.Line, "test: %v", err))
			continue
		}
		p.problem(p.tests[i].at, "test: %v", err)
		if more := len(p.tests) - i - 1; more > 0 && len(p.problems) == maxFailed {
			p.problem(p.tests[i+1].at, "%s not tried", plain.Count(more, "more test was", "more tests were"))
			break
		}
	}
	p.set.tests = len(p.tests)
}

// try judges the call of an expectation as a session without a sandbox would
// have it: paths lead where their text says, from the worktree at Workspace. It
// takes from work what it costs, and judges nothing when none is left. stricter: the error is
// that no less is asked or denied than was expected.
func (p *parser) try(tools *tool.Registry, e *expectation, work *int) (stricter bool, err error) {
	const each = 64 // for what does not grow with the text
	if *work -= each * p.count; *work < 0 {
		return false, nil
	}
	stack, err := p.set.Stack(e.profile, cmp.Or(e.tenant, auth.DefaultTenant))
	if err != nil {
		return false, err
	}
	if e.input == nil {
		e.input = map[string]any{}
	}
	input, err := json.Marshal(e.input)
	if err != nil {
		return false, err
	}
	requests, ok, err := Outgoing(e.tool, input)
	if err != nil {
		return false, err
	}
	if !ok {
		inv, err := tools.Parse(e.tool, input)
		if err != nil {
			return false, refused(e.tool, err)
		}
		// Of a session that may reach what is a person's: the stricter reading.
		requests = AsWritten(inv, nil, Places{})
	}
	for i := range requests {
		*work -= p.count * (each + len(requests[i].Pattern))
	}
	if *work < 0 {
		return false, nil
	}
	v := stack.Judge(requests)
	failed := e.met(&v)
	if failed == "" {
		return false, nil
	}
	err = fmt.Errorf("%s %s is %s by %s, want %s", e.tool, plain.Cut(string(input), 200), v.Action, v.By(), failed)
	if ok { // a file that an earlier version took has to load: it judged requests by https, which it could not read either, and plain ones on ports of TLS
		for i := range requests {
			requests[i].written = true
		}
		if was := stack.Judge(requests); e.met(&was) == "" {
			p.warn(e.at.Line, "test: %v: %s", err, v.Reason)
			return false, nil
		}
	}
	return readrule.Strictness(v.Action) >= readrule.Strictness(e.want), err
}

// met says what an expectation wants instead of a verdict; "" where it is met.
func (e *expectation) met(v *Verdict) string {
	switch {
	case v.Action != e.want:
		return string(e.want)
	case e.rule != "" && e.rule != v.Pattern:
		return "the rule " + e.rule
	}
	return ""
}

// refused puts the words of a call that no session would take on one line.
func refused(name string, err error) error {
	ce, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	if len(ce.Violations) == 0 {
		return errors.New(ce.Message)
	}
	words := make([]string, len(ce.Violations))
	for i, v := range ce.Violations {
		words[i] = strings.TrimPrefix(v.Path+" ", " ") + v.Message
	}
	return fmt.Errorf("the input of %s does not fit: %s", name, strings.Join(words, "; "))
}

// By names the deciding rule.
func (v *Verdict) By() string {
	if v.Pattern == "" {
		return v.Rule
	}
	return v.Rule + " (" + v.Pattern + ")"
}

// Tests is how many [[test]]s of the Set were tried.
func (s *Set) Tests() int { return s.tests }

// Unmet are the [[test]]s of a configuration by which less was to be asked or denied than is, with file
// and line. Parse gives them as errors.
func (s *Set) Unmet() []tomltext.Problem { return slices.Clone(s.unmet) }
