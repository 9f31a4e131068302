// Package config is toold's config.toml: what can be set, what it is when
// nothing is set, and a strict reader that reports every problem of a file at
// once, each with its file and line.
//
// A setting has one name, its dotted key ("limits.memory"). The same key can be
// given in the file, as an environment variable (TOOLD_LIMITS_MEMORY) and, for
// some, as a flag of toold; later sources win, and all of them go through the
// same checks. What this version does not know is refused, never ignored.
//
// To add a setting: 1. a field with its key here, 2. its default in Default,
// 3. its check in validate.go, 4. its line in the config.toml at the root of the
// repository (a test compares the two).
package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tomltext"
)

// Config is all settings. Get one from Default or Load; both give settings that
// passed Validate.
type Config struct {
	Daemon    Daemon            `toml:"daemon"`
	Metrics   Metrics           `toml:"metrics"`
	Sandbox   Sandbox           `toml:"sandbox"`
	Limits    Limits            `toml:"limits"`
	Worktrees Worktrees         `toml:"worktrees"`
	Network   Network           `toml:"network"`
	Truncate  Truncate          `toml:"truncate"`
	Tools     Tools             `toml:"tools"`
	DoomLoop  policy.LoopConfig `toml:"doom_loop"`
	Approvals Approvals         `toml:"approvals"`
	MCPServer MCPServer         `toml:"mcp_server"`
	Skills    Skills            `toml:"skills"`
	Audit     Audit             `toml:"audit"`
	Hooks     []Hook            `toml:"hook"`
	Caches    []Cache           `toml:"cache"`
	Budget    client.Budget     `toml:"budget"` // the most that a session may use in all
	Admin     Admin             `toml:"admin"`
	Tenants   map[string]Tenant `toml:"tenant"`
	// Profiles are those with settings of their own; Policy knows all.
	Profiles map[string]Profile `toml:"profile"`

	// Policy is what the sections permission, profile, rule and test say, and
	// the permission and profiles of tenants. Never nil.
	Policy *policy.Set

	// Notes say what in this configuration has another effect than it may seem to.
	// None of it is an error.
	Notes []tomltext.Problem
	// Warnings name what was given as a setting and changes nothing.
	Warnings []tomltext.Problem

	// origins says where each key that was set came from, for the messages of
	// Validate.
	origins origins
}

// Daemon is [daemon]: where the process listens and keeps its state. Changes
// take effect at the next start, those of Retention, Records, Caches, HostFree and HostMemory at a reload.
type Daemon struct {
	Socket      string          `toml:"socket"`       // absolute path of the API's Unix socket
	SocketGroup string          `toml:"socket_group"` // group that may connect; "" = the daemon's own
	StateDir    string          `toml:"state_dir"`    // database and outputs; survives a reboot
	RunDir      string          `toml:"run_dir"`      // bundles and control sockets; empty after a reboot
	Log         string          `toml:"log"`          // auto, json or text
	Retention   client.Duration `toml:"retention"`    // how long ended sessions, calls and events are kept
	Records     client.Size     `toml:"records"`      // what the records of one tenant's calls may take
	HostFree    string          `toml:"host_free"`    // what must stay free on disks that sessions write to: see func Floor
	HostMemory  string          `toml:"host_memory"`  // what must stay available of the host's memory, as HostFree
	Caches      client.Size     `toml:"caches"`       // what all that is kept of caches may take
}

// Metrics is [metrics].
type Metrics struct {
	Listen string `toml:"listen"` // host:port of a plain /metrics; "" = off
}

// Sandbox is [sandbox]: what holds a session.
type Sandbox struct {
	Driver    string   `toml:"driver"`     // oci or docker
	Runtime   string   `toml:"runtime"`    // auto, runc, crun, runsc or the absolute path of an OCI runtime; with docker, auto or the name of one of the Engine's
	RootFS    string   `toml:"rootfs"`     // host, the name of an image, or the absolute path of a directory
	HostPaths []string `toml:"host_paths"` // what of the host a session sees with rootfs = "host"; empty = the driver's list
	UIDBase   uint32   `toml:"uid_base"`   // first of the host uids that sessions get, 65,536 each
	// RequireImage refuses sessions without an image.
	RequireImage bool `toml:"require_image"`
	// DiskOvercommit is how many times what is free the disks of sessions may have together.
	DiskOvercommit float64 `toml:"disk_overcommit"`
}

// Floor is HostFree or HostMemory as bytes, or as percent of all that there is.
func Floor(text string) (bytes client.Size, percent float64, err error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err = strconv.ParseFloat(number, 64)
		if err != nil || !(percent > 0 && percent < 100) {
			return 0, 0, fmt.Errorf("%q is not between 0%% and 100%%", text)
		}
		return 0, percent, nil
	}
	bytes, err = client.ParseSize(text)
	return bytes, 0, err
}

