// Package testrig has helpers for tests that run toold's programs.
package testrig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Top is the top of the source tree, in which the test runs.
func Top() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", errors.New("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// Bin is the path of something that make put into bin/; the error says how to get it.
func Bin(name string) (string, error) {
	top, err := Top()
	if err != nil {
		return "", err
	}
	path := filepath.Join(top, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("there is no bin/%s: run make build", name)
	}
	return path, nil
}

// brought is what lies beside toold and is not built of its own source.
var brought = []string{"ripgrep/*", "runc", "runsc"}

// Build builds packages of the module, such as "cmd/toold", into dir as they ship. Beside
// them are links to what else there is in bin/: runtimes, and ripgrep.
func Build(dir string, packages ...string) error {
	top, err := Top()
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/"}
	for _, p := range packages {
		args = append(args, "./"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "ripgrep"), 0o755); err != nil {
		return err
	}
	for _, pattern := range brought {
		found, err := filepath.Glob(filepath.Join(top, "bin", pattern)) // what is not there is missed by who needs it
		if err != nil {
			return err
		}
		for _, from := range found {
			if err := os.Symlink(from, filepath.Join(dir, filepath.Dir(pattern), filepath.Base(from))); err != nil {
				return err
			}
		}
	}
	return nil
}
