// Package sandbox is the contract between toold and what holds a session: a
// Driver makes sandboxes, a Sandbox is one of them. Drivers live in packages
// below; every driver passes the suite in sandboxtest.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// Paths inside every sandbox. They are the same for all drivers, so that a
// transcript of one session reads like that of another.
const (
	Workspace  = "/workspace"         // default target of the worktree
	Home       = "/home/tool"         // $HOME of the tools, on a disk of limits.disk or a bounded tmpfs
	OutputDir  = "/run/toold/output"  // whole outputs of calls, read-only
	AgentPath  = "/run/toold/agent"   // the agent's binary, read-only
	RipgrepDir = "/run/toold/ripgrep" // ripgrep, with its loader where it is not static, read-only
	ControlDir = "/run/toold/control" // where an agent that dials finds the daemon
	// TreeDir is the agent's own, and only there for a worktree of mode overlay. It has
	// TreeBase, what the worktree is compared with, read-only.
	TreeDir  = "/run/toold/tree"
	TreeBase = "base"
	// JournalDir is the agent's own too, and to be written: what it notes there of a change
	// of several files outlives it (see Claim).
	JournalDir = "/run/toold/journal"
	MarkerFile = "/run/toold/sandbox"
	// MarkerFile exists inside every sandbox and nowhere else. Attack probes
	// refuse to start without it.
)

// Ids inside every sandbox.
const (
	ToolUID   = 1000
	ToolGID   = 1000
	RangeSize = 65536 // host uids (and gids) that one session owns
)

// Errors that callers tell apart.
var (
	// ErrGone: the sandbox does not exist (any more).
	ErrGone = errors.New("sandbox is gone")
	// ErrUnsupported: this host or driver cannot enforce what was asked for.
	ErrUnsupported = errors.New("not enforceable on this host")
	// ErrNoRuntime: no runtime has the name.
	ErrNoRuntime = errors.New("no such runtime")
	// ErrMountTarget: the place where a worktree or mount should appear is not a
	// plain directory inside, or is not free.
	ErrMountTarget = errors.New("mount_target_not_plain")
	// ErrBusy: something uses what was to be replaced.
	ErrBusy = errors.New("it is in use")
	// ErrTorn: what was to be replaced may be missing.
	ErrTorn = errors.New("the sandbox may have lost its worktree")
)

// HostError is a sandbox that could not be made for what the surroundings of toold
// lack. Cause and Hint are one sentence each, fit for everybody; Err is for the log.
type HostError struct {
	Cause, Hint string
	Err         error
}

// Error implements error.
func (e *HostError) Error() string {
	return fmt.Sprintf("no sandbox can be made here: %s; %s (seen: %v)", e.Cause, e.Hint, e.Err)
}

// Unwrap gives what was seen.
func (e *HostError) Unwrap() error { return e.Err }

// Spec is all that a driver needs to make one sandbox. It is complete: drivers
// read no configuration of their own for a session.
type Spec struct {
	ID
	Shape
	Claim
	// Nonce is what the daemon shows the agent; the agent gets it over an
	// inherited pipe, never by argv, environment or file.
	Nonce []byte
}

// ID names one sandbox. Cgroup, directories and id maps are made with it, so it is chosen
// first. No two sandboxes have the same one.
type ID struct {
	SessionID   string // ses_…; names cgroup, bundle and container
	Incarnation string // random per creation; a leftover of an older one is never taken for this one
	Owner       string // which daemon (state directory) owns it, as a label
	UIDBase     uint32 // first host uid of the session's range
}

// Same reports whether both name the same sandbox. The same session id is not enough.
func (i *ID) Same(other *ID) bool {
	return i.SessionID == other.SessionID && i.Owner == other.Owner && i.Incarnation == other.Incarnation
}

// Shape says what a sandbox is, whoever it is for. It names no session, no user and no
// directory of theirs. Two sandboxes of one shape differ only in their ID.
type Shape struct {
	Runtime string // "" = the driver's default
	// Image is a name that the driver's own Engine knows; "" = its default.
	// Drivers that are given a Root have no use for it.
	Image string
	// Root is the image's root filesystem; nil = the driver's default.
	Root   *Root
	Limits client.Limits
}

