package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toold/toold/client"
)

// Bounds of names and notes that clients give. What they mean and whether they
// may be had is not checked here, only that they are harmless to print, store,
// and use in a file's name.
const (
	maxName   = 63
	maxLabels = 64
	maxValue  = 1024
	maxEnv    = 256
	maxEnvVal = 128 << 10 // the kernel's own bound of one string of an environment
)

// problems collects what is wrong with a body, so that all of it is said at once.
type problems []client.Violation

func (p *problems) add(path, why string) {
	if why != "" {
		*p = append(*p, client.Violation{Path: path, Message: why})
	}
}

func (p problems) err(what string) error {
	if len(p) == 0 {
		return nil
	}
	e := invalid(fmt.Sprintf("%s: %s: %s", what, p[0].Path, p[0].Message), "correct the fields that violations names")
	if len(p) > 1 {
		e.Message += fmt.Sprintf(" (and %d more)", len(p)-1)
	}
	e.Violations = p
	return e
}

func checkSessionCreate(r *client.SessionCreate) error {
	var p problems
	if r.Name != "" {
		p.add("/name", wrongName(r.Name))
		if strings.HasPrefix(r.Name, "ses_") {
			p.add("/name", "ses_ begins ids, which names must not look like")
		}
	}
	if r.Profile != "" {
		p.add("/profile", wrongName(r.Profile))
	}
	p.add("/image", wrongText(r.Image, maxText))
	p.add("/runtime", wrongText(r.Runtime, maxText))
	p.add("/worktree/source", wrongText(r.Worktree.Source, maxText))
	p.add("/worktree/target", wrongText(r.Worktree.Target, maxText))
	p.add("/worktree/ref", wrongText(r.Worktree.Ref, maxText))
	if r.Worktree.IDMap != "" {
		p.add("/worktree/idmap", "only in answers; leave it out")
	}
	for i, m := range r.Mounts {
		p.add(fmt.Sprintf("/mounts/%d/source", i), wrongText(m.Source, maxText))
		p.add(fmt.Sprintf("/mounts/%d/target", i), wrongText(m.Target, maxText))
	}
	for i, d := range r.Delegates {
		p.add(fmt.Sprintf("/delegates/%d", i), wrongName(d))
	}
	p.labels(r.Labels)
	p.env(r.Env)
	if r.LeasePID < 0 {
		p.add("/lease_pid", "not a process id")
	}
	return p.err("session")
}

func checkSessionPatch(r *client.SessionPatch) error {
	var p problems
	p.labels(r.Labels)
	if r.Profile != nil {
		p.add("/profile", wrongName(*r.Profile))
	}
	return p.err("session")
}

func checkCallCreate(r *client.CallCreate) error {
	var p problems
	if r.Tool == "" {
		p.add("/tool", "missing; GET /v1/tools lists them")
	}
	if len(r.Input) == 0 {
		p.add("/input", "missing; a tool without fields takes {}")
	}
	p.add("/tool", wrongText(r.Tool, 128))
	p.add("/key", wrongText(r.Key, 256))
	p.add("/message_id", wrongText(r.MessageID, 256))
	p.add("/agent", wrongText(r.Agent, 256))
	p.add("/model", wrongText(r.Model, 256))
	p.env(r.Env)
	if r.TimeoutMillis < 0 {
		p.add("/timeout_ms", "negative")
	}
	if r.WaitMillis != nil && *r.WaitMillis < 0 {
		p.add("/wait_ms", "negative")
	}
	return p.err("call")
}

func (p *problems) labels(labels map[string]string) {
	if len(labels) > maxLabels {
		p.add("/labels", fmt.Sprintf("more than %d", maxLabels))
		return
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		p.add("/labels/"+pointer(k), wrongLabelKey(k))
		p.add("/labels/"+pointer(k), wrongText(labels[k], maxValue))
	}
}

func (p *problems) env(env map[string]string) {
	if len(env) > maxEnv {
		p.add("/env", fmt.Sprintf("more than %d variables", maxEnv))
		return
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		p.add("/env/"+pointer(k), wrongEnvName(k))
		switch v := env[k]; {
		case len(v) > maxEnvVal:
			p.add("/env/"+pointer(k), fmt.Sprintf("longer than %d bytes", maxEnvVal))
		case strings.ContainsRune(v, 0):
			p.add("/env/"+pointer(k), "has a NUL character")
		}
	}
}

// pointer escapes a key for a JSON pointer.
func pointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(clip(key))
}

// wrongName says what is wrong with a name, "" for nothing.
func wrongName(s string) string {
	if s == "" || len(s) > maxName {
		return fmt.Sprintf("a name has 1 to %d characters", maxName)
	}
	if !isAlnum(s[0]) {
		return "a name begins with a letter or a digit"
	}
	for i := range len(s) {
		if !isAlnum(s[i]) && !strings.ContainsRune("._-", rune(s[i])) {
			return "a name has only letters, digits and . _ -"
		}
	}
	return ""
}

// wrongLabelKey is wrongName with one slash allowed, as in "example.com/team".
func wrongLabelKey(s string) string {
	domain, name, ok := strings.Cut(s, "/")
	if !ok {
		return wrongName(s)
	}
	if why := wrongName(domain); why != "" {
		return why
	}
	return wrongName(name)
}

func wrongEnvName(s string) string {
	if s == "" || len(s) > 256 {
		return "the name of a variable has 1 to 256 characters"
	}
	for i := range len(s) {
		c := s[i]
		if c != '_' && !isAlnum(c) || i == 0 && '0' <= c && c <= '9' {
			return "the name of a variable has only letters, digits and _, and does not begin with a digit"
		}
	}
	return ""
}

// wrongText says what is wrong with free text, "" for nothing.
func wrongText(s string, limit int) string {
	if len(s) > limit {
		return fmt.Sprintf("longer than %d bytes", limit)
	}
	if !utf8.ValidString(s) {
		return "not UTF-8"
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Sprintf("has a control character at byte %d", i)
	}
	return ""
}
