package systemd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
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
	} else if _, err := exec.LookPath("nsenter"); err != nil {
		why = "there is no nsenter in PATH"
	}
	switch {
	case why == "":
	case slices.Contains(strings.Split(os.Getenv("TOOLD_TEST_REQUIRE"), ","), "systemd"):
		t.Fatal(why)
	default:
		t.Skip(why)
	}
}

func rootDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(repository, "bin", "systemd-root"))
	must(t, err)
	return dir
}

// programs holds what is installed in every machine, made once.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

func removePrograms() { os.RemoveAll(programs.dir) }

// installed is a directory with toold as `make install` puts it into a host.
func installed(t *testing.T) string {
	t.Helper()
	programs.once.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "toold-systemd-"); programs.err == nil {
			programs.err = install(programs.dir)
		}
	})
	must(t, programs.err)
	return filepath.Join(programs.dir, "root")
}

func install(dir string) error {
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, "bin")+"/", "./cmd/toold", "./cmd/toolctl", "./cmd/toolagent")
	build.Dir = repository
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	for _, runtime := range []string{"runc", "runsc"} {
		from, err := filepath.Abs(filepath.Join(repository, "bin", runtime))
		if err != nil {
			return err
		}
		if _, err := os.Stat(from); err != nil {
			continue
		}
		if err := os.Symlink(from, filepath.Join(dir, "bin", runtime)); err != nil {
			return err
		}
	}
	cmd := exec.Command("scripts/install")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "BIN="+filepath.Join(dir, "bin"), "DESTDIR="+filepath.Join(dir, "root"), "PREFIX=/usr", "SYSCONFDIR=/etc")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install: %w\n%s", err, out)
	}
	return nil
}