// Claim says what a session brings to its sandbox from the host.
type Claim struct {
	Worktree Worktree
	Mounts   []Mount
	// OutputDir is a host directory of the daemon's that appears read-only at
	// OutputDir inside.
	OutputDir string
	// JournalDir is a host directory of the daemon's that appears at JournalDir inside, where
	// the agent alone can enter and write. A driver that cannot mount it leaves it out: then
	// a change of several files in which the agent is killed stays as it is.
	JournalDir string
}

// Targets gives the paths of worktree and mounts inside, the worktree's first.
func (c *Claim) Targets() []string {
	targets := []string{c.Worktree.Target}
	for _, m := range c.Mounts {
		targets = append(targets, m.Target)
	}
	return targets
}

// Root is the root filesystem of an image, shared by all sessions that run it.
type Root struct {
	// Dir is the one directory that holds it, with the image's own ids 0 to
	// 65535 as the host's. No sandbox ever writes to it: a driver shows it below
	// a writable layer, bounded by Limits.Disk, with the ids shifted to the
	// session's range. The driver does not close Dir.
	Dir *os.File
	// Digest names what is in Dir, as algorithm:hex.
	Digest string
	// Env is the image's environment, NAME=value, for who makes that of the
	// tools. It is hostile input, and drivers have no use for it.
	Env []string
}

// HeldImage is an image that a session runs, or is about to.
type HeldImage struct {
	// Name is what it was asked for as, Digest what that means.
	Name, Digest string
	// Root is for drivers that are given root filesystems. Where it is nil, the
	// driver is given Digest as the name that its Engine knows.
	Root *Root
	// Env is the image's environment, NAME=value; hostile.
	Env []string
	// Release lets go of it. It is called once.
	Release func()
}

// Worktree is a worktree that is ready to be mounted.
type Worktree struct {
	// Source is pinned: mounting uses this descriptor and never a path. Nil for
	// mode "empty". The driver does not close it.
	Source *os.File
	Mode   client.WorktreeMode
	Target string // absolute, cleaned
	// UID and GID are shown as the tool user inside, who has their rights on what
	// is below Source and nobody's else: its owner's for an administrator, and for
	// everyone else their own.
	UID, GID uint32
	// Overlay is what lies over Source; nil for other modes than overlay.
	Overlay *Overlay
	// GuardGit makes .git/config, .git/config.worktree and .git/hooks read-only,
	// as far as they are there.
	GuardGit bool
	// Linked are the lists of linked worktrees that git must not change for the host, of a
	// worktree of mode bind.
	Linked []Linked
}

// Linked is a directory in which git lists the linked worktrees of a repository.
type Linked struct {
	List string   // its path below the worktree
	Own  []string // entries that the session may change
	Why  string   // why it cannot be kept from the session; "" where it can
}

// Note tells a session why a list is not kept from it, and what to do.
func (l Linked) Note(why string) string {
	return fmt.Sprintf("linked worktrees that git lists in %s are not kept from this session (%s): git worktree prune, remove and gc may take those of the host away; "+
		"lock them there first (git worktree lock), or give the session a clone", plain.Name(l.List), why)
}

// Overlay is the layers of a worktree of mode overlay, over its source, which nothing
// writes to. The driver closes none of their files.
type Overlay struct {
	// Lower are directories that were Upper of an overlay, and that nothing writes to any
	// more, the uppermost first.
	Lower []*os.File
	// Upper takes the changes. It is an empty directory: the driver makes root in it, the
	// tool user's, and work. nil makes the worktree read-only.
	Upper *os.File
	// Base are as Lower what, over the source, the worktree is compared with.
	Base []*os.File
}

// Relaying is a Sandbox whose worktree of mode overlay can be laid anew while it lives.
type Relaying interface {
	// Relays says why Relay cannot be had of this sandbox, ErrUnsupported; nil where it can. It
	// asks nobody, and is asked before anything is stored that Relay is to carry out.
	Relays() error
	// Relay puts the worktree that c says, and what it is compared with, into the place of
	// those that are there; c's other mounts stay as they are. No process of the tools may
	// be alive. ErrBusy: something still uses it; ErrMountTarget: one of those other mounts
	// would have no place. ErrTorn: the old worktree may be missing; after all other errors it
	// is in its place. A daemon that dies here leaves what the next Relay goes on with.
	Relay(ctx context.Context, c *Claim) error
}

// Disks is a Driver that puts the home directories of its sandboxes, and what else is too large
// for memory, on disks in files, where Limits.Disk is set.
type Disks interface {
	// Disks says why this host has none, nil where it has. Then Limits.Disk is refused, but
	// for a sandbox with a Root.
	Disks() error
}

