package session

import (
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/environ"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/limits"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/skill"
	"github.com/toold/toold/internal/tool"
)

// Bounds of what a request may hold.
const (
	maxLabels     = 64
	maxLabelKey   = 128
	maxLabelValue = 1024
	maxMounts     = 32
	maxTTL        = 10 * 365 * 24 * time.Hour
	maxKey        = 256
)

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
)

// checkCreate checks all of a request that can be checked without looking at
// the host, and fills in what was left out.
func (dm *daemon) checkCreate(ctx context.Context, r *client.SessionCreate, d sandbox.Driver, set *Settings, ten Tenant, bounds limits.Config) (notes []string, err error) {
	if r.Name != "" && (!namePattern.MatchString(r.Name) || strings.HasPrefix(r.Name, "ses_")) {
		return nil, fault.In(fault.Invalid.Errorf("name %q: use 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit and not with ses_", shown(r.Name)), "name")
	}
	if len(r.Delegates) > 0 {
		return nil, fault.In(notYet("delegates", strings.Join(r.Delegates, ","), "leave them out"), "delegates")
	}
	if err := tool.CheckChoice(r.Tools); err != nil {
		return nil, fault.In(fault.Invalid.Errorf("tools: %v", err), "tools")
	}
	if err := dm.checkRuntime(ctx, r, d, ten); err != nil {
		return nil, fault.In(err, "runtime")
	}
	if err := checkLabels(r.Labels); err != nil {
		return nil, err
	}
	if err := environ.Check(r.Env); err != nil {
		return nil, err
	}
	if err := checkTimes(r, set); err != nil {
		return nil, err
	}
	if err := checkPlaces(r); err != nil {
		return nil, err
	}
	if err := set.settleBudget(r, ten); err != nil {
		return nil, err
	}
	return limits.Fill(&r.Limits, bounds)
}

// bounds are what the limits of a session that p makes come from.
func (dm *daemon) bounds(p auth.Principal, set *Settings, from trees.Seed) limits.Config {
	ten := set.Tenants[p.Tenant]
	c := limits.Config{Default: set.Limits, TenantDefault: ten.Limits, StateDir: dm.cfg.OutputDir, Give: from.From != nil}
	if !set.free(p) {
		c.Most, c.TenantMost = set.MaxLimits, ten.MaxLimits
	}
	return c
}

// checkRuntime settles which runtime the session has, where the request or the
// tenant says it.
func (dm *daemon) checkRuntime(ctx context.Context, r *client.SessionCreate, d sandbox.Driver, ten Tenant) error {
	if want := ten.RequireRuntime; want != "" {
		if r.Runtime != "" && r.Runtime != want {
			return fault.Forbidden.Errorf("sessions of this tenant run on %s (require_runtime), and this one asks for %q", want, shown(r.Runtime)).
				Next("leave the runtime out")
		}
		r.Runtime = want
	}
	if r.Runtime == "" {
		return nil
	}
	err := d.Try(ctx, r.Runtime)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil: // the client has left
		return err
	case errors.Is(err, sandbox.ErrNoRuntime):
		hint := "take one of those"
		if ten.RequireRuntime != "" {
			hint = "an administrator has to set the tenant's require_runtime to one of those"
		}
		return fault.Invalid.Errorf("%w", err).Next(hint)
	}
	return fault.Overloaded.Errorf("no sandbox can be made with the runtime %q now: %s", shown(r.Runtime), plain.Cut(sandbox.Wrong(err), call.MaxNote)).
		Next("try again; where it stays so, toolctl doctor shows what is wrong with it")
}

func notYet(field, value, hint string) error {
	return fault.Invalid.Errorf("%s %q: this version of toold does not have it", field, shown(value)).Next(hint)
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fault.In(fault.Invalid.Errorf("%d labels; at most %d", len(labels), maxLabels).Next("leave some out"), "labels")
	}
	for k, v := range labels {
		if len(k) > maxLabelKey || !labelPattern.MatchString(k) {
			return fault.In(fault.Invalid.Errorf("label %q: a key has 1 to %d letters, digits, '.', '_', '/' and '-'", shown(k), maxLabelKey), "labels")
		}
		if len(v) > maxLabelValue || !plain.Printable(v) {
			return fault.In(fault.Invalid.Errorf("label %q: a value is UTF-8 text without control characters, at most %d bytes", k, maxLabelValue), "labels", k)
		}
	}
	return nil
}

func checkTimes(r *client.SessionCreate, set *Settings) error {
	if err := checkTTL(r.TTL); err != nil {
		return err
	}
	if time.Duration(r.IdleTimeout) > maxTTL {
		return fault.In(fault.Invalid.Errorf("idle_timeout %s: give a time up to %s, or a negative one for never", r.IdleTimeout, client.Duration(maxTTL)), "idle_timeout")
	}
	if r.IdleTimeout == 0 {
		r.IdleTimeout = client.Duration(set.IdleTimeout)
	}
	if r.LeasePID < 0 {
		return fault.In(fault.Invalid.Errorf("lease_pid %d: give the id of a process, or 0 for none", r.LeasePID), "lease_pid")
	}
	return nil
}

