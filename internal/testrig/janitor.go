package testrig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// janitor is scripts/janitor, which outlives this process: what it reads there ends with it.
var janitor = sync.OnceValues(func() (io.Writer, error) {
	top, err := Top()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(top, "scripts", "janitor"))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what kills the group of the tests is not for it
	names, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return names, cmd.Start()
})

// Doomed names directories, absolute, and cgroups that are removed, with all that uses them,
// when this process is killed. Tests say so before they make them, and remove them
// themselves: those that are left at the end are a test's failure, and nobody sees it here.
func Doomed(names ...string) error {
	w, err := janitor()
	if err != nil {
		return fmt.Errorf("start scripts/janitor: %w", err)
	}
	_, err = io.WriteString(w, strings.Join(names, "\n")+"\n")
	return err
}

// MkdirTemp makes a directory for the whole run of the tests, which the caller removes. Its
// name begins with prefix, which begins with "toold", and is short: a socket fits in. Other users
// may pass through it, such as those of sandboxes. A cgroup of the same name is Doomed with it.
func MkdirTemp(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", err
	}
	return dir, errors.Join(Doomed(dir, filepath.Base(dir)), os.Chmod(dir, 0o711)) // #nosec G302 -- to be passed by others
}

// TempDir is MkdirTemp for one test, at whose end it is removed.
func TempDir(t testing.TB, prefix string) string {
	t.Helper()
	dir, err := MkdirTemp(prefix)
	Must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("%s is left over: %v", dir, err)
		}
	})
	return dir
}
