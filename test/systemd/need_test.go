package systemd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// need skips the test where no systemd can be booted; where TOOLD_TEST_REQUIRE
// names systemd, that is a failure.
func need(t *testing.T) {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "a machine takes root to boot"
	} else if _, err := os.Stat(filepath.Join(rootDir(t), systemdPath)); err != nil {
		why = "there is no systemd to boot in bin/systemd-root: run scripts/systemd-root"
	} else if _, err := os.Stat(filepath.Join(repository, "bin", "runc")); err != nil {
		why = "there is no bin/runc: run make build"
	} else if _, err := exec.LookPath("nsenter"); err != nil {
		why = "there is no nsenter in PATH"
	}
	if why != "" {
		testrig.Skipf(t, "systemd", "%s", why)
	}
}

func rootDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(repository, "bin", "systemd-root"))
	must(t, err)
	return dir
}

// programs is what is installed in every machine, made once.
var programs installation

// installation is a directory that its janitor removes when this process has ended.
type installation struct {
	once    sync.Once
	dir     string
	err     error
	janitor *exec.Cmd
	stdin   io.Closer // of the janitor
}

// make makes the directory and fills it.
func (p *installation) make() error {
	var err error
	if p.dir, err = os.MkdirTemp("", "toold-systemd-"); err != nil {
		return err
	}
	p.janitor = exec.Command("/proc/self/exe", p.dir)
	p.janitor.Env = append(os.Environ(), roleVariable+"=janitor")
	p.janitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if p.stdin, err = p.janitor.StdinPipe(); err != nil {
		return err
	}
	if err := p.janitor.Start(); err != nil {
		return err
	}
	return install(p.dir)
}

func (p *installation) remove() {
	if p.stdin != nil {
		p.stdin.Close()
		_ = p.janitor.Wait()
	}
}

// installed is a directory with toold as `make install` puts it into a host.
func installed(t *testing.T) string {
	t.Helper()
	programs.once.Do(func() { programs.err = programs.make() })
	must(t, programs.err)
	return filepath.Join(programs.dir, "root")
}

func install(dir string) error {
	if err := testrig.Build(filepath.Join(dir, "bin"), "cmd/toold", "cmd/toolctl", "cmd/toolagent"); err != nil {
		return err
	}
	cmd := exec.Command("scripts/install")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "BIN="+filepath.Join(dir, "bin"), "DESTDIR="+filepath.Join(dir, "root"), "PREFIX=/usr", "SYSCONFDIR=/etc")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install: %w\n%s", err, out)
	}
	return nil
}
