package exec

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// foreignNR is the first number of the x32 calls, which the kernel counts
	// to the same architecture.
	foreignNR = 0x40000000
)

// archModeCalls are the calls that only older architectures have.
func archModeCalls() []modeCall {
	return []modeCall{
		{unix.SYS_OPEN, 2, openFlagsArg},
		{unix.SYS_CREAT, 1, noFlags},
		{unix.SYS_CHMOD, 1, noFlags},
		{unix.SYS_MKDIR, 1, noFlags},
		{unix.SYS_MKNOD, 1, noFlags},
	}
}
