// Package descriptor lends the descriptors of files and connections for a system call, and
// leaves them with the runtime's poller, from which File.Fd takes them away.
package descriptor

import "syscall"

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
