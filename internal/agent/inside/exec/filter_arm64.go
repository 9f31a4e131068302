package exec

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	foreignNR = 0 // none
)

func archModeCalls() []modeCall { return nil }
