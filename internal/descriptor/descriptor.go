// Package descriptor lends the descriptors of files and connections for a system call, and
// leaves them with the runtime's poller, from which File.Fd takes them away.
package descriptor

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Use calls f with the descriptor of c, which stays open meanwhile.
func Use[T any](c syscall.Conn, f func(fd int) (T, error)) (value T, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return value, err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { value, failed = f(int(fd)) }); err != nil {
		return value, err
	}
	return value, failed
}

// shares is in how many parts the descriptors of the process are divided: for connections of
// clients, for those of sessions to the network, and for the daemon's own: sessions, records, and
// sandboxes that are being made.
const shares = 3

// Share is how many descriptors of this process one of the uses may take that must leave some to
// the others: a third of its limit as it is now (RLIMIT_NOFILE, 1024 where that is not known), at
// least 1 and at most 1<<30.
func Share() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = 1024
	}
	return max(1, int(min(limit.Cur, 1<<30))/shares)
}
