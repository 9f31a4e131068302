package testrig

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SSHD finds sshd: this host's, or a copy in dir, which it makes, of what scripts/install-sshd
// has unpacked, since the user it is to run as may not be able to come to the source tree. The
// test is skipped where there is none.
func SSHD(t testing.TB, dir string) string {
	t.Helper()
	for _, name := range []string{"sshd", "/usr/sbin/sshd"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	top, err := Top()
	if err != nil {
		t.Fatal(err)
	}
	unpacked := os.DirFS(filepath.Join(top, "bin/sshd"))
	if _, err := fs.Stat(unpacked, "sshd"); err != nil {
		Skipf(t, "ssh", "no sshd: run scripts/install-sshd")
	}
	if err := os.CopyFS(filepath.Join(dir, "programs"), unpacked); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "programs/sshd")
}
