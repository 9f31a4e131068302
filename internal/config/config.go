// Package config is toold's config.toml: what can be set, what it is when
// nothing is set, and a strict reader that reports every problem of a file at
// once, each with its file and line.
//
// A setting has one name, its dotted key ("limits.memory"). The same key can be
// given in the file, as an environment variable (TOOLD_LIMITS_MEMORY) and, for
// some, as a flag of toold; later sources win, and all of them go through the
// same checks. What this version cannot do is refused by name, never ignored.
//
// To add a setting: 1. a field with its key here, 2. its default in Default,
// 3. its check in validate.go, 4. its line in the config.toml at the root of the
// repository (a test compares the two).
package config

import (
	"time"

	"github.com/toold/toold/client"
)

// Config is all settings. Get one from Default or Load; both give settings that
// passed Validate.
type Config struct {
	Daemon    Daemon            `toml:"daemon"`
	Metrics   Metrics           `toml:"metrics"`
	Sandbox   Sandbox           `toml:"sandbox"`
	Limits    client.Limits     `toml:"limits"`
	Worktrees Worktrees         `toml:"worktrees"`
	Network   Network           `toml:"network"`
	Truncate  Truncate          `toml:"truncate"`
	Tools     Tools             `toml:"tools"`
	Admin     Admin             `toml:"admin"`
	Tenants   map[string]Tenant `toml:"tenant"`

	// origins says where each key that was set came from, for the messages of
	// Validate.
	origins origins
}

// Daemon is [daemon]: where the process listens and keeps its state. Changes
// take effect at the next start, those of Retention at a reload.
type Daemon struct {
	Socket      string          `toml:"socket"`       // absolute path of the API's Unix socket
	SocketGroup string          `toml:"socket_group"` // group that may connect; "" = the daemon's own
	StateDir    string          `toml:"state_dir"`    // database and outputs; survives a reboot
	RunDir      string          `toml:"run_dir"`      // bundles and control sockets; empty after a reboot
	Log         string          `toml:"log"`          // auto, json or text
	Retention   client.Duration `toml:"retention"`    // how long ended sessions, calls and events are kept
}

// Metrics is [metrics].
type Metrics struct {
	Listen string `toml:"listen"` // host:port of a plain /metrics; "" = off
}

// Sandbox is [sandbox]: what holds a session.
type Sandbox struct {
	Driver    string   `toml:"driver"`     // oci
	Runtime   string   `toml:"runtime"`    // auto, runc, crun or the absolute path of an OCI runtime
	RootFS    string   `toml:"rootfs"`     // host, or the absolute path of a directory
	HostPaths []string `toml:"host_paths"` // what of the host a session sees with rootfs = "host"; empty = the driver's list
	UIDBase   uint32   `toml:"uid_base"`   // first of the host uids that sessions get, 65,536 each
}

// Worktrees is [worktrees]: which host directories sessions may mount.
type Worktrees struct {
	Roots  []string `toml:"roots"`  // worktrees must lie below one of these; empty = only admins may mount
	Mounts []string `toml:"mounts"` // extra read-only directories that sessions may ask for
}

// Network is [network].
type Network struct {
	Mode string `toml:"mode"` // none
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
	Bash  Bash  `toml:"bash"`
	Read  Offer `toml:"read"`
	Write Write `toml:"write"`
	Edit  Edit  `toml:"edit"`
	Glob  Offer `toml:"glob"`
	Grep  Offer `toml:"grep"`
	List  Offer `toml:"list"`
}

// Offer says to which providers' models a tool is offered; empty is to all.
type Offer struct {
	Providers []string `toml:"providers"` // names such as "anthropic"
	Models    []string `toml:"models"`    // ids, * stands for any text
}

// Write is [tools.write].
type Write struct {
	Durable   bool     `toml:"durable"` // on the disk before the call ends
	Providers []string `toml:"providers"`
	Models    []string `toml:"models"`
}

// Bash is [tools.bash].
type Bash struct {
	Timeout    client.Duration `toml:"timeout"`     // of a call that asks for none
	MaxTimeout client.Duration `toml:"max_timeout"` // that a call may ask for: limits.wall by its other name
	Shell      []string        `toml:"shell"`       // program and flags; "-c COMMAND" is added
	Providers  []string        `toml:"providers"`
	Models     []string        `toml:"models"`
}

// Edit is [tools.edit].
type Edit struct {
	Matching    string   `toml:"matching"`     // default, strict or lenient
	RequireRead bool     `toml:"require_read"` // refuse to edit a file that the session has not read as it is
	Durable     bool     `toml:"durable"`      // on the disk before the call ends
	Providers   []string `toml:"providers"`
	Models      []string `toml:"models"`
}

// Admin is [admin]: who may do everything. Admins belong to the tenant "default".
type Admin struct {
	UIDs []uint32 `toml:"uids"`
	GIDs []uint32 `toml:"gids"`
}

// Tenant is one [tenant.NAME]: whose sessions are kept apart from all others.
type Tenant struct {
	UIDs        []uint32      `toml:"uids"`
	GIDs        []uint32      `toml:"gids"`
	Roots       []string      `toml:"roots"`        // instead of worktrees.roots; empty = those
	MaxSessions int           `toml:"max_sessions"` // 0 = no bound
	MaxCalls    int           `toml:"max_calls"`    // at once, over all sessions; 0 = no bound
	Weight      int           `toml:"weight"`       // share when calls queue; 0 = 1
	Limits      client.Limits `toml:"limits"`       // lower ceilings than [limits]; zero = those
}

// DefaultTenant is the tenant of admins.
const DefaultTenant = "default"

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
		},
		Metrics: Metrics{Listen: "127.0.0.1:9477"},
		Sandbox: Sandbox{Driver: "oci", Runtime: "auto", RootFS: "host", UIDBase: 1879048192},
		Limits: client.Limits{
			CPUs:      2,
			Memory:    2 << 30,
			PIDs:      512,
			Tmp:       256 << 20,
			OpenFiles: 4096,
			FileSize:  4 << 30,
			Calls:     8,
			Output:    2 << 30,
			Wall:      client.Duration(10 * time.Minute),
		},
		Network: Network{Mode: "none"},
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
			},
			Edit: Edit{Matching: "default"},
		},
		Admin: Admin{UIDs: []uint32{0}},
	}
}
