package client

import "time"

// SessionState is where a session is in its life.
type SessionState string

// The states of a session, in the order of its life. A session that is lost
// died without being asked to (its agent or its runtime went away); its record
// and the results of its calls stay readable.
const (
	SessionCreating SessionState = "creating"
	SessionReady    SessionState = "ready"
	SessionEnding   SessionState = "ending"
	SessionEnded    SessionState = "ended"
	SessionLost     SessionState = "lost"
)

// WorktreeMode says how a worktree is put into the sandbox.
type WorktreeMode string

// The worktree modes.
const (
	WorktreeBind  WorktreeMode = "bind"  // read-write, changes are the source's at once
	WorktreeRO    WorktreeMode = "ro"    // read-only
	WorktreeEmpty WorktreeMode = "empty" // a bounded, empty directory that ends with the session
	// WorktreeOverlay is read-write, and the source is never written: changes are kept
	// beside it, until they are applied or discarded.
	WorktreeOverlay WorktreeMode = "overlay"
)

// Worktree is the directory that a session works on.
type Worktree struct {
	// Source is an absolute host path. Empty for mode "empty".
	Source string `json:"source,omitempty"`
	// Seen is which directory the client sees at Source, as SeenAs gives it: toold refuses where it
	// sees another one there, since it has mounts of its own, or none. Only in requests, for clients
	// that are on the host; "" is not to ask.
	Seen string `json:"seen,omitempty"`
	// Mode defaults to "empty" without a Source, else to what the configuration says:
	// "bind", where that says nothing.
	Mode WorktreeMode `json:"mode,omitempty"`
	// Ref is the git ref of mode "git".
	Ref string `json:"ref,omitempty"`
	// Target is the absolute path inside the sandbox; default "/workspace".
	Target string `json:"target,omitempty"`
	// Identity is whose name git writes into commits. Without it the configuration's.
	Identity *GitIdentity `json:"identity,omitempty"`
	// IDMap says how the owner's files appear inside, as really done:
	// "idmapped" or "mapped 1:1". Only in answers.
	IDMap string `json:"idmap,omitempty"`
	// Sensitive says which files that a host runs on sight the session has changed.
	// Only in answers, once the session is over; absent where nothing was changed.
	Sensitive *SensitiveChanges `json:"sensitive,omitempty"`
	// KeptUntil is when the changes of a session that is over are removed, in mode
	// "overlay". Only in answers; absent while it lives, and where there are no changes.
	KeptUntil *time.Time `json:"kept_until,omitempty"`
}

// SensitiveChanges are changes of a worktree to look at before any program of the
// host works there: git (its configuration, hooks and attributes, embedded
// repositories, submodules), direnv, editors, CI. Paths are relative to the worktree,
// those with control characters are quoted.
type SensitiveChanges struct {
	// Changed are files that are run or obeyed on sight, new and removed ones too.
	Changed []string `json:"changed,omitempty"`
	// Build are build files, whose commands run when somebody builds.
	Build []string `json:"build,omitempty"`
	// More counts those that the two lists leave out.
	More int `json:"more,omitempty"`
	// Unchecked says why not everything could be checked; "" = everything was.
	Unchecked string `json:"unchecked,omitempty"`
}

// Mount is an extra directory. Source must lie under [worktrees] mounts.
type Mount struct {
	Source string `json:"source"`
	// Seen is which directory the client sees at Source: see Worktree.Seen. Only in requests.
	Seen   string `json:"seen,omitempty"`
	Target string `json:"target"`
	// Mode is MountRO where it is left out.
	Mode MountMode `json:"mode,omitempty"`
}

// MountMode says what a session may write at a Mount. Nothing of it ever gets into the source.
type MountMode string

// The modes of mounts.
const (
	// MountRO: nothing.
	MountRO MountMode = "ro"
	// MountCow: everything. What it writes is its own, takes at most Limits.Disk, and is thrown
	// away with it.
	MountCow MountMode = "cow"
)

// Network is what a session may reach: with mode "none" its own loopback, with "rules" what
// the rules for network and http allow.
type Network struct {
	Mode string `json:"mode"`
}

// Limits bound a session and each of its calls. In a request a zero field means
// "the default"; in an answer zero means "no limit". A limit that is above
// the most of the configuration, or that this host cannot enforce, is refused.
type Limits struct {
	CPUs      float64  `json:"cpus,omitempty"`       // cores, e.g. 1.5
	Memory    Size     `json:"memory,omitempty"`     // bytes of all tools together
	PIDs      int64    `json:"pids,omitempty"`       // processes and threads of all tools
	Tmp       Size     `json:"tmp,omitempty"`        // bytes of /tmp; home and /dev/shm are derived
	OpenFiles int64    `json:"open_files,omitempty"` // RLIMIT_NOFILE of a process
	FileSize  Size     `json:"file_size,omitempty"`  // RLIMIT_FSIZE of a process
	Disk      Size     `json:"disk,omitempty"`       // home directory; writable layer of an image, changes of mode overlay: as much each
	Calls     int      `json:"calls,omitempty"`      // calls at once
	Output    Size     `json:"output,omitempty"`     // bytes one call may print before it is killed
	Wall      Duration `json:"wall,omitempty"`       // longest time of one call
}

