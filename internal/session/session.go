// Package session is the manager of sessions: how they are made, taken over from an
// earlier daemon and ended, and what they hold. Everything that a client can do to a
// session goes through the Manager, whatever protocol it came by, or through one of the
// types that it has for the rest (Files, Approvals, …); what it can do to a call, through
// the call.Service of it.
//
// From the bottom: daemon is what sessions find in their daemon, Session is one, the roster has
// those that are not over, a part is what begins and ends with a session, and life makes, takes
// over and ends sessions, part by part.
package session

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/session/trees"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/skill"
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
	// Shows: the host's directories that sessions see may be a person's, not only its programs.
	Shows bool
	// Private: whoever runs the daemon is the only one who uses it.
	Private bool
	// Memory bounds that of large results; nil for the usual budget.
	Memory *budget.Memory
	// OutputDir is the host directory below which each session has its outputs.
	OutputDir string
	// JournalDir is the host directory below which agents note changes of several files, so
	// that one in which an agent is killed can be finished or undone; "" = none are noted.
	JournalDir string
	// Trees keeps the layers of worktrees of mode overlay.
	Trees *layers.Store
	// Caches are what tenants keep for later sessions.
	Caches *cache.Store
	// UIDBase is the first host uid of the ranges that sessions get; nothing
	// else on the host may use ids from there on (see package lease).
	UIDBase uint32
	// UIDClaims is the file by which all daemons of a host tell each other which
	// ranges they have. Only toold's user may open it.
	UIDClaims string
	// Orphan makes agents end their sandbox when no daemon has been connected
	// for so long; 0 = never. For daemons that live for one command.
	Orphan time.Duration
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
	// HostFree must stay free on the disks that sessions write to.
	HostFree room.Floor
	// HostMemory must stay available of the host's memory; zero = none.
	HostMemory room.Floor
	// DiskOvercommit is how many times what is free the disks of sessions may have; 0 = any.
	DiskOvercommit float64
	// Choices are the tools that are chosen for profiles and tenants.
	Choices judge.Choices
	// Skills are those that models can load; nil: none.
	Skills *skill.Library
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
	Worktrees Worktrees
	Network   Network
	Budget    client.Budget            // the most that a session may use in all
	Budgets   map[string]client.Budget // the same of profiles, by their names
	Caches    cache.Settings           // all that a session can ask for
	// CacheBytes bounds what all tenants keep of caches; 0 = any.
	CacheBytes int64
}

// Network is what sessions may reach.
type Network struct {
	Mode   string   // what they get, and the most that one may ask for; "" is none
	Learn  bool     // allow what no line of the rules is about
	TLS    []uint16 // ports besides 443 on which nothing but TLS passes
	Limits egress.Limits
}

// Worktrees is what a reload may change about [worktrees], but for roots and git.
type Worktrees struct {
	// Mode is that of sessions that give a source and no mode; "" is bind.
	Mode client.WorktreeMode
	// Keep is how long the changes of a session that is over are kept; 0 = as its record.
	Keep time.Duration
	// Checkpoint is when checkpoints are made by themselves; "" is never.
	Checkpoint trees.When
	// Required are the modes of profiles that sessions with a source must have.
	Required map[string]client.WorktreeMode
	// Skills: those of worktrees are offered too.
	Skills bool
	// Sensitive are more patterns of files that a host runs on sight; see apply.Job.
	Sensitive []string
	// Identity is whose name git writes into commits of sessions that ask for none; nil: their
	// creator's.
	Identity *client.GitIdentity
}

// court is what calls are judged by.
func (s *Settings) court() *judge.Config {
	choices := s.Choices
	if !s.Worktrees.Skills { // else one may come any time
		choices.Lacking = map[tool.Need]string{tool.NeedsSkills: s.Skills.None()}
	}
	return &judge.Config{Policy: s.Policy, Opaque: s.Opaque, Loop: s.Loop, Unanswered: s.Approvals.None, Choices: choices}
}

// network is that of a tenant's sessions.
func (s *Settings) network(tenant string) Network {
	if ten, ok := s.Tenants[tenant]; ok && ten.Network.Mode != "" {
		return ten.Network
	}
	return s.Network
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
	// RequireMode is the mode of all its sessions with a source; "" = any.
	RequireMode client.WorktreeMode
	Budget      client.Budget // the most that its sessions may use in all
	// Network is that of its sessions; with no mode it is that of the Settings.
	Network Network
	// NetworkInAll bounds the connections of all its sessions together: Connections, PerSecond
	// and Bytes; 0 = no bound.
	NetworkInAll egress.Limits
}

// maxRecords is how much the records of a tenant's calls may take; 0 = any.
func (s *Settings) maxRecords(tenant string) int64 {
	if most := s.Tenants[tenant].Records; most > 0 {
		return most
	}
	return s.Records
}

// Images are the images of one driver's sessions. Package image/local has them for
// drivers which are given root filesystems; a driver whose Engine keeps images itself has
// its own. Methods may be called from any goroutine. Errors that a client is to
// see are those of package image, or *fault.Error: NotFound, Conflict (it is in use, or
// another is just being made), Invalid, Overloaded.
type Images interface {
	// List gives all images, sorted by their first name.
	List(ctx context.Context) ([]client.Image, error)
	// Pull gets an image from its registry. progress is not nil.
	Pull(ctx context.Context, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error)
	// Import makes an image of an archive; name may be empty.
	Import(ctx context.Context, name string, archive io.Reader) (*client.Image, error)
	// Remove removes a name, and with its last one or by its digest the image.
	Remove(ctx context.Context, ref string) error
	// Acquire finds the image that ref (a name or a digest) means and keeps it
	// from being removed until it is released. Nothing is pulled.
	Acquire(ctx context.Context, ref string) (*sandbox.HeldImage, error)
}
