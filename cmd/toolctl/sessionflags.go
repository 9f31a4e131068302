package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

// sessionFlags are the flags that describe a new session; run and session create
// have them both.
type sessionFlags struct {
	worktree, mode, target string
	profile, image         string
	runtime, net           string
	env, limits, mounts    []string
	permission             []string
	queue                  string
}

func (f *sessionFlags) register(a *app, c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.worktree, "worktree", "", "host directory to work on (default: an empty one)")
	fs.StringVar(&f.mode, "mode", "", "bind (read-write), ro, overlay (changes are kept beside it) or empty (default with --worktree as configured, mostly bind, else empty)")
	fs.StringVar(&f.target, "target", "", "where the worktree is inside (default /workspace)")
	fs.StringVar(&f.profile, "profile", "", "agent profile")
	fs.StringVar(&f.image, "image", "", "image that is the root filesystem, one of \"toolctl image list\"")
	fs.StringVar(&f.runtime, "runtime", "", "OCI runtime, where the daemon offers several")
	fs.StringVar(&f.net, "net", "", "network of the session; only \"none\" is supported: its own loopback")
	fs.StringArrayVar(&f.env, "env", nil, "environment variable `K=V`, or K to pass this one on (repeatable)")
	fs.StringArrayVar(&f.limits, "limit", nil, "limit `k=v`: "+strings.Join(limitNames(), ", ")+" (repeatable)")
	fs.StringArrayVar(&f.mounts, "mount", nil, "extra read-only directory `SRC:DST` (repeatable)")
	fs.StringArrayVar(&f.permission, "permission", nil, "rule `PERMISSION:PATTERN:ACTION` that narrows the profile, such as 'bash:git push *:deny' (repeatable)")
	fs.StringVar(&f.queue, "queue", "", "if the tenant has all its sessions, wait this `duration` for one to end, such as 10m")
	_ = c.MarkFlagDirname("worktree")
	_ = c.RegisterFlagCompletionFunc("profile", completeProfile)
	_ = c.RegisterFlagCompletionFunc("image", always(a.images))
	_ = c.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"bind", "ro", "overlay", "empty"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("limit", cobra.FixedCompletions(limitCompletions(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// request is the session that the flags ask for. Errors are of usage.
func (f *sessionFlags) request(getenv func(string) string) (client.SessionCreate, error) {
	r := client.SessionCreate{
		Profile: f.profile,
		Image:   f.image,
		Runtime: f.runtime,
		Network: client.Network{Mode: f.net},
	}
	if f.net != "" && f.net != "none" {
		return r, usagef("--net %s: sessions have no network but their own loopback: leave --net out; what a command needs from outside can be mounted (--mount) or copied in", f.net)
	}
	var err error
	if r.Worktree, err = f.worktreeRequest(); err != nil {
		return r, err
	}
	if r.Env, err = parseEnv(f.env, getenv); err != nil {
		return r, err
	}
	if r.Limits, err = parseLimits(f.limits); err != nil {
		return r, err
	}
	if r.Permission, err = parseRules(f.permission); err != nil {
		return r, err
	}
	if r.Mounts, err = parseMounts(f.mounts); err != nil {
		return r, err
	}
	if r.Queue, err = parseDurationFlag("--queue", f.queue); err == nil && r.Queue < 0 {
		err = usagef("--queue %s: write a time such as 10m", f.queue)
	}
	return r, err
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
	return w, nil
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
		src, dst, ok := strings.Cut(f, ":")
		if !ok || src == "" || dst == "" {
			return nil, usagef("--mount %q: write SRC:DST", f)
		}
		dir, err := hostDir(src)
		if err != nil {
			return nil, usagef("--mount %q: %w", f, err)
		}
		mounts = append(mounts, client.Mount{Source: dir, Target: dst})
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

// limitSetters read each limit by its name in the API.
var limitSetters = map[string]func(l *client.Limits, v string) error{
	"cpus": func(l *client.Limits, v string) (err error) {
		l.CPUs, err = strconv.ParseFloat(v, 64)
		return err
	},
	"memory":     sizeLimit(func(l *client.Limits) *client.Size { return &l.Memory }),
	"tmp":        sizeLimit(func(l *client.Limits) *client.Size { return &l.Tmp }),
	"file_size":  sizeLimit(func(l *client.Limits) *client.Size { return &l.FileSize }),
	"disk":       sizeLimit(func(l *client.Limits) *client.Size { return &l.Disk }),
	"output":     sizeLimit(func(l *client.Limits) *client.Size { return &l.Output }),
	"pids":       countLimit(func(l *client.Limits, n int64) { l.PIDs = n }),
	"open_files": countLimit(func(l *client.Limits, n int64) { l.OpenFiles = n }),
	"calls":      countLimit(func(l *client.Limits, n int64) { l.Calls = int(n) }),
	"wall": func(l *client.Limits, v string) (err error) {
		l.Wall, err = client.ParseDuration(v)
		return err
	},
}

func sizeLimit(field func(*client.Limits) *client.Size) func(*client.Limits, string) error {
	return func(l *client.Limits, v string) (err error) {
		*field(l), err = client.ParseSize(v)
		return err
	}
}

func countLimit(set func(*client.Limits, int64)) func(*client.Limits, string) error {
	return func(l *client.Limits, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		set(l, n)
		return nil
	}
}

func parseLimits(flags []string) (client.Limits, error) {
	var l client.Limits
	for _, kv := range flags {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return l, usagef("--limit %q: write NAME=VALUE, such as memory=512MiB", kv)
		}
		set, known := limitSetters[strings.ReplaceAll(k, "-", "_")]
		if !known {
			return l, usagef("no limit %q%s; there are %s", k, didYouMean(k, limitNames()), strings.Join(limitNames(), ", "))
		}
		if err := set(&l, v); err != nil {
			return l, usagef("--limit %s: %w", kv, err)
		}
	}
	return l, nil
}

func limitNames() []string {
	return slices.Sorted(maps.Keys(limitSetters))
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