// Image is the name of the image that RootFS is; "" if it is none.
func (s *Sandbox) Image() string {
	if s.RootFS == "host" || filepath.IsAbs(s.RootFS) {
		return ""
	}
	return s.RootFS
}

// Limits is [limits]: what a session gets, and the most that one may ask for.
type Limits struct {
	client.Limits
	Max client.Limits `toml:"max"` // see Config.boundLimits for what holds where it is not set
}

// Worktrees is [worktrees]: which host directories sessions may mount, and how.
type Worktrees struct {
	Roots  []string `toml:"roots"`  // worktrees must lie below one of these; empty = only admins may mount
	Mounts []string `toml:"mounts"` // extra read-only directories that sessions may ask for
	// GuardGit makes git's config and hooks in worktrees read-only.
	GuardGit bool `toml:"guard_git"`
	// Mode is that of sessions that name a directory and no mode: bind, ro or overlay.
	Mode string `toml:"mode"`
	// Keep is how long the changes of a session that is over are kept, in mode overlay.
	Keep client.Duration `toml:"keep"`
	// Checkpoint is when checkpoints are made by themselves: off, call or message.
	Checkpoint string `toml:"checkpoint"`
	// Sensitive are patterns as in a .gitignore of more files that a host runs on sight: apply
	// leaves them out, unless it is asked for them.
	Sensitive []string `toml:"sensitive"`
	// Identity is whose name git writes into commits of sessions, "NAME <EMAIL>"; "" = their
	// creator's.
	Identity string `toml:"identity"`
}

// Network is [network].
type Network struct {
	// Mode is what sessions get, and the most that one may ask for: none, or rules.
	Mode string `toml:"mode"`
	// Learn allows connections that no line of the rules is about, and records them.
	Learn bool `toml:"learn"`
	// TLS are ports besides 443 on which nothing but TLS passes.
	TLS    []int         `toml:"tls"`
	Limits NetworkLimits `toml:"limits"`
}

// NetworkLimits is [network.limits], what the connections of one session may use, or
// [tenant.NAME.network.limits], for all sessions of the tenant together but Idle.
type NetworkLimits struct {
	Connections int             `toml:"connections"` // at once
	PerSecond   int             `toml:"per_second"`  // new ones
	Bytes       client.Size     `toml:"bytes"`       // up and down, in all; 0 = no bound
	Idle        client.Duration `toml:"idle"`        // without a byte in either direction
}

// TenantNetwork is [tenant.NAME.network]: what is not set is that of [network].
type TenantNetwork struct {
	Mode   string        `toml:"mode"`
	Learn  bool          `toml:"learn"`
	Limits NetworkLimits `toml:"limits"`
}

// Truncate is [truncate]: how much of a long output the caller gets, and how
// much of it is kept.
type Truncate struct {
	MaxLines     int             `toml:"max_lines"`
	MaxBytes     int             `toml:"max_bytes"`
	Direction    string          `toml:"direction"`     // auto (the tool's own), head, tail or both
	SpillFile    client.Size     `toml:"spill_file"`    // kept of one whole output
	SpillSession client.Size     `toml:"spill_session"` // kept of all outputs of a session
	Keep         client.Duration `toml:"keep"`          // how long outputs are kept after their session ended
}

// Tools is [tools.NAME], for the tools that have settings.
type Tools struct {
	Bash       Bash  `toml:"bash"`
	Read       Offer `toml:"read"`
	Write      Write `toml:"write"`
	Edit       Edit  `toml:"edit"`
	MultiEdit  Offer `toml:"multiedit"`   // the rest is that of Edit
	ApplyPatch Offer `toml:"apply_patch"` // likewise
	Glob       Offer `toml:"glob"`
	Grep       Offer `toml:"grep"`
	List       Offer `toml:"list"`
	TodoWrite  Offer `toml:"todowrite"`
	TodoRead   Offer `toml:"todoread"`
	Batch      Offer `toml:"batch"`
	Skill      Offer `toml:"skill"`
}

// Offers are the parts of all tools that every tool has, by the tool's name.
func (t *Tools) Offers() map[string]*Offer {
	return map[string]*Offer{
		"bash": &t.Bash.Offer, "read": &t.Read, "write": &t.Write.Offer, "edit": &t.Edit.Offer, "multiedit": &t.MultiEdit,
		"apply_patch": &t.ApplyPatch, "glob": &t.Glob, "grep": &t.Grep, "list": &t.List,
		"todowrite": &t.TodoWrite, "todoread": &t.TodoRead, "batch": &t.Batch, "skill": &t.Skill,
	}
}

