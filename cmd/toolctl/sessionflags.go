package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache/builtin"
)

// sessionFlags are the flags that describe a new session; run and session create
// have them both.
type sessionFlags struct {
	worktree, mode, target string
	identity               string
	profile, image         string
	runtime, net           string
	env, limits, mounts    []string
	permission             []string
	queue                  string
	caches                 []string
	budget                 []string
	project                string
}

func (f *sessionFlags) register(a *app, c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.worktree, "worktree", "", "host directory to work on (default: an empty one)")
	fs.StringVar(&f.mode, "mode", "", "bind (read-write), ro, overlay (changes are kept beside it) or empty (default with --worktree as configured, mostly bind, else empty)")
	fs.StringVar(&f.target, "target", "", "where the worktree is inside (default /workspace)")
	fs.StringVar(&f.identity, "identity", "", "whose name git writes into commits, 'NAME <EMAIL>' (default as configured, else that of your git)")
	fs.StringVar(&f.profile, "profile", "", "agent profile")
	fs.StringVar(&f.image, "image", "", "image that is the root filesystem, one of \"toolctl image list\"")
	fs.StringVar(&f.runtime, "runtime", "", "OCI runtime, where the daemon offers several")
	fs.StringVar(&f.net, "net", "", "network of the session: none (its own loopback) or rules (what rules allow; default as configured)")
	fs.StringArrayVar(&f.env, "env", nil, "environment variable `K=V`, or K to pass this one on (repeatable)")
	fs.StringArrayVar(&f.limits, "limit", nil, "limit `k=v`: "+strings.Join(limitNames(), ", ")+" (repeatable)")
	fs.StringArrayVar(&f.mounts, "mount", nil, "extra read-only directory `SRC:DST[:cow]` (repeatable); with :cow what the session writes there is thrown away with it")
	fs.StringArrayVar(&f.permission, "permission", nil, "rule `PERMISSION:PATTERN:ACTION` that narrows the profile, such as 'bash:git push *:deny' (repeatable)")
	fs.StringVar(&f.queue, "queue", "", "if the tenant has all its sessions, wait this `duration` for one to end, such as 10m")
	fs.StringSliceVar(&f.caches, "cache", nil, "caches `NAME,...` of compilers and package managers: "+strings.Join(builtin.Names(), ", ")+", or one of the configuration (repeatable)")
	fs.StringSliceVar(&f.budget, "budget", nil, "most that the session may use in all, `k=v,...`, such as calls=200,cpu=10m (also wall, output); it ends when one is used up")
	fs.StringVar(&f.project, "project", "", "project `file` such as toold.project.toml, whose text may narrow the session: lower limits, mode overlay or ro, caches, rules that deny")
	_ = c.MarkFlagDirname("worktree")
	_ = c.RegisterFlagCompletionFunc("cache", cobra.FixedCompletions(builtin.Names(), cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("profile", completeProfile)
	_ = c.RegisterFlagCompletionFunc("image", always(a.images))
	_ = c.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"bind", "ro", "overlay", "empty"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("net", cobra.FixedCompletions([]string{client.NetworkNone, client.NetworkRules}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("limit", cobra.FixedCompletions(limitCompletions(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// request is the session that the flags ask for. With overlay, others are for that mode alone. Errors
// are of usage.
func (f *sessionFlags) request(a *app, overlay bool) (client.SessionCreate, error) {
	r, err := f.asked(a.getenv)
	if err != nil || f.project == "" {
		return r, err
	}
	p := readProject(f.project)
	p.narrow(&r, overlay)
	for _, why := range p.refused[:min(len(p.refused), mostRefused)] {
		a.say("left out of %s: %s", line(f.project), why)
	}
	if more := len(p.refused) - mostRefused; more > 0 {
		a.say("left out of %s: %d more", line(f.project), more)
	}
	return r, nil
}

// asked is what the other flags ask for.
func (f *sessionFlags) asked(getenv func(string) string) (client.SessionCreate, error) {
	r := client.SessionCreate{
		Profile: f.profile,
		Image:   f.image,
		Runtime: f.runtime,
		Network: client.Network{Mode: f.net},
	}
	if f.net != "" && f.net != client.NetworkNone && f.net != client.NetworkRules {
		return r, usagef("--net %s: write none or rules", f.net)
	}
	var identity, worktree, env, limits, permission, mounts, budget, queue error
	r.Worktree, worktree = f.worktreeRequest()
	r.Worktree.Identity, identity = f.identityRequest()
	r.Env, env = parseEnv(f.env, getenv)
	r.Limits, limits = parseLimits(f.limits)
	r.Permission, permission = parseRules(f.permission)
	r.Mounts, mounts = parseMounts(f.mounts)
	r.Budget, budget = parseBudget(f.budget)
	for _, name := range f.caches {
		r.Caches = append(r.Caches, client.CacheUse{Name: name})
	}
	if r.Queue, queue = parseDurationFlag("--queue", f.queue); r.Queue < 0 {
		queue = usagef("--queue %s: write a time such as 10m", f.queue)
	}
	return r, cmp.Or(worktree, identity, env, limits, permission, mounts, budget, queue)
}

// worktreeRequest resolves the directory as the caller sees it: the daemon
// follows no link in it.
func (f *sessionFlags) worktreeRequest() (client.Worktree, error) {
	w := client.Worktree{Mode: client.WorktreeMode(f.mode), Target: f.target}
	if f.worktree == "" {
		if w.Mode != "" && w.Mode != client.WorktreeEmpty {
			return w, usagef("--mode %s needs a --worktree", f.mode)
		}
		return w, nil
	}
	if w.Mode == client.WorktreeEmpty {
		return w, usagef("--mode empty has no --worktree: leave one of them out")
	}
	dir, err := hostDir(f.worktree)
	if err != nil {
		return w, usagef("--worktree: %w", err)
	}
	w.Source = dir
	if info, err := os.Stat(dir); err == nil {
		w.Seen = client.SeenAs(info) // toold may have mounts of its own
	}
	return w, nil
}

// identityRequest is whose commits those of the session are: the flag's, or that of the
// caller's git, for one who has both name and address there.
func (f *sessionFlags) identityRequest() (*client.GitIdentity, error) {
	if f.identity != "" {
		i, err := client.ParseGitIdentity(f.identity)
		if err != nil {
			return nil, usagef("--identity: %w", err)
		}
		return &i, nil
	}
	if i := ownIdentity(); i.Check() == nil {
		return &i, nil
	}
	return nil, nil
}

// ownIdentity is the identity that the caller's git has for all repositories. A repository's own
// is not asked: the git of the session reads that by itself.
func ownIdentity() client.GitIdentity {
	i := client.GitIdentity{Creators: true}
	cmd := exec.Command("git", "config", "--global", "--includes", "--null", "--get-regexp", `^user\.(name|email)$`)
	cmd.Dir = "/"
	out, _ := cmd.Output() // no git, no configuration, no such key
	for entry := range strings.SplitSeq(string(out), "\x00") {
		switch key, value, _ := strings.Cut(entry, "\n"); key {
		case "user.name":
			i.Name = value
		case "user.email":
			i.Email = value
		}
	}
	return i
}

func hostDir(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func parseEnv(flags []string, getenv func(string) string) (map[string]string, error) {
	env := make(map[string]string)
	for _, kv := range flags {
		k, v, given := strings.Cut(kv, "=")
		if k == "" {
			return nil, usagef("--env %q has no name: write K=V", kv)
		}
		if !given {
			v = getenv(k)
		}
		env[k] = v
	}
	return env, nil
}

func parseMounts(flags []string) ([]client.Mount, error) {
	var mounts []client.Mount
	for _, f := range flags {
		src, rest, _ := strings.Cut(f, ":")
		dst, mode, given := strings.Cut(rest, ":")
		m := client.MountMode(mode)
		if src == "" || dst == "" || given && m != client.MountRO && m != client.MountCow {
			return nil, usagef("--mount %q: write SRC:DST, SRC:DST:ro or SRC:DST:cow", f)
		}
		dir, err := hostDir(src)
		if err != nil {
			return nil, usagef("--mount %q: %w", f, err)
		}
		mt := client.Mount{Source: dir, Target: dst, Mode: m}
		if info, err := os.Stat(dir); err == nil {
			mt.Seen = client.SeenAs(info)
		}
		mounts = append(mounts, mt)
	}
	return mounts, nil
}

// parseRules reads rules. A pattern may have colons; a permission and an action
// have none.
func parseRules(flags []string) ([]client.RuleOf, error) {
	var rules []client.RuleOf
	for _, f := range flags {
		permission, rest, ok := strings.Cut(f, ":")
		last := strings.LastIndexByte(rest, ':')
		if !ok || last < 0 || permission == "" {
			return nil, usagef("--permission %q: write PERMISSION:PATTERN:ACTION, such as 'bash:git push *:deny'", f)
		}
		r := client.RuleOf{Permission: permission, Pattern: rest[:last], Action: rest[last+1:]}
		if !slices.Contains(actions, r.Action) {
			return nil, usagef("--permission %q: the action %q is not one of %s", f, r.Action, strings.Join(actions, ", "))
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// actions are what a rule can say.
var actions = []string{"allow", "ask", "deny"}

// limitFields are the limits by their names in the API.
func limitFields(l *client.Limits) map[string]any {
	return map[string]any{
		"cpus": &l.CPUs, "memory": &l.Memory, "pids": &l.PIDs, "tmp": &l.Tmp, "open_files": &l.OpenFiles,
		"file_size": &l.FileSize, "disk": &l.Disk, "calls": &l.Calls, "output": &l.Output, "wall": &l.Wall,
	}
}

// setField reads a limit, or a part of a budget.
func setField(to any, v string) (err error) {
	switch to := to.(type) {
	case *client.Size:
		*to, err = client.ParseSize(v)
	case *client.Duration:
		*to, err = client.ParseDuration(v)
	case *float64:
		*to, err = strconv.ParseFloat(v, 64)
		return err
	case *int64:
		*to, err = strconv.ParseInt(v, 10, 64)
	case *int:
		*to, err = strconv.Atoi(v)
	}
	if _, syntax := errors.AsType[*strconv.NumError](err); syntax {
		return fmt.Errorf("%q is not a whole number", v)
	}
	return err
}

func parseLimits(flags []string) (client.Limits, error) {
	var l client.Limits
	fields := limitFields(&l)
	for _, kv := range flags {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return l, usagef("--limit %q: write NAME=VALUE, such as memory=512MiB", kv)
		}
		field, known := fields[strings.ReplaceAll(k, "-", "_")]
		if !known {
			return l, usagef("no limit %q%s; there are %s", k, didYouMean(k, limitNames()), strings.Join(limitNames(), ", "))
		}
		if err := setField(field, v); err != nil {
			return l, usagef("--limit %s: %w", kv, err)
		}
	}
	return l, nil
}

func limitNames() []string {
	return slices.Sorted(maps.Keys(limitFields(&client.Limits{})))
}

func limitCompletions() []string {
	names := limitNames()
	for i := range names {
		names[i] += "="
	}
	return names
}

// parseLabels reads K=V pairs.
func parseLabels(flags []string) (map[string]string, error) {
	labels := make(map[string]string)
	for _, kv := range flags {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usagef("--label %q: write K=V", kv)
		}
		labels[k] = v
	}
	return labels, nil
}

func parseDurationFlag(flag, value string) (client.Duration, error) {
	if value == "" {
		return 0, nil
	}
	d, err := client.ParseDuration(value)
	if err != nil {
		return 0, usagef("%s: %w", flag, err)
	}
	return d, nil
}

// createSession makes a session. Where it waits for a place (--queue), it says which
// one in the queue it has.
func createSession(ctx context.Context, a *app, c *client.Client, r client.SessionCreate) (*client.Session, error) {
	progress := a.progress("creating a session")
	defer progress.stop()
	create := func() (*client.Session, error) {
		if r.Queue == 0 {
			return c.CreateSession(ctx, r)
		}
		return c.CreateQueued(ctx, r, func(q client.SessionQueued) {
			text := fmt.Sprintf("no session is free (max_sessions): waiting, position %d", q.Position)
			if progress.set(text); !a.errTTY {
				a.say("%s", text)
			}
		})
	}
	s, err := create()
	if e, ok := errors.AsType[*client.Error](err); ok && e.Status == http.StatusBadRequest && r.Worktree.Seen != "" && strings.Contains(e.Message, "/worktree/seen") {
		r.Worktree.Seen = "" // a daemon of before, which knows no such key
		s, err = create()
	}
	return s, err
}
