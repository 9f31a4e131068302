package main

import (
	"encoding/json"
	"time"

	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/server"
	"github.com/toold/toold/internal/session"
)

// idleTimeout ends sessions that nobody used for so long, unless they were
// created with another.
const idleTimeout = time.Hour

// minFree is how much of the state directory's file system stays free: below it
// sessions may write no more outputs.
const minFree = 256 << 20

// sessionSettings makes of the configuration what the session manager wants.
func sessionSettings(c *config.Config, daemonPath string) session.Settings {
	s := session.Settings{
		Limits:        c.Limits,
		MaxLimits:     c.Limits,
		WorktreeRoots: c.Worktrees.Roots,
		MountRoots:    c.Worktrees.Mounts,
		Truncate:      truncation(&c.Truncate),
		IdleTimeout:   idleTimeout,
		Retention:     time.Duration(c.Daemon.Retention),
		BashTimeout:   time.Duration(c.Tools.Bash.Timeout),
		Shell:         c.Tools.Bash.Shell,
		Path:          toolPath(&c.Sandbox, daemonPath),
		ToolSettings:  toolSettings(c),
		Tenants:       make(map[string]session.Tenant),
		MinFree:       minFree,
	}
	for name, t := range c.Tenants {
		s.Tenants[name] = session.Tenant{
			Roots: t.Roots, MaxSessions: t.MaxSessions, MaxCalls: t.MaxCalls, Weight: max(t.Weight, 1), Limits: t.Limits,
		}
	}
	return s
}

func truncation(t *config.Truncate) session.Truncate {
	direction := t.Direction
	if direction == "auto" {
		direction = ""
	}
	return session.Truncate{
		MaxLines: t.MaxLines, MaxBytes: t.MaxBytes, Direction: direction,
		SpillFile: int64(t.SpillFile), SpillSession: int64(t.SpillSession), Keep: time.Duration(t.Keep),
	}
}

// toolSettings is that part of [tools.NAME] which the tools themselves read.
func toolSettings(c *config.Config) map[string][]byte {
	edit := struct {
		Matching    string `json:"matching"`
		RequireRead bool   `json:"require_read"`
	}{c.Tools.Edit.Matching, c.Tools.Edit.RequireRead}
	b, _ := json.Marshal(edit) // a struct of plain fields cannot fail
	return map[string][]byte{"edit": b}
}

// identity says who the peers of the socket are.
func identity(c *config.Config) (*server.Identity, error) {
	ic := server.IdentityConfig{
		Admins:  server.Peers{UIDs: c.Admin.UIDs, GIDs: c.Admin.GIDs},
		Tenants: make(map[string]server.Peers),
	}
	for name, t := range c.Tenants {
		ic.Tenants[name] = server.Peers{UIDs: t.UIDs, GIDs: t.GIDs}
	}
	return server.NewIdentity(ic)
}
