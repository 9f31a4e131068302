package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/tomltext"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run/ignore"
)

// problems are those that the types cannot say.
func (c *Config) problems() []tomltext.Problem {
	v := validator{at: c.origins}
	v.daemon(&c.Daemon)
	v.metrics(&c.Metrics)
	v.sandbox(&c.Sandbox)
	v.limits([]string{"limits"}, &c.Limits, nil)
	v.worktrees(&c.Worktrees)
	v.oneOf("network.mode", c.Network.Mode, networkModes)
	v.networkLimits([]string{"network", "limits"}, &c.Network.Limits, true)
	v.check(len(c.Network.TLS) <= maxTLS && !slices.ContainsFunc(c.Network.TLS, func(p int) bool { return p < 1 || p > 65535 }), "network.tls", "is %d: at most %d ports, each 1 to 65535", c.Network.TLS, maxTLS)
	v.truncate(&c.Truncate)
	v.offers(&c.Tools)
	v.profiles(c.Profiles)
	v.bash(&c.Tools.Bash, c.Limits.Wall)
	v.oneOf("tools.edit.matching", c.Tools.Edit.Matching, []string{"default", "strict", "lenient"})
	v.doomLoop(&c.DoomLoop)
	v.approvals(&c.Approvals)
	v.mcpServer(&c.MCPServer)
	v.paths([]string{"skills", "paths"}, c.Skills.Paths)
	v.audit(&c.Audit)
	v.hooks(c.Hooks)
	v.caches(c)
	v.budgets(c)
	v.tenants(c)
	return v.found
}

// validator collects problems with the lines that they come from.
type validator struct {
	at    origins
	found []tomltext.Problem
}

func (v *validator) problem(path []string, format string, args ...any) {
	at := v.at.of(path)
	v.found = append(v.found, tomltext.Problem{Source: at.source, Line: at.line, Message: tomltext.Dotted(path...) + ": " + fmt.Sprintf(format, args...)})
}

func (v *validator) check(ok bool, key, format string, args ...any) {
	if !ok {
		v.problem(strings.Split(key, "."), format, args...)
	}
}

// oneOf checks a word.
func (v *validator) oneOf(key, got string, allowed []string) {
	v.check(slices.Contains(allowed, got), key, "%q is not one of %s", got, orList(allowed))
}

// maxTLS bounds network.tls; they are among the ports that are listened at.
const maxTLS = 32

// networkModes are what a session may reach.
var networkModes = []string{"none", "rules"}

// networkLimits checks one section. Those of a tenant may be 0, which is not set.
func (v *validator) networkLimits(section []string, l *NetworkLimits, required bool) {
	for _, x := range []struct {
		key      string
		got      int64
		min, max int64
		free     bool // 0 is no bound
	}{
		{"connections", int64(l.Connections), 1, 65536, false},
		{"per_second", int64(l.PerSecond), 1, 100000, false},
		{"bytes", int64(l.Bytes), 1, 1 << 60, true},
		{"idle", int64(l.Idle), int64(time.Second), int64(30 * 24 * time.Hour), false},
	} {
		if x.got == 0 && (x.free || !required) {
			continue
		}
		if x.got < x.min || x.got > x.max {
			v.problem(append(slices.Clone(section), x.key), "is out of range: connections 1 to 65536, per_second 1 to 100000, bytes 0 or more, idle 1s to 720h")
		}
	}
}

func orList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(quoted, ", ")
}

// path checks one host path. hint says what else may stand there.
func (v *validator) path(path []string, p, hint string) {
	switch {
	case strings.ContainsRune(p, 0):
		v.problem(path, "%q has a NUL byte", p)
	case !filepath.IsAbs(p):
		v.problem(path, "%q is not an absolute path%s", p, hint)
	case filepath.Clean(p) != p:
		v.problem(path, "%q is not a clean path: write %q", p, filepath.Clean(p))
	case p == "/":
		v.problem(path, "the host's whole root is never a choice here")
	}
}

// paths checks a list of host paths.
func (v *validator) paths(path []string, list []string) {
	for i, p := range list {
		v.path(path, p, "")
		if slices.Contains(list[:i], p) {
			v.problem(path, "%q stands here twice", p)
		}
	}
}

// maxSocket is what fits into a struct sockaddr_un.
const maxSocket = 107

// minRecords is the least that the records of a tenant may have.
const minRecords = 32 << 20

func (v *validator) daemon(d *Daemon) {
	v.path([]string{"daemon", "socket"}, d.Socket, "")
	v.check(len(d.Socket) <= maxSocket, "daemon.socket", "is longer than the %d bytes that a socket's path may have", maxSocket)
	v.path([]string{"daemon", "state_dir"}, d.StateDir, "")
	v.path([]string{"daemon", "run_dir"}, d.RunDir, "")
	v.check(d.StateDir != d.RunDir, "daemon.run_dir", "is the same directory as state_dir: the one is emptied at a reboot, the other must not be")
	v.oneOf("daemon.log", d.Log, []string{"auto", "json", "text"})
	v.check(d.Retention > 0, "daemon.retention", "must be more than 0")
	for key, text := range map[string]string{"daemon.host_free": d.HostFree, "daemon.host_memory": d.HostMemory} {
		bytes, _, err := Floor(text)
		v.check(err == nil && bytes >= 0, key, "%v; give a size (1GiB) or a part of the whole (5%%)", err)
	}
	v.check(d.Records >= minRecords, "daemon.records", "must be at least %s: one call may have an input of 16MiB", client.Size(minRecords))
}