// Contained is a Driver whose sandboxes lie together in cgroups of this host that may have bounds of their own, as
// those of a service or a container have.
type Contained interface {
	// Left is how many bytes of memory, and how many processes, these leave; math.MaxInt64 for no bound.
	Left() (memory, pids int64)
}

// Late is a Sandbox that has its disks no sooner than they are needed: until then its home
// directory is empty and read-only.
type Late interface {
	// Furnish mounts them. Doing it again is no error.
	Furnish() error
	// Held is how many bytes lie on them, quickly.
	Held() int64
}

// Mount is an extra directory, pinned like a worktree. It is read-only, unless it is
// written to or has layers.
type Mount struct {
	Source   *os.File
	Target   string
	UID, GID uint32 // as those of a Worktree
	NoExec   bool   // nothing in it is run as a program
	Write    bool   // the tools write to Source itself
	// Overlay is what lies over Source; nil for nothing. It has no Base.
	Overlay *Overlay
}

// Record names a sandbox so that another process (the daemon after a restart)
// can find it. It is what the store keeps; it holds no secret. An earlier or a later
// daemon reads it too: the names of its fields stay as they are.
type Record struct {
	ID
	Runtime  string
	PID      int    // host pid of the agent, 0 when unknown
	PIDStart uint64 // its start time in clock ticks, against reused pids
}

// Driver makes, finds and removes sandboxes. All methods may be called from any
// goroutine. A Driver keeps no state that a restart would lose.
type Driver interface {
	Name() string
	// Create makes a sandbox and starts the agent in it. It returns when the
	// control socket can be dialled. On error nothing is left behind, as far as
	// the host lets it; what could not be removed is found again by List.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Adopt takes over a sandbox that an earlier daemon made. ErrGone when it
	// is dead or not the one that rec names.
	Adopt(ctx context.Context, rec Record) (Sandbox, error)
	// List names every sandbox of owner that has left anything on this host:
	// container, bundle, cgroup, socket.
	List(ctx context.Context, owner string) ([]Record, error)
	// Destroy kills and removes all that List would show of rec. Doing it twice
	// is no error. After it returns nil no process of the sandbox is alive.
	Destroy(ctx context.Context, rec Record) error
	// Runtimes are the names that Spec.Runtime may be, default first. Whether a runtime works
	// Try says. The error is why they are not known now.
	Runtimes(ctx context.Context) ([]string, error)
	// Try says why no sandbox can be made with a runtime; nil where it can, as far as that is
	// known before. It is ErrNoRuntime, with the names that there are, where none has the name.
	// Any other error is of now: who asks again has it tried again.
	Try(ctx context.Context, runtime string) error
}

// CheckRuntime is ErrNoRuntime where a name is none of those that there are.
func CheckRuntime(name string, there []string) error {
	if slices.Contains(there, name) {
		return nil
	}
	return fmt.Errorf("%w %.100q; there are: %s", ErrNoRuntime, name, strings.Join(there, ", "))
}

// OpError says what was being done to which sandbox. A client, who knows that, is told Wrong.
type OpError struct {
	Doing, Session string
	Err            error
}

// Error implements error.
func (e *OpError) Error() string { return fmt.Sprintf("%s sandbox %s: %v", e.Doing, e.Session, e.Err) }

// Unwrap gives what went wrong.
func (e *OpError) Unwrap() error { return e.Err }

// Wrong is what went wrong, without what a driver was doing to which sandbox.
func Wrong(err error) string {
	if op, ok := errors.AsType[*OpError](err); ok {
		err = op.Err
	}
	return err.Error()
}

// Failed makes an error, if there is one, an OpError. It is for drivers to defer.
func Failed(err *error, doing, session string) {
	if *err != nil {
		*err = &OpError{doing, session, *err}
	}
}

