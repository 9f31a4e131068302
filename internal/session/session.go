// Package session is the manager of sessions: how they are made, taken over from an
// earlier daemon and ended, and what they hold. Everything that a client can do to a
// session goes through the Manager, whatever protocol it came by; what it can do to a
// call, through the call.Service of it.
package session

import (
	"log/slog"
	"time"

	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/call"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/worktree/layers"
)

// Config is what a Manager needs. All fields without a default are required.
type Config struct {
	Store   *store.Store
	Tools   *tool.Registry
	Drivers map[string]sandbox.Driver
	Driver  string // the default one
	// Images are those of the drivers, by their names; a driver without has none.
	Images map[string]Images
	// Image is the one of sessions that name none; "" is the driver's own root
	// filesystem.
	Image string
	// Runtime is that driver's default, for what is said of sessions that are
	// still being made; "" leaves it open until they are.
	Runtime string
	Log     *slog.Logger
	// Owner labels every resource of this daemon, and of no other anywhere.
	Owner string
	// OutputDir is the host directory below which each session has its outputs.
	OutputDir string
	// Private are directories of the daemon's own that no session may be given,
	// besides the one that OutputDir lies in.
	Private []string
	// Trees keeps the layers of worktrees of mode overlay; nil: there is no such mode.
	Trees *layers.Store
	// UIDBase is the first host uid of the ranges that sessions get; nothing
	// else on the host may use ids from there on (see package lease).
	UIDBase uint32
	// UIDClaims is the file by which all daemons of a host tell each other which
	// ranges they have. Only toold's user may open it.
	UIDClaims string
	// Orphan makes agents end their sandbox when no daemon has been connected
	// for so long; 0 = never. For daemons that live for one command.
	Orphan time.Duration
	// ResultMemory bounds the memory, in bytes, that large results of all
	// sessions take on their way to the store and to clients, with all copies
	// that are made; 0 = 256 MiB. Calls wait for it.
	ResultMemory int64
	// Settings may be replaced by Reload.
	Settings  Settings
	Observers []Observer
	// Auditor may be nil.
	Auditor Auditor
}

// Settings are those parts of the configuration that a reload may change. They
// concern sessions and calls that begin afterwards.
type Settings struct {
	call.Settings
	// Private is a daemon for one user, its admin: what he asks for is bounded by the
	// host alone, not by maxima and roots that are there for others.
	Private       bool
	Limits        client.Limits // what sessions get that ask for nothing
	MaxLimits     client.Limits // the most that one may ask for; zero = no bound
	WorktreeRoots []string
	MountRoots    []string
	GuardGit      bool // git's config and hooks are read-only in worktrees
	IdleTimeout   time.Duration
	Retention     time.Duration
	Path          string                      // PATH of the tools
	Restrictions  map[string]tool.Restriction // [tools.NAME] providers and models
	Tenants       map[string]Tenant
	MaxSessions   int // per tenant, 0 = none
	// RequireImage refuses sessions without an image: the driver's own root
	// filesystem may have files that the host executes.
	RequireImage bool
	// Records bounds, in bytes, the records of the calls of one tenant; 0 = any.
	Records   int64
	Policy    *policy.Set // nil: policy.Default
	Approvals approval.Config
	Loop      policy.LoopConfig
	Hooks     []hook.Hook
	Opaque    string // [tools.bash] opaque: rule, ask or deny; "" = rule
}

// court is what calls are judged by.
func (s *Settings) court() *judge.Config {
	return &judge.Config{Policy: s.Policy, Opaque: s.Opaque, Loop: s.Loop, Unanswered: s.Approvals.None}
}

// free reports whether the host alone bounds what somebody may ask for.
func (s *Settings) free(p auth.Principal) bool { return s.Private && p.Admin }

// Tenant is one [tenant.NAME].
type Tenant struct {
	Roots       []string
	MaxSessions int
	MaxCalls    int
	Records     int64         // instead of that of the Settings; 0 = that
	Limits      client.Limits // what its sessions get; zero = as in the Settings
	MaxLimits   client.Limits // the same of the most that one may ask for, which also binds
	// RequireImage is that of the Settings, for this tenant.
	RequireImage bool
	// RequireRuntime is the runtime that all its sessions have; "" = any.
	RequireRuntime string
}

// SessionFilter selects sessions. All includes those that have ended.
type SessionFilter struct {
	State  client.SessionState
	Labels map[string]string
	All    bool
	After  string
	Limit  int
}

// ToolFilter selects tool definitions.
type ToolFilter struct {
	Profile, Session, Provider, Model string
}

// ApprovalFilter selects approvals.
type ApprovalFilter struct {
	Session string
	After   string
	Limit   int
}

// EndOptions say how a session is ended.
type EndOptions struct{ Force, Keep bool }
