package main

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/call"

	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/server"
	"github.com/toold/toold/internal/session"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/skill"
	"github.com/toold/toold/internal/tool"
)

// idleTimeout ends sessions that nobody used for so long, unless they were
// created with another.
const idleTimeout = time.Hour

// minFree is how much of the state directory's file system stays free: below it
// sessions may write no more outputs, and calls may have no large inputs.
const minFree = 256 << 20

// sessionSettings makes of the configuration what the session manager wants.
func sessionSettings(c *config.Config, daemonPath string, private bool) session.Settings {
	s := session.Settings{
		Settings: call.Settings{
			Truncate:        truncation(&c.Truncate),
			ProfileTruncate: make(map[string]output.Limits),
			ToolTruncate:    toolTruncation(&c.Tools),
			BashTimeout:     time.Duration(c.Tools.Bash.Timeout),
			Shell:           c.Tools.Bash.Shell,
			ToolSettings:    toolSettings(c),
			MinFree:         minFree,
		},
		Private:       private,
		Limits:        c.Limits.Limits,
		MaxLimits:     c.Limits.Max,
		WorktreeRoots: c.Worktrees.Roots,
		MountRoots:    c.Worktrees.Mounts,
		GuardGit:      c.Worktrees.GuardGit,
		IdleTimeout:   idleTimeout,
		Retention:     time.Duration(c.Daemon.Retention),
		Path:          toolPath(&c.Sandbox, daemonPath),
		Restrictions:  restrictions(&c.Tools),
		Tenants:       make(map[string]session.Tenant),
		Records:       int64(c.Daemon.Records),
		Skills:        skill.Load(c.Skills.Paths),
		RequireImage:  c.Sandbox.RequireImage,
		HostFree:      floor(c.Daemon.HostFree), HostMemory: floor(c.Daemon.HostMemory), DiskOvercommit: c.Sandbox.DiskOvercommit,
		Policy:     c.Policy,
		Approvals:  approvals(&c.Approvals),
		Loop:       c.DoomLoop,
		Hooks:      hooks(c.Hooks),
		Opaque:     c.Tools.Bash.Opaque,
		Network:    network(c.Network.Mode, c.Network.Learn, &c.Network.Limits, session.Network{TLS: ports(c.Network.TLS)}),
		Caches:     cacheSettings(c.Caches),
		CacheBytes: int64(c.Daemon.Caches),
		Budget:     c.Budget,
		Budgets:    make(map[string]client.Budget),
		Worktrees: session.Worktrees{
			Mode: client.WorktreeMode(c.Worktrees.Mode), Keep: time.Duration(c.Worktrees.Keep),
			Checkpoint: trees.When(c.Worktrees.Checkpoint), Required: make(map[string]client.WorktreeMode),
			Skills: c.Skills.Worktree, Sensitive: c.Worktrees.Sensitive,
			Identity: gitIdentity(c.Worktrees.Identity),
		},
	}
	s.Choices = judge.Choices{Profiles: make(map[string][]string), Tenants: make(map[string][]string)}
	for name, p := range c.Profiles {
		s.Choices.Profiles[name] = p.Tools
		s.ProfileTruncate[name] = ownTruncation(&p.Truncate)
		s.Worktrees.Required[name] = client.WorktreeMode(p.RequireMode)
		s.Budgets[name] = p.Budget
	}
	for name, t := range c.Tenants {
		s.Choices.Tenants[name] = t.Tools
		s.Tenants[name] = session.Tenant{
			Roots: t.Roots, MaxSessions: t.MaxSessions, MaxCalls: t.MaxCalls, Records: int64(t.Records), Limits: t.Limits.Limits, MaxLimits: t.Limits.Max,
			RequireImage: t.RequireImage, RequireRuntime: t.RequireRuntime, RequireMode: client.WorktreeMode(t.RequireMode), Budget: t.Budget,
			Network:      network(t.Network.Mode, t.Network.Learn || c.Network.Learn, &config.NetworkLimits{Idle: t.Network.Limits.Idle}, s.Network),
			NetworkInAll: network("", false, &t.Network.Limits, session.Network{}).Limits,
		}
	}
	return s
}