// checkPlaces checks where worktree and mounts are to appear inside.
func checkPlaces(r *client.SessionCreate) error {
	w := &r.Worktree
	if w.Mode == "" {
		w.Mode = client.WorktreeEmpty
		if w.Source != "" {
			w.Mode = client.WorktreeBind
		}
	}
	switch w.Mode {
	case client.WorktreeBind, client.WorktreeRO, client.WorktreeOverlay:
		if w.Source == "" {
			return fault.In(fault.Invalid.Errorf("worktree.mode %q needs worktree.source, an absolute path of a directory", w.Mode), "worktree", "source")
		}
	case client.WorktreeEmpty:
		if w.Source != "" {
			return fault.In(fault.Invalid.Errorf("worktree.mode \"empty\" has no source; leave worktree.source out, or use \"bind\" or \"ro\""), "worktree", "source")
		}
	default:
		return fault.In(notYet("worktree.mode", string(w.Mode), `use "overlay", "bind", "ro" or "empty"`), "worktree", "mode")
	}
	if w.Ref != "" {
		return fault.In(notYet("worktree.ref", w.Ref, "leave it out: the worktree is mounted as it is"), "worktree", "ref")
	}
	w.IDMap, w.Sensitive, w.KeptUntil = "", nil, nil
	if w.Target == "" {
		w.Target = sandbox.Workspace
	}
	places := []string{w.Target}
	if len(r.Mounts) > maxMounts {
		return fault.In(fault.Invalid.Errorf("%d mounts; at most %d", len(r.Mounts), maxMounts).Next("leave some out"), "mounts")
	}
	for i, mt := range r.Mounts {
		if mt.Source == "" {
			return fault.In(fault.Invalid.Errorf("mount at %q has no source", shown(mt.Target)).Next("give the absolute path of a file or directory of the host"), "mounts", strconv.Itoa(i))
		}
		if !slices.Contains([]client.MountMode{"", client.MountRO, client.MountCow}, mt.Mode) {
			return fault.In(fault.Invalid.Errorf("mount at %q: there is no mode %q", shown(mt.Target), shown(string(mt.Mode))).Next(`use "ro" or "cow"`), "mounts", strconv.Itoa(i), "mode")
		}
		places = append(places, mt.Target)
	}
	return checkFields(places, len(r.Mounts))
}

// checkFields is checkTargets of the worktree, so many mounts, and caches.
func checkFields(places []string, mounts int) error {
	i, err := wrongTarget(places)
	switch {
	case i == 0:
		return fault.In(err, "worktree", "target")
	case i <= mounts:
		return fault.In(err, "mounts", strconv.Itoa(i-1), "target")
	}
	return fault.In(err, "caches")
}

// ownTargets are places inside that are the sandbox's own.
var ownTargets = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", sandbox.Home, builtin.Root, skill.Root}

// checkTargets checks the places of the worktree, which is the first, and of the
// mounts. Those may lie in the worktree and in each other.
func checkTargets(places []string) error {
	_, err := wrongTarget(places)
	return err
}

// wrongTarget is the first place that cannot be had, and why.
func wrongTarget(places []string) (i int, err error) {
	for i, p := range places {
		if !path.IsAbs(p) || path.Clean(p) != p || len(p) > 1024 || !plain.Printable(p) {
			return i, fault.Invalid.Errorf("target %q: give an absolute, clean path of at most 1024 printable bytes", shown(p))
		}
		if p == "/" || p == "/home" {
			return i, fault.Invalid.Errorf("target %q: nothing can be mounted there", p).Next(elsewhereInside)
		}
		for _, own := range ownTargets {
			if under(p, own) {
				return i, fault.Invalid.Errorf("target %q: nothing can be mounted at or below %s", shown(p), own).Next(elsewhereInside)
			}
		}
		if slices.Contains(places[:i], p) {
			return i, fault.Invalid.Errorf("target %q is given twice", shown(p)).Next("give each a place of its own")
		}
		if worktree := places[0]; i > 0 && under(worktree, p) {
			return i, fault.Invalid.Errorf("target %q lies above the worktree at %q and would hide it", shown(p), shown(worktree)).Next("give one beside the worktree, or in it")
		}
	}
	return 0, nil
}

// elsewhereInside is what to do about a target that is the sandbox's own.
const elsewhereInside = "give a place of its own, such as /data"

func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// leastTTL is the shortest life of a session. A number alone is milliseconds, so who writes 60 means more.
const leastTTL = time.Second

func checkTTL(ttl client.Duration) error {
	switch d := time.Duration(ttl); {
	case d < 0 || d > maxTTL:
		return fault.In(fault.Invalid.Errorf("ttl %s: give a time up to %s, or 0 for none", ttl, client.Duration(maxTTL)), "ttl")
	case d > 0 && d < leastTTL:
		return fault.In(fault.Invalid.Errorf("ttl %s: give %s or more (a number alone is milliseconds), or 0 for none", ttl, client.Duration(leastTTL)), "ttl")
	}
	return nil
}
