// Package inside is what a sandbox looks like from inside, whatever driver makes it:
// its files in /etc, the sizes of its memory file systems, the places that are the
// sandbox's own, the agent and its rights.
package inside

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// Terminals is how many pseudo-terminals a session may have at once, where they can
// be bounded: the host has 4,096 in all unless it is told otherwise.
const Terminals = 64

// Hostname is the name of every sandbox.
const Hostname = "toold"

// Reserved are the places that a root filesystem, a worktree or a mount never
// replaces or hides.
var Reserved = []string{"/dev", "/proc", "/sys", "/tmp", "/run", sandbox.Home}

// AgentCaps are what the agent keeps: it changes to the tool user and kills that
// user's processes, nothing else.
var AgentCaps = []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}

// MaskedPaths and ReadonlyPaths of /proc follow Moby.
var (
	MaskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	}
	ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/sys", "/proc/sysrq-trigger"}
)

// CoreLimit (bytes) is the limit for core files. With 1 the kernel neither writes one nor starts the
// program that its core pattern may name; with 0 it starts that, as root of the host.
const CoreLimit = 1

// Sysctls are the settings of a sandbox's own namespaces. System V's shared memory goes with the last
// program that has it attached, and with its maker where none has: else what an ended call has made
// would fill the session's memory for as long as any program goes on. gVisor has no such setting. The
// others are of the network: how much (bytes; least, at first, at
// most) a TCP connection keeps of what it receives, and of what it sends; and how many that are closed
// the kernel remembers for a minute. By the kernel's own sizes, 4 to 32 MiB, some connections that nobody
// reads from are the memory of a small session; and those
// that the daemon accepts from it are not even counted as the session's. The way out is no slower
// with these (bench, -only network). Of closed ones, 256 bytes each that are counted for nobody, the
// kernel remembers several times as many on a large host.
var Sysctls = map[string]string{
	"kernel.shm_rmid_forced":      "1",
	"net.ipv4.tcp_rmem":           "4096 131072 1048576",
	"net.ipv4.tcp_wmem":           "4096 65536 131072",
	"net.ipv4.tcp_max_tw_buckets": "32768",
}

// Marker is the content of sandbox.MarkerFile.
const Marker = "this is a sandbox\n"

// Etc are the files of /etc that are the same in each sandbox, by their path.
var Etc = map[string]string{
	"/etc/passwd": "root:x:0:0:sandbox agent:/:/usr/sbin/nologin\n" +
		"tool:x:1000:1000:tools:" + sandbox.Home + ":/bin/bash\n" +
		"nobody:x:65534:65534:everyone else:/nonexistent:/usr/sbin/nologin\n",
	"/etc/group":         "root:x:0:\ntty:x:5:\ntool:x:1000:\nnogroup:x:65534:\n",
	"/etc/hosts":         "127.0.0.1\tlocalhost " + Hostname + "\n::1\tlocalhost ip6-localhost\n",
	"/etc/hostname":      Hostname + "\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n",
	// Where a session has no network nothing answers there, as nothing does at 127.0.0.1, which
	// is asked where a file names nobody.
	"/etc/resolv.conf": "nameserver 127.0.0.53\noptions timeout:5 attempts:1\n",
	"/etc/host.conf":   "multi on\n",
}

// CheckClaim refuses what no sandbox can be given.
func CheckClaim(c *sandbox.Claim) error {
	switch w := &c.Worktree; {
	case (w.Source == nil) != (w.Mode == client.WorktreeEmpty):
		return fmt.Errorf("worktree mode %q: exactly the mode empty has no source", w.Mode)
	case (w.Overlay != nil) != (w.Mode == client.WorktreeOverlay):
		return fmt.Errorf("worktree mode %q: exactly the mode overlay has layers", w.Mode)
	case !slices.Contains([]client.WorktreeMode{client.WorktreeBind, client.WorktreeRO, client.WorktreeEmpty, client.WorktreeOverlay}, w.Mode):
		return fmt.Errorf("worktree mode %q: %w", w.Mode, sandbox.ErrUnsupported)
	}
	return checkTargets(c)
}

// checkTargets keeps worktree and mounts away from the places that are the
// sandbox's. A mount may lie in the worktree or in another mount, and hides
// neither.
func checkTargets(c *sandbox.Claim) error {
	if err := checkTarget(c.Worktree.Target); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, m := range c.Mounts {
		if err := checkTarget(m.Target); err != nil {
			return err
		}
		if Within(c.Worktree.Target, m.Target) {
			return fmt.Errorf("%w: %s would hide the worktree at %s", sandbox.ErrMountTarget, m.Target, c.Worktree.Target)
		}
		if seen[m.Target] {
			return fmt.Errorf("%w: two mounts are to be at %s", sandbox.ErrMountTarget, m.Target)
		}
		seen[m.Target] = true
	}
	return nil
}

func checkTarget(t string) error {
	if !filepath.IsAbs(t) || filepath.Clean(t) != t || strings.ContainsRune(t, 0) {
		return fmt.Errorf("%w: %q is not an absolute, clean path", sandbox.ErrMountTarget, t)
	}
	for _, o := range append([]string{"/etc", "/var/tmp", "/var/run"}, Reserved...) {
		if Within(t, o) || Within(o, t) {
			return fmt.Errorf("%w: %s is %s's place in every sandbox", sandbox.ErrMountTarget, t, o)
		}
	}
	return nil
}

// Within says whether p is dir or below it. Both are clean and absolute.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
