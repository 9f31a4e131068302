package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toold/toold/internal/config"
)

// programDirs is where toold looks for the programs that belong to it: beside
// itself (a build tree), below the prefix that it was installed with, then where a
// package puts them.
func programDirs() []string {
	dirs := []string{"/usr/libexec/toold", "/usr/lib/toold"}
	if exe, err := os.Executable(); err == nil {
		dirs = append([]string{filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "../libexec/toold")}, dirs...)
	}
	return dirs
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// findOwn finds a program that is built with toold.
func findOwn(name string) (string, error) {
	for _, dir := range programDirs() {
		if p := filepath.Join(dir, name); isExecutable(p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not in any of %s: run make build", name, strings.Join(programDirs(), ", "))
}

// runtimeNames are those that are looked for, the first one that is there being
// the default.
var runtimeNames = []string{"runc", "crun", "runsc"}

// findRuntimes names the OCI runtimes of this host and the one that setting
// ("auto", one of runtimeNames or a path) makes the default. The runc that is
// built with toold goes before one of the distribution, which is often too old to
// be safe.
func findRuntimes(setting string) (paths map[string]string, def string, err error) {
	paths = make(map[string]string)
	for _, name := range runtimeNames {
		if p, err := findOwn(name); err == nil {
			paths[name] = p
		} else if p, err := exec.LookPath(name); err == nil && filepath.IsAbs(p) {
			paths[name] = p
		}
	}
	switch {
	case filepath.IsAbs(setting):
		if !isExecutable(setting) {
			return nil, "", fmt.Errorf("sandbox.runtime: %s is not an executable file", setting)
		}
		def = filepath.Base(setting)
		paths[def] = setting
		return paths, def, nil
	case setting != "auto":
		def = setting
	default:
		def = runtimeNames[0]
		for _, name := range slices.Backward(runtimeNames) {
			if paths[name] != "" {
				def = name
			}
		}
	}
	if paths[def] == "" {
		return nil, "", fmt.Errorf("sandbox.runtime: no OCI runtime %q beside toold or in PATH: run make %s, or install one and name its path", def, makeTarget(def))
	}
	return paths, def, nil
}

// makeTarget builds a runtime.
func makeTarget(runtime string) string {
	if runtime == "runsc" {
		return runtime
	}
	return "build"
}

// standardPath is the PATH of tools where nothing else is known.
var standardPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// toolPath is the PATH of the tools. With the host's own root file system it
// begins with those entries of the daemon's PATH that a session can see, so that
// what the administrator installed is found; a directory has its own programs.
func toolPath(s *config.Sandbox, daemonPath string) string {
	if s.RootFS != "host" {
		return strings.Join(standardPath, ":")
	}
	visible := s.HostPaths
	if len(visible) == 0 {
		visible = []string{"/usr", "/bin", "/sbin", "/opt"}
	}
	var dirs []string
	for _, dir := range slices.Concat(filepath.SplitList(daemonPath), []string{"/usr/local/go/bin"}, standardPath) {
		if !slices.Contains(dirs, dir) && isVisible(dir, visible) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

// isVisible reports whether a host directory exists and lies in what a session
// sees of the host.
func isVisible(dir string, visible []string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || filepath.Clean(dir) != dir {
		return false
	}
	return slices.ContainsFunc(visible, func(v string) bool {
		return dir == v || strings.HasPrefix(dir, v+"/")
	})
}
