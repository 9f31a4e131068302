// Command probe is the hostile program of the attack tests. It tries what an
// attacker inside a session would try, harmlessly, and prints one line for each
// attempt: "NAME OUTCOME", the outcome being "ok", an errno's name, "SIG…" or a
// value. What the outcomes must be is for the tests to say.
//
// It refuses to start outside a sandbox: an attack that works does so on the
// machine it runs on.
//
// Its own runtime keeps no files of cgroups open: descriptors are what it looks for.
//
//go:debug containermaxprocs=0
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// marker exists inside every sandbox and nowhere else.
const marker = "/run/toold/sandbox"

// probes is every attack by name. Each prints its outcomes and takes the rest
// of the command line.
var probes = map[string]func(args []string){
	"status":     status,
	"namespaces": namespaces,
	"mounts":     mounts,
	"syscalls":   syscalls,
	"sockets":    sockets,
	"int80":      int80,
	"x32":        x32,
	"devices":    devices,
	"planted":    planted,
	"procfs":     procfs,
	"fds":        fds,
	"exe-writer": exeWriter,
	"cgroups":    cgroups,
	"tiocsti":    tiocsti,
	"priority":   priority,
	"peruid":     peruid,
	"filters":    filters,
	"kernelmem":  kernelMemory,
	"terminals":  terminals,
	"ipc":        ipc,
	"init":       attackInit,
	"signals":    signalInit,
	"network":    network,
	"setuid":     setuid,
	"eat":        eat,
	"zombies":    zombies,
	"fill":       fill,
	"inodes":     inodes,
	"victim":     victim,
	"ptrace":     ptraceOthers,
}

func main() {
	if _, err := os.Stat(marker); err != nil {
		fmt.Fprintln(os.Stderr, "probe: refusing to run: this is not a sandbox (no "+marker+")")
		os.Exit(3)
	}
	if len(os.Args) < 2 || probes[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: probe", strings.Join(slices.Sorted(maps.Keys(probes)), "|"), "[ARG…]")
		os.Exit(2)
	}
	debug.SetGCPercent(-1) // system call arguments are held as plain numbers
	probes[os.Args[1]](os.Args[2:])
}

// say prints one outcome.
func say(name string, err error) { fmt.Println(name, outcome(err)) }

// outcome is "ok" or the errno's name.
func outcome(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		if errno == 0 {
			return "ok"
		}
		return unix.ErrnoName(errno)
	default:
		return strings.ReplaceAll(err.Error(), " ", "_")
	}
}

// sys is a raw system call as an error.
func sys(nr uintptr, a ...uintptr) error {
	var v [6]uintptr
	copy(v[:], a)
	_, _, errno := unix.Syscall6(nr, v[0], v[1], v[2], v[3], v[4], v[5])
	if errno != 0 {
		return errno
	}
	return nil
}