// Sandbox is one live sandbox.
type Sandbox interface {
	Record() Record
	// Dial opens a new connection to the agent's control socket.
	Dial(ctx context.Context) (*net.UnixConn, error)
	// Attach puts the agent's fork thread, by its id inside the sandbox, under
	// the limits of the tools. Called once, after the first handshake. A driver
	// whose calls clone straight into a limited cgroup does nothing here.
	Attach(ctx context.Context, forkTID int) error
	// CallCgroup is what the agent makes the cgroups of calls below: an
	// open_tree file, given to the agent once. Nil where there is none.
	CallCgroup() (*os.File, error)
	// Notes are the things that this host could not give (see client.Session).
	Notes() []string
	// IDMap is client.Worktree.IDMap as really done; "" for mode "empty".
	IDMap() string
	Usage(ctx context.Context) (client.Usage, error)
	// OOMKills counts processes that the kernel killed for memory so far.
	OOMKills() int64
	// PIDsHits counts forks refused by the pids limit so far.
	PIDsHits() int64
	// Done is closed when the agent has died.
	Done() <-chan struct{}
	// Close lets go of what this process holds (descriptors, watchers); the
	// sandbox lives on.
	Close() error
}

// SelfLimiting is a Sandbox in which the agent keeps the limits of memory and
// processes, because nobody outside can tell its programs from its kernel. The
// agent then says itself which limit ended a program; OOMKills and PIDsHits do
// not count it.
type SelfLimiting interface {
	SelfLimiting() bool
}

// Distant is a Sandbox on another host.
type Distant interface {
	// Patience is how long its agent may be out of reach before it counts as lost.
	Patience() time.Duration
}

// Returning is a Driver whose sandboxes hold what is to come back to this host.
type Returning interface {
	// Return is Destroy, and says what did not come back and where it is, in sentences
	// for the session's notes; none when all is back. There may be some with an error.
	Return(ctx context.Context, rec Record) (notes []string, err error)
}

// Networking is a Driver that knows which of its sandboxes can have a way out. Others have
// sandboxes without one.
type Networking interface {
	// Networking is ErrUnsupported, with the reason, for a runtime whose sandboxes cannot.
	Networking(runtime string) error
}

// Networked is a Sandbox that may have a way out, see package egress.
type Networked interface {
	// Network says how the daemon gets at what programs connect to. The caller closes its files.
	// It is asked once by each daemon, before the first Dial.
	Network() (*Network, error)
}

// Network is where connections of a sandbox arrive: a namespace that the daemon can enter, or
// else a relay.
type Network struct {
	Namespace *os.File
	// Held are sockets that the agent has kept since an earlier daemon. It may lie about them.
	Held []*os.File
	// Relay gives the connections that the agent passes on, and the ports inside that they were
	// made to. Its Accept is net.ErrClosed after Close.
	Relay Relay
	// Call gives what the agent has written on the v2 cgroup with this id: the call whose programs
	// are in it. It may lie. nil where cgroups cannot be asked.
	Call func(cgroup uint64) (string, bool)
}

// Close closes what nobody has taken over.
func (n *Network) Close() error {
	var err error
	if n.Namespace != nil {
		err = n.Namespace.Close()
	}
	for _, f := range n.Held {
		err = errors.Join(err, f.Close())
	}
	if n.Relay != nil {
		err = errors.Join(err, n.Relay.Close())
	}
	return err
}

// Relay is a listener for connections that an agent passes on.
type Relay interface {
	Accept() (c *net.UnixConn, port uint16, err error)
	Close() error
}

// Witness is a Sandbox that may know why its agent has died.
type Witness interface {
	// Cause says it in a few words, "" when it is not known. It is asked after Done.
	Cause(ctx context.Context) string
}

// Meter is a Sandbox that may know what its processes have read and written.
type Meter interface {
	// IOBytes counts bytes read from and written to block devices so far; what
	// the page cache answers is not among them. 0 where the host counts nothing,
	// as recent kernels do on cgroup v1 for devices that nothing throttles.
	IOBytes() int64
}

// Uncounted is a Sandbox that knows how much memory of the host the kernel keeps for its programs
// without counting it in Limits.Memory, in bytes: what lies in sockets of netlink and in connections
// that no program has accepted, and with cgroup v1 in all of TCP and UDP. It is asked many times a second,
// and stops to count where there is more than most.
type Uncounted interface {
	Uncounted(most int64) (int64, error)
	// FileLocks is how many locks of files (fcntl) its programs have, which are 192 bytes each. It stops
	// to count when there are more than most, and with an error when ctx has ended.
	FileLocks(ctx context.Context, most int) (int, error)
}

// Prober is a Driver that can say what really holds here, as doctor prints it.
type Prober interface {
	// Host looks at kernel, cgroups, runtimes and id mapping without starting
	// anything that outlives it.
	Host(ctx context.Context) []client.Check
}

// Grace is how long a process has between SIGTERM and SIGKILL.
const Grace = 3 * time.Second