// Offer says to which providers' models a tool is offered, where empty is to all, and how
// much of its output they get.
type Offer struct {
	Providers []string `toml:"providers"` // names such as "anthropic"
	Models    []string `toml:"models"`    // ids, * stands for any text
	// Truncate is before that of a profile and [truncate].
	Truncate OwnTruncate `toml:"truncate"`
}

// Write is [tools.write].
type Write struct {
	Durable bool `toml:"durable"` // on the disk before the call ends
	Offer
}

// Bash is [tools.bash].
type Bash struct {
	Timeout    client.Duration `toml:"timeout"`     // of a call that asks for none
	MaxTimeout client.Duration `toml:"max_timeout"` // that a call may ask for: limits.wall by its other name
	Shell      []string        `toml:"shell"`       // program and flags; "-c COMMAND" is added
	Opaque     string          `toml:"opaque"`      // what becomes of commands that cannot be judged: rule, ask or deny
	Offer
}

// Edit is [tools.edit].
type Edit struct {
	Matching    string `toml:"matching"`     // default, strict or lenient
	RequireRead bool   `toml:"require_read"` // refuse to edit a file that the session has not read as it is
	Durable     bool   `toml:"durable"`      // on the disk before the call ends
	Offer
}

// Approvals is [approvals]: how calls wait for somebody to allow them.
type Approvals struct {
	Timeout     client.Duration `toml:"timeout"`      // how long one may stay pending; then it is denied
	Approver    string          `toml:"approver"`     // any, or none: what would be asked is denied at once
	SelfApprove bool            `toml:"self_approve"` // who made a call may approve it
	Command     []string        `toml:"command"`      // a program that answers; empty = none
}

// MCPServer is [mcp_server]: sessions served by the Model Context Protocol.
type MCPServer struct {
	Wait client.Duration `toml:"wait"` // how long an answer waits for its call
}

// Skills is [skills]: instructions that models can load.
type Skills struct {
	Paths    []string `toml:"paths"`    // host directories of skills; of two with one name the first counts
	Worktree bool     `toml:"worktree"` // whether those of worktrees are offered too
}

// Audit is [audit]: the log of decisions and of what ran. Changes take effect at
// the next start.
type Audit struct {
	Path   string      `toml:"path"`   // absolute; "" = in the state directory, see AuditPath
	Mode   string      `toml:"mode"`   // strict: no record, no call; lenient: counted only
	Inputs bool        `toml:"inputs"` // records have the inputs of calls, not only their hashes
	Rotate client.Size `toml:"rotate"` // a new file is begun at this size
}

// AuditPath is the file that the audit log is written to.
func (c *Config) AuditPath() string {
	if c.Audit.Path != "" {
		return c.Audit.Path
	}
	return filepath.Join(c.Daemon.StateDir, "audit", "audit.jsonl")
}

// Hook is one [[hook]]: a program that runs at a moment in the life of sessions
// and calls.
type Hook struct {
	On      string            `toml:"on"`      // call.before, call.after, session.created, session.ended or file.edited
	Command []string          `toml:"command"` // program and arguments
	Match   map[string]string `toml:"match"`   // tool, tenant, profile, path → wildcard; all must match
	Timeout client.Duration   `toml:"timeout"` // 0 = 10 s
	Fail    string            `toml:"fail"`    // what a failure means: closed (the default) or open
}

// Cache is one [[cache]]: a cache that sessions can ask for, or what holds for a built-in
// one.
type Cache struct {
	Name   string      `toml:"name"`
	Path   string      `toml:"path"`   // where it is inside; "" = /caches/NAME
	Env    []string    `toml:"env"`    // variables that have the path
	Mode   string      `toml:"mode"`   // cow or shared; "" = cow
	Size   client.Size `toml:"size"`   // of what is kept, and of what a session adds; 0 = 5GiB
	Tenant string      `toml:"tenant"` // whose it is; "" = every tenant has its own
	// Promote are the profiles whose sessions the tenant's own users may promote.
	Promote []string `toml:"promote"`
}

// Admin is [admin]: who may do everything. Admins belong to the tenant "default".
type Admin struct {
	UIDs []uint32 `toml:"uids"`
	GIDs []uint32 `toml:"gids"`
}