// hostname is a name that may stand for an address of this host, as that of a
// service in a container does.
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// metrics wants an address in full: ":9477" would listen on every interface
// without anybody having said so.
func (v *validator) metrics(m *Metrics) {
	if m.Listen == "" {
		return
	}
	_, err := netip.ParseAddrPort(m.Listen)
	if host, port, split := net.SplitHostPort(m.Listen); err != nil && split == nil && hostname.MatchString(host) {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	v.check(err == nil, "metrics.listen", "%q is not HOST:PORT with an address or a name of this host, such as 127.0.0.1:9477; empty turns it off", m.Listen)
}

// lastUID is the last host uid that sessions may get: above it signed 32-bit
// programs see negative numbers.
const lastUID = 1<<31 - 1

func (v *validator) sandbox(s *Sandbox) {
	v.oneOf("sandbox.driver", s.Driver, []string{"oci", "docker"})
	engine := s.Driver == "docker"
	switch s.Runtime {
	case "auto", "runc", "crun", "runsc":
	default:
		if engine {
			v.check(runtimeName.MatchString(s.Runtime), "sandbox.runtime", `%q is neither "auto" nor the name of a runtime of the Docker Engine`, s.Runtime)
			break
		}
		v.path([]string{"sandbox", "runtime"}, s.Runtime, `, "auto", "runc", "crun" or "runsc"`)
	}
	switch {
	case engine && s.Image() == "":
		v.check(false, "sandbox.rootfs", `%q: with driver = "docker" it is the name of the image that sessions have by default, such as debian:12`, s.RootFS)
	case s.RootFS == "host":
	case s.Image() != "":
		v.check(imageName.MatchString(s.RootFS), "sandbox.rootfs", `%q is neither "host", nor the name of an image such as tools:1, nor an absolute path of a directory`, s.RootFS)
	default:
		v.path([]string{"sandbox", "rootfs"}, s.RootFS, "")
	}
	v.paths([]string{"sandbox", "host_paths"}, s.HostPaths)
	v.check(len(s.HostPaths) == 0 || s.RootFS == "host", "sandbox.host_paths", `means nothing unless rootfs = "host": remove it`)
	v.check(s.UIDBase%65536 == 0 && s.UIDBase >= 65536 && s.UIDBase <= lastUID-65535, "sandbox.uid_base",
		"%d is not a multiple of 65536 between 65536 and %d", s.UIDBase, lastUID-65535)
}

// imageName is what the name or the digest of an image looks like from afar.
var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$`)

func (v *validator) truncate(t *Truncate) {
	v.check(t.MaxLines >= 1, "truncate.max_lines", "must be at least 1")
	v.check(t.MaxBytes >= 1024, "truncate.max_bytes", "must be at least 1024")
	v.oneOf("truncate.direction", t.Direction, []string{"auto", "head", "tail", "both"})
	v.check(t.SpillFile >= 64<<10, "truncate.spill_file", "must be at least 64KiB")
	v.check(t.SpillSession >= t.SpillFile, "truncate.spill_session", "must be at least spill_file (%s)", t.SpillFile)
	v.check(t.Keep >= 0, "truncate.keep", "must not be negative")
}

func (v *validator) worktrees(w *Worktrees) {
	v.paths([]string{"worktrees", "roots"}, w.Roots)
	v.paths([]string{"worktrees", "mounts"}, w.Mounts)
	v.mode([]string{"worktrees", "mode"}, w.Mode)
	v.check(w.Keep > 0, "worktrees.keep", "must be more than 0")
	v.oneOf("worktrees.checkpoint", w.Checkpoint, []string{"off", "call", "message"})
	for i, pattern := range w.Sensitive {
		_, err := ignore.New([]string{pattern})
		v.check(err == nil, "worktrees.sensitive", "pattern %d cannot be read, or has more than %d bytes", i+1, ignore.MaxPattern)
	}
	v.check(len(w.Sensitive) <= ignore.MaxPatterns, "worktrees.sensitive", "has more than %d patterns", ignore.MaxPatterns)
	if w.Identity != "" {
		_, err := client.ParseGitIdentity(w.Identity)
		v.check(err == nil, "worktrees.identity", "%v", err)
	}
}

// mode checks how directories get into sessions.
func (v *validator) mode(path []string, mode string) {
	v.oneOf(strings.Join(path, "."), mode, []string{"bind", "ro", "overlay"})
}

// profiles checks the settings of profiles; package policy checks their names.
func (v *validator) profiles(all map[string]Profile) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v.ownTruncate("profile."+name, all[name].Truncate)
		if mode := all[name].RequireMode; mode != "" {
			v.mode([]string{"profile", name, "require_mode"}, mode)
		}
		v.tools([]string{"profile", name, "tools"}, all[name].Tools)
	}
}

// tools checks the names of tools that are chosen.
func (v *validator) tools(path []string, names []string) {
	if err := tool.CheckChoice(names); err != nil {
		v.problem(path, "%v", err)
	}
}

// ownTruncate checks the limits of a profile or a tool.
func (v *validator) ownTruncate(of string, t OwnTruncate) {
	at := func(key string) string { return strings.Join([]string{of, "truncate", key}, ".") }
	v.check(t.MaxLines >= 0, at("max_lines"), "must be at least 1")
	v.check(t.MaxBytes == 0 || t.MaxBytes >= 1024, at("max_bytes"), "must be at least 1024")
	if t.Direction != "" {
		v.oneOf(at("direction"), t.Direction, []string{"auto", "head", "tail", "both"})
	}
}

// offers checks what every tool has.
func (v *validator) offers(t *Tools) {
	all := t.Offers()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v.ownTruncate("tools."+name, all[name].Truncate)
	}
}

func (v *validator) bash(b *Bash, wall client.Duration) {
	v.oneOf("tools.bash.opaque", b.Opaque, []string{"rule", "ask", "deny"})
	v.check(b.Timeout > 0, "tools.bash.timeout", "must be more than 0")
	v.check(b.MaxTimeout == wall, "tools.bash.max_timeout", "is limits.wall by its other name, and that is %s: set one of them", wall)
	v.check(b.Timeout <= wall, "tools.bash.timeout", "is more than the longest that a call may take (limits.wall, %s)", wall)
	if len(b.Shell) == 0 {
		v.check(false, "tools.bash.shell", "must name a shell")
		return
	}
	v.path([]string{"tools", "bash", "shell"}, b.Shell[0], " of a shell")
	name := filepath.Base(b.Shell[0])
	v.check(name != "fish" && name != "nu", "tools.bash.shell", "%s does not speak the language of sh that agents write: use bash", name)
}

var tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (v *validator) tenants(c *Config) {
	v.check(len(c.Admin.UIDs)+len(c.Admin.GIDs) > 0, "admin.uids", "nobody would be an admin: name at least one uid or gid")
	ids := identities{v: v, uids: map[uint32]string{}, gids: map[uint32]string{}}
	ids.add([]string{"admin"}, auth.DefaultTenant, c.Admin.UIDs, c.Admin.GIDs)
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t := c.Tenants[name]
		path := []string{"tenant", name}
		if !tenantName.MatchString(name) {
			v.problem(path, "a tenant's name is 1 to 63 of a-z, 0-9, _ and -, and begins with a letter or digit")
		}
		ids.add(path, name, t.UIDs, t.GIDs)
		if name != auth.DefaultTenant && len(t.UIDs)+len(t.GIDs) == 0 {
			v.problem(path, "has neither uids nor gids: nobody could be in it")
		}
		v.tenant(path, &t, &c.Limits.Max)
	}
}

// runtimeName is how runtimes are named; an absolute path is not.
var runtimeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

func (v *validator) tenant(path []string, t *Tenant, most *client.Limits) {
	sub := func(key string) []string { return append(slices.Clone(path), key) }
	v.paths(sub("roots"), t.Roots)
	for _, x := range []struct {
		key string
		got int
	}{{"max_sessions", t.MaxSessions}, {"max_calls", t.MaxCalls}} {
		if x.got < 0 {
			v.problem(sub(x.key), "must not be negative")
		}
	}
	if t.Records != 0 && t.Records < minRecords {
		v.problem(sub("records"), "must be at least %s: one call may have an input of 16MiB", client.Size(minRecords))
	}
	if r := t.RequireRuntime; r != "" && !runtimeName.MatchString(r) {
		v.problem(sub("require_runtime"), `%q is no name of a runtime: use runc, crun, runsc, or the last part of the path in sandbox.runtime`, r)
	}
	if t.Network.Mode != "" {
		v.oneOf(strings.Join(sub("network.mode"), "."), t.Network.Mode, networkModes)
	}
	v.networkLimits(append(sub("network"), "limits"), &t.Network.Limits, false)
	if t.RequireMode != "" {
		v.mode(sub("require_mode"), t.RequireMode)
	}
	v.tools(sub("tools"), t.Tools)
	v.limits(sub("limits"), &t.Limits, most)
}

// identities finds ids that two tenants claim: whose session would it be?
type identities struct {
	v          *validator
	uids, gids map[uint32]string
}

func (ids *identities) add(path []string, tenant string, uids, gids []uint32) {
	for _, x := range []struct {
		key  string
		list []uint32
		seen map[uint32]string
	}{{"uids", uids, ids.uids}, {"gids", gids, ids.gids}} {
		at := append(slices.Clone(path), x.key)
		for i, id := range x.list {
			owner, taken := x.seen[id]
			switch {
			case slices.Contains(x.list[:i], id):
				ids.v.problem(at, "%d stands here twice", id)
			case taken && owner != tenant:
				ids.v.problem(at, "%d belongs to the tenant %q already", id, owner)
			}
			x.seen[id] = tenant
		}
	}
}