// floor is daemon.host_free or daemon.host_memory, which were checked.
func floor(text string) room.Floor {
	bytes, percent, _ := config.Floor(text)
	return room.Floor{Bytes: int64(bytes), Percent: percent}
}

// gitIdentity is one of the configuration, which was checked; nil for none.
func gitIdentity(s string) *client.GitIdentity {
	if s == "" {
		return nil
	}
	i, _ := client.ParseGitIdentity(s)
	return &i
}

// ports are of the configuration, which was checked.
func ports(list []int) (all []uint16) {
	for _, p := range list {
		all = append(all, uint16(p))
	}
	return all
}

// network is one section, over what is not set in it.
func network(mode string, learn bool, l *config.NetworkLimits, over session.Network) session.Network {
	return session.Network{
		Mode: cmp.Or(mode, over.Mode), Learn: learn, TLS: over.TLS,
		Limits: egress.Limits{
			Connections: cmp.Or(l.Connections, over.Limits.Connections), PerSecond: cmp.Or(l.PerSecond, over.Limits.PerSecond),
			Bytes: cmp.Or(int64(l.Bytes), over.Limits.Bytes), Idle: cmp.Or(time.Duration(l.Idle), over.Limits.Idle),
		},
	}
}

func approvals(a *config.Approvals) approval.Config {
	return approval.Config{
		Timeout: time.Duration(a.Timeout), None: a.Approver == "none", SelfApprove: a.SelfApprove, Command: a.Command,
	}
}

// hookTime is how long a hook may take that has no timeout of its own.
const hookTime = 10 * time.Second

func hooks(list []config.Hook) []hook.Hook {
	all := make([]hook.Hook, len(list))
	for i, h := range list {
		all[i] = hook.Hook{
			On: h.On, Command: h.Command, Match: h.Match, FailOpen: h.Fail == "open",
			Timeout: cmp.Or(time.Duration(h.Timeout), hookTime),
		}
	}
	return all
}

func truncation(t *config.Truncate) output.Limits {
	return output.Limits{
		MaxLines: t.MaxLines, MaxBytes: t.MaxBytes, Direction: t.Direction,
		SpillFile: int64(t.SpillFile), SpillSession: int64(t.SpillSession), Keep: time.Duration(t.Keep),
	}
}

// ownTruncation is what a profile or a tool says otherwise.
func ownTruncation(t *config.OwnTruncate) output.Limits {
	return output.Limits{MaxLines: t.MaxLines, MaxBytes: t.MaxBytes, Direction: t.Direction}
}

// toolSettings is that part of [tools.NAME] which the tools themselves read.
func toolSettings(c *config.Config) map[string][]byte {
	type durable struct {
		Durable bool `json:"durable"`
	}
	edit, _ := json.Marshal(struct { // structs of plain fields cannot fail
		Matching    string `json:"matching"`
		RequireRead bool   `json:"require_read"`
		durable
	}{c.Tools.Edit.Matching, c.Tools.Edit.RequireRead, durable{c.Tools.Edit.Durable}})
	write, _ := json.Marshal(durable{c.Tools.Write.Durable})
	return map[string][]byte{"edit": edit, "multiedit": edit, "apply_patch": edit, "write": write}
}

// restrictions says to whom each tool is offered.
func restrictions(t *config.Tools) map[string]tool.Restriction {
	all := make(map[string]tool.Restriction)
	for name, o := range t.Offers() {
		all[name] = tool.Restriction{Providers: o.Providers, Models: o.Models}
	}
	return all
}

// toolTruncation is what tools say of their outputs.
func toolTruncation(t *config.Tools) map[string]output.Limits {
	all := make(map[string]output.Limits)
	for name, o := range t.Offers() {
		if o.Truncate != (config.OwnTruncate{}) {
			all[name] = ownTruncation(&o.Truncate)
		}
	}
	return all
}

// identity says who the peers of the socket are.
func identity(c *config.Config) *server.Identity {
	ic := server.IdentityConfig{
		Admins:  server.Peers{UIDs: c.Admin.UIDs, GIDs: c.Admin.GIDs},
		Tenants: make(map[string]server.Peers),
	}
	for name, t := range c.Tenants {
		ic.Tenants[name] = server.Peers{UIDs: t.UIDs, GIDs: t.GIDs}
	}
	return server.NewIdentity(ic)
}