// Tenant is one [tenant.NAME]: whose sessions are kept apart from all others. Its
// keys "profiles" and "permission" are in Config.Policy.
type Tenant struct {
	UIDs        []uint32    `toml:"uids"`
	GIDs        []uint32    `toml:"gids"`
	Roots       []string    `toml:"roots"`        // instead of worktrees.roots; empty = those
	MaxSessions int         `toml:"max_sessions"` // 0 = no bound
	MaxCalls    int         `toml:"max_calls"`    // at once, over all sessions; 0 = no bound
	Records     client.Size `toml:"records"`      // instead of daemon.records; 0 = that
	Limits      Limits      `toml:"limits"`       // instead of those of [limits]; zero = those
	// RequireImage refuses sessions of the tenant without an image.
	RequireImage bool `toml:"require_image"`
	// RequireRuntime is the runtime that all sessions of the tenant have; "" = any.
	RequireRuntime string `toml:"require_runtime"`
	// RequireMode is the mode of all its sessions that name a directory; "" = any.
	RequireMode string        `toml:"require_mode"`
	Budget      client.Budget `toml:"budget"` // as that of Config, for its sessions
	Network     TenantNetwork `toml:"network"`
	// Tools chooses the tools of its sessions (see tool.Choice); empty = all.
	Tools []string `toml:"tools"`
}

// Profile is one [profile.NAME]. Its keys "description" and "permission" are in
// Config.Policy.
type Profile struct {
	Truncate OwnTruncate `toml:"truncate"`
	// RequireMode and Tools are those of Tenant, for all sessions with the profile.
	RequireMode string        `toml:"require_mode"`
	Tools       []string      `toml:"tools"`
	Budget      client.Budget `toml:"budget"` // as that of Config, for its sessions
}

// OwnTruncate is [profile.NAME.truncate] or [tools.NAME.truncate]: how much of a long
// output the sessions with a profile get, or the callers of a tool. What is not set is that
// of [truncate].
type OwnTruncate struct {
	MaxLines  int    `toml:"max_lines"` // 0 = as in [truncate]
	MaxBytes  int    `toml:"max_bytes"` // 0 = as in [truncate]
	Direction string `toml:"direction"` // "" = as in [truncate]
}

// Default is what holds when nothing is set. The config.toml at the root of the
// repository says the same, with a reason for each value.
func Default() *Config {
	return &Config{
		Daemon: Daemon{
			Socket:    "/run/toold/toold.sock",
			StateDir:  "/var/lib/toold",
			RunDir:    "/run/toold",
			Log:       "auto",
			Retention: client.Duration(30 * 24 * time.Hour),
			Records:   1 << 30,
			HostFree:  "1GiB", HostMemory: "256MiB",
			Caches: 50 << 30,
		},
		Metrics: Metrics{Listen: "127.0.0.1:9477"},
		Sandbox: Sandbox{Driver: "oci", Runtime: "auto", RootFS: "host", UIDBase: 1879048192, DiskOvercommit: 10},
		Limits: Limits{
			Limits: client.Limits{
				CPUs:      2,
				Memory:    2 << 30,
				PIDs:      512,
				OpenFiles: 4096,
				FileSize:  4 << 30,
				Disk:      4 << 30,
				Calls:     8,
				Output:    2 << 30,
				Wall:      client.Duration(10 * time.Minute),
			},
			Max: client.Limits{
				CPUs:      16,
				Memory:    16 << 30,
				PIDs:      4096,
				Tmp:       2 << 30,
				OpenFiles: 65536,
				FileSize:  64 << 30,
				Disk:      16 << 30,
				Calls:     32,
				Output:    8 << 30,
				Wall:      client.Duration(2 * time.Hour),
			},
		},
		Worktrees: Worktrees{
			Mode:       "bind",
			Keep:       client.Duration(7 * 24 * time.Hour),
			Checkpoint: "message",
		},
		Network: Network{Mode: "none", Limits: NetworkLimits{
			Connections: 256,
			PerSecond:   200,
			Idle:        client.Duration(10 * time.Minute),
		}},
		Truncate: Truncate{
			MaxLines:     2000,
			MaxBytes:     51200,
			Direction:    "auto",
			SpillFile:    64 << 20,
			SpillSession: 512 << 20,
			Keep:         client.Duration(7 * 24 * time.Hour),
		},
		Tools: Tools{
			Bash: Bash{
				Timeout:    client.Duration(2 * time.Minute),
				MaxTimeout: client.Duration(10 * time.Minute),
				Shell:      []string{"/bin/bash", "--noprofile", "--norc"},
				Opaque:     "rule",
			},
			Edit: Edit{Matching: "default"},
		},
		DoomLoop:  policy.LoopConfig{Threshold: 3, PollingThreshold: 20, MaxPeriod: 4, HardLimit: 50},
		Approvals: Approvals{Timeout: client.Duration(10 * time.Minute), Approver: "any"},
		MCPServer: MCPServer{Wait: client.Duration(50 * time.Second)},
		Audit:     Audit{Mode: "strict", Rotate: 64 << 20},
		Admin:     Admin{UIDs: []uint32{0}},
		Policy:    policy.Default(),
	}
}