// Usage is what a session used so far.
type Usage struct {
	CPUMillis   int64 `json:"cpu_ms"`
	MemoryBytes int64 `json:"memory_bytes"`
	PIDs        int64 `json:"pids"`
	DiskBytes   int64 `json:"disk_bytes"`
	Calls       int64 `json:"calls"`
}

// Session is one sandbox with its worktree.
type Session struct {
	ID       string       `json:"id"`
	Key      string       `json:"key,omitempty"`
	Name     string       `json:"name,omitempty"`
	State    SessionState `json:"state"`
	Reason   string       `json:"reason,omitempty"` // why it ended or was lost; "disk" while it lives: its disk has failed or is full, and calls may only read
	Tenant   string       `json:"tenant"`
	Profile  string       `json:"profile"`
	Driver   string       `json:"driver"`
	Runtime  string       `json:"runtime"`
	Image    string       `json:"image,omitempty"`
	Worktree Worktree     `json:"worktree"`
	Mounts   []Mount      `json:"mounts,omitempty"`
	Caches   []CacheUse   `json:"caches,omitempty"`
	Network  Network      `json:"network"`
	Limits   Limits       `json:"limits"`
	// Budget is what it may use in all, and BudgetLeft what is left of that while it lives.
	Budget     *Budget           `json:"budget,omitempty"`
	BudgetLeft *BudgetLeft       `json:"budget_left,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	// Notes say what this host could not give, e.g. that a bind-mounted
	// worktree has no disk bound. Never empty praise: each names a limit.
	Notes       []string   `json:"notes,omitempty"`
	TTL         Duration   `json:"ttl,omitempty"`
	IdleTimeout Duration   `json:"idle_timeout,omitempty"`
	LeasePID    int        `json:"lease_pid,omitempty"`
	Created     time.Time  `json:"created"`
	Expires     *time.Time `json:"expires,omitempty"`
	Ended       *time.Time `json:"ended,omitempty"`
	Usage       Usage      `json:"usage"`
	// Todos is the agent's list of tasks, in the answer about one session.
	Todos []Todo `json:"todos,omitempty"`
	// Token is the session's bearer token; only in the answer to its creation
	// when `token` was asked for, and never again.
	Token string `json:"token,omitempty"`
}

// SessionCreate asks for a session.
type SessionCreate struct {
	// Key is the client's own name for this request, unique in the tenant: the same
	// key and body again answers with the same session, never a second one. A new
	// token is then given, where one is asked for, and the one before ends.
	Key string `json:"key,omitempty"`
	// Queue is how long to wait for a place where the tenant has all the sessions that
	// it may have (max_sessions), at most 24 h; 0 is not at all. The places are given
	// in the order of the requests.
	Queue    Duration          `json:"queue,omitempty"`
	Name     string            `json:"name,omitempty"`
	Profile  string            `json:"profile,omitempty"`
	Worktree Worktree          `json:"worktree,omitzero"`
	Mounts   []Mount           `json:"mounts,omitempty"`
	Caches   []CacheUse        `json:"caches,omitempty"`
	Image    string            `json:"image,omitempty"`
	Runtime  string            `json:"runtime,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Limits   Limits            `json:"limits,omitzero"`
	// AtMost lowers limits that the session would have above these, whether they were asked for or
	// are the configuration's; what is 0 lowers nothing.
	AtMost Limits `json:"at_most,omitzero"`
	// Budget is what the session may use in all; it can only be stricter than that of the
	// configuration, which holds for what is 0.
	Budget     Budget   `json:"budget,omitzero"`
	Network    Network  `json:"network,omitzero"`
	Permission []RuleOf `json:"permission,omitempty"` // rules that narrow what the profile allows
	Delegates  []string `json:"delegates,omitempty"`
	// Tools chooses among the tools that profile and tenant leave: names, and names with "-"
	// before them that are left out.
	Tools       []string          `json:"tools,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	TTL         Duration          `json:"ttl,omitempty"`
	IdleTimeout Duration          `json:"idle_timeout,omitempty"` // default 1 h; negative = never
	LeasePID    int               `json:"lease_pid,omitempty"`    // the session ends when this process does
	Token       bool              `json:"token,omitempty"`        // answer with a bearer token good for calls in it
}

// SessionQueued is the place of a request among those that wait for one of their
// tenant's sessions to end; 1 is the next.
type SessionQueued struct {
	Position int `json:"position"`
}

// SessionPatch changes a live session; nil fields stay as they are. In Labels an
// empty value removes the label.
type SessionPatch struct {
	Labels map[string]string `json:"labels,omitempty"`
	TTL    *Duration         `json:"ttl,omitempty"`
	// Profile changes the profile of later calls.
	Profile *string `json:"profile,omitempty"`
}
