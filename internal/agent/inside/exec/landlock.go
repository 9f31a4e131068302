package exec

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	landlockABI        = 6   // the first with scopes
	landlockVersion    = 0x1 // LANDLOCK_CREATE_RULESET_VERSION
	scopeAbstractUnix  = 0x1
	scopeSignal        = 0x2
	landlockAttrLength = 24
)

// landlockAttr is the kernel's struct landlock_ruleset_attr of ABI 6.
type landlockAttr struct{ fs, net, scoped uint64 }

// newScope makes the Landlock ruleset that each program is put under: it can
// signal, and reach by abstract sockets, only what it has started itself. It is
// -1 with a reason where the kernel has no such thing.
func newScope() (fd int, note string) {
	abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, landlockVersion)
	if e != 0 {
		return -1, fmt.Sprintf("no Landlock (%v): calls of this session can signal each other", e)
	}
	if abi < landlockABI {
		return -1, fmt.Sprintf("Landlock ABI %d has no scopes (%d has): calls of this session can signal each other", abi, landlockABI)
	}
	attr := landlockAttr{scoped: scopeAbstractUnix | scopeSignal}
	n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), landlockAttrLength, 0)
	if e != 0 {
		return -1, fmt.Sprintf("no Landlock ruleset (%v): calls of this session can signal each other", e)
	}
	unix.CloseOnExec(int(n)) // it is made so; this only says it
	return int(n), ""
}
