package testrig

import (
	"os"
	"syscall"
)

// WriteProgram writes a program, or a script, that tests are about to run. While it is open for
// writing this process makes no other: that one would have the descriptor too until it executes
// something itself, and the kernel runs no program that somebody may write to (ETXTBSY).
func WriteProgram(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}
