package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
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

// readProject reads a project file. Errors are of usage, and quote nothing of it: it may be another
// file of the user's than they think.
func readProject(name string) (*project, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, usagef("--project: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, usagef("--project %s: it is not a regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxProject+1))
	if err != nil {
		return nil, usagef("--project: %w", err)
	}
	if len(text) > maxProject {
		return nil, usagef("--project %s: it has more than %s", name, bytesShort(maxProject))
	}
	doc, err := tomltext.ParseShallow(name, text, projectDepth)
	if err != nil {
		at := ""
		if e, ok := errors.AsType[*tomltext.Error](err); ok && len(e.Problems) > 0 && e.Problems[0].Line > 0 {
			at = fmt.Sprintf(" at line %d", e.Problems[0].Line)
		}
		return nil, usagef("--project %s: it is not TOML%s, or nested deeper than %d tables", name, at, projectDepth)
	}
	p := &project{}
	for _, key := range slices.Sorted(maps.Keys(doc.Values)) {
		p.take(key, doc.Values[key])
	}
	return p, nil
}

func (p *project) refuse(key, why string) { p.refused = append(p.refused, line(key)+": "+why) }

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
		} else if err := setField(field, fmt.Sprint(table[k])); err != nil {
			p.refuse(key+"."+k, line(err.Error()))
		}
	}
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
		p.permission = append(p.permission, client.RuleOf{Permission: permission, Pattern: pattern, Action: action})
	}
}

// narrow makes a session less: what flags say stands where both say something, but for what the
// project has less of.
func (p *project) narrow(r *client.SessionCreate) {
	switch w := &r.Worktree; {
	case p.mode == "" || w.Source == "":
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
	// The last rule decides, and those of flags are the user's.
	r.Permission = append(p.permission, r.Permission...)
}

// less is the smaller of two bounds, where 0 or less is none.
func less[T ~int64](a, b T) T {
	if b <= 0 || a > 0 && a < b {
		return a
	}
	return b
}
