package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tomltext"
)

// project is what a project file says: the text of whoever wrote the worktree. It can make a session
// less than it would be, and ask for caches that nobody else sees what it writes to.
type project struct {
	mode       client.WorktreeMode // overlay or ro, "" for nothing
	caches     []string
	limits     client.Limits // the most
	budget     client.Budget // likewise
	offline    bool
	permission []client.RuleOf // for network and http, that deny or ask
	refused    []string        // what it may not say, each with why
}

// maxProject bounds a project file, in bytes.
const maxProject = 64 << 10

// projectDepth is how deep tables may be nested in one.
const projectDepth = 4

// mostRefused is how much of what a project file may not say is said.
const mostRefused = 10

// flagsAlone are keys of sessions that a project file must not have.
var flagsAlone = []string{"mounts", "env", "image", "runtime", "delegates", "approvals", "profile", "identity", "target", "tools"}

// readProject reads a project file. Nothing in it makes a session fail: what cannot be taken is among what
// is refused, the whole file too. Nothing of one that is not TOML is quoted: it may be another file of
// the user's than they think.
func readProject(name string) *project {
	p := &project{}
	doc, err := projectText(name)
	if err != nil {
		p.refused = []string{"all of it: " + line(err.Error())}
		return p
	}
	for _, key := range slices.Sorted(maps.Keys(doc.Values)) {
		p.take(key, doc.Values[key])
	}
	return p
}

func projectText(name string) (*tomltext.Document, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, errors.New("it is a symbolic link")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxProject+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxProject {
		return nil, fmt.Errorf("it has more than %s", bytesShort(maxProject))
	}
	doc, err := tomltext.ParseShallow(name, text, projectDepth)
	if err != nil {
		at := ""
		if e, ok := errors.AsType[*tomltext.Error](err); ok && len(e.Problems) > 0 && e.Problems[0].Line > 0 {
			at = fmt.Sprintf(" at line %d", e.Problems[0].Line)
		}
		return nil, fmt.Errorf("it is not TOML%s, or nested deeper than %d tables", at, projectDepth)
	}
	return doc, nil
}

func (p *project) refuse(key, why string) {
	p.refused = append(p.refused, clipped(line(key), noteWidth)+": "+clipped(line(why), 2*noteWidth))
}

func (p *project) take(key string, v any) {
	table, isTable := v.(map[string]any)
	if slices.Contains([]string{"limits", "budget", "network", "permission"}, key) && !isTable {
		p.refuse(key, "it is a table: ["+key+"]")
		return
	}
	switch key {
	case "mode":
		if p.mode = client.WorktreeMode(fmt.Sprint(v)); p.mode != client.WorktreeOverlay && p.mode != client.WorktreeRO {
			p.mode = ""
			p.refuse(key, "a project may ask for overlay or ro")
		}
	case "caches":
		names, _ := v.([]any)
		for _, n := range names {
			p.caches = append(p.caches, fmt.Sprint(n))
		}
		if names == nil {
			p.refuse(key, `it is a list: ["go", "npm"]`)
		}
	case "limits":
		p.fields(key, table, limitFields(&p.limits))
	case "budget":
		b := &p.budget
		p.fields(key, table, map[string]any{"calls": &b.Calls, "cpu": &b.CPU, "wall": &b.Wall, "output": &b.Output})
	case "network":
		for _, k := range slices.Sorted(maps.Keys(table)) {
			if p.offline = p.offline || k == "mode" && table[k] == client.NetworkNone; k != "mode" || table[k] != client.NetworkNone {
				p.refuse("network."+k, `a project may have mode = "none", and rules in [permission.network] and [permission.http]`)
			}
		}
	case "permission":
		for _, k := range slices.Sorted(maps.Keys(table)) {
			p.rules(k, table[k])
		}
	default:
		why := "no key of project files; they have mode, caches, limits, budget, network and permission"
		if slices.Contains(flagsAlone, key) {
			why = "for flags and config.toml alone"
		}
		p.refuse(key, why)
	}
}

// fields reads numbers, sizes and times.
func (p *project) fields(key string, table map[string]any, fields map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(table)) {
		field, known := fields[k]
		if !known {
			p.refuse(key+"."+k, "there are "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			continue
		}
		err := setField(field, fmt.Sprint(table[k]))
		if low := leastFields[k]; err == nil && (math.IsInf(number(field), 0) || !(number(field) >= number(low))) { // NaN is not
			err = fmt.Errorf("it is a number of at least %v, with which a session works", reflect.ValueOf(low).Elem())
		}
		if err != nil {
			p.refuse(key+"."+k, err.Error())
			reflect.ValueOf(field).Elem().SetZero()
		}
	}
}

// leastFields are the least with which a session begins, and runs a command: what a project may lower
// to. One where a shell cannot start would have failed.
var leastFields = func() map[string]any {
	cpu := client.Duration(time.Second)
	fields := limitFields(&client.Limits{
		CPUs: 0.01, Memory: 16 << 20, PIDs: 16, Tmp: 1 << 20, OpenFiles: 64, FileSize: 1 << 20, Disk: 64 << 20,
		Calls: 1, Output: 64 << 10, Wall: client.Duration(time.Second),
	})
	fields["cpu"] = &cpu
	return fields
}()

// number is the value of a field.
func number(field any) float64 {
	switch f := field.(type) {
	case *float64:
		return *f
	case *int:
		return float64(*f)
	case *int64:
		return float64(*f)
	case *client.Size:
		return float64(*f)
	case *client.Duration:
		return float64(*f)
	}
	return math.NaN()
}

// rules reads the rules of one permission.
func (p *project) rules(permission string, v any) {
	if permission != "network" && permission != "http" {
		p.refuse("permission."+permission, "a project may have rules for network and http")
		return
	}
	patterns, ok := v.(map[string]any)
	if !ok {
		patterns = map[string]any{"*": v}
	}
	for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
		action, _ := patterns[pattern].(string)
		if action != "deny" && action != "ask" {
			p.refuse(fmt.Sprintf("permission.%s.%q", permission, pattern), "a project may deny and ask")
			continue
		}
		rule := client.RuleOf{Permission: permission, Pattern: pattern, Action: action}
		_, err := policy.CheckRules("project", []client.RuleOf{rule})
		if err = cmp.Or(err, policy.CheckSpelling("project", []client.RuleOf{rule})); err != nil {
			p.refuse(fmt.Sprintf("permission.%s.%q", permission, pattern), err.Error())
			continue
		}
		p.permission = append(p.permission, rule)
	}
}

// narrow makes a session less: what flags say stands where both say something, but for what the
// project has less of. With overlay, other flags are for that mode alone.
func (p *project) narrow(r *client.SessionCreate, overlay bool) {
	switch w := &r.Worktree; {
	case p.mode == "" || w.Source == "":
	case w.Mode == "" && overlay && p.mode != client.WorktreeOverlay:
		p.refuse("mode", "--apply, --discard and --patch are for the mode overlay")
	case w.Mode == "":
		w.Mode = p.mode
	case w.Mode != p.mode:
		p.refuse("mode", "--mode "+string(w.Mode)+" was given")
	}
	for _, name := range p.caches {
		if !slices.ContainsFunc(r.Caches, func(c client.CacheUse) bool { return c.Name == name }) {
			r.Caches = append(r.Caches, client.CacheUse{Name: name, Mode: client.CacheCow})
		}
	}
	r.AtMost = p.limits
	r.Budget.Calls = less(r.Budget.Calls, p.budget.Calls)
	r.Budget.CPU = less(r.Budget.CPU, p.budget.CPU)
	r.Budget.Wall = less(r.Budget.Wall, p.budget.Wall)
	r.Budget.Output = less(r.Budget.Output, p.budget.Output)
	if p.offline {
		r.Network.Mode = client.NetworkNone
	}
	if most := max(policy.MaxRules-len(r.Permission), 0); len(p.permission) > most {
		p.refuse("permission", fmt.Sprintf("%d rules are more than a session has; the first %d hold", len(p.permission), most))
		p.permission = p.permission[:most]
	}
	// The last rule decides, and those of flags are the user's.
	r.Permission = append(p.permission, r.Permission...)
}

// create makes the session of a request. The mode and the caches that a project file asks for are left
// out with a word where the daemon does not give them. With apart, changes beside the worktree would be
// gone with the daemon.
func (f *sessionFlags) create(ctx context.Context, a *app, c *client.Client, r client.SessionCreate, apart bool) (*client.Session, error) {
	bare := r
	if f.mode == "" {
		bare.Worktree.Mode = ""
	}
	bare.Caches = slices.DeleteFunc(slices.Clone(r.Caches), func(c client.CacheUse) bool { return !slices.Contains(f.caches, c.Name) })
	if f.project == "" {
		bare = r
	}
	if !apart && bare.Worktree.Mode == "" && r.Worktree.Mode == client.WorktreeOverlay {
		a.say("left out of %s: mode: no toold listens at %s, and one that ends with this command keeps no changes: add --apply, --discard, --patch FILE or --report DIR", line(f.project), line(a.socketPath()))
		r.Worktree.Mode = ""
	}
	s, err := createSession(ctx, a, c, r)
	other := []struct {
		what   string
		mode   client.WorktreeMode
		caches []client.CacheUse
	}{
		{"mode", bare.Worktree.Mode, r.Caches},
		{"caches", r.Worktree.Mode, bare.Caches},
		{"mode and caches", bare.Worktree.Mode, bare.Caches},
	}
	why := err
	for _, o := range other {
		if e, ok := errors.AsType[*client.Error](err); !ok || !slices.Contains([]client.Code{client.CodeInvalidRequest, client.CodeInvalidInput, client.CodeForbidden}, e.Code) {
			break
		}
		if o.mode == r.Worktree.Mode && len(o.caches) == len(r.Caches) {
			continue
		}
		less := r
		less.Worktree.Mode, less.Caches = o.mode, o.caches
		if s, err = createSession(ctx, a, c, less); err == nil {
			a.say("left out of %s: %s: %s", line(f.project), o.what, lines(why.Error()))
		}
	}
	return s, err
}

// less is the smaller of two bounds, where 0 or less is none.
func less[T ~int64](a, b T) T {
	if b <= 0 || a > 0 && a < b {
		return a
	}
	return b
}
