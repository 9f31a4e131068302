package main

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// collectAt lets the heap grow to four times what is in use before it is
	// collected: a call is nearly all garbage when it has ended, and a collector
	// that runs every few dozen calls costs them a tenth of their time.
	collectAt = 300
	// collectAlways is the size, in bytes, from which on that does not hold: memory
	// that large results take is looked after more often. Where a cgroup bounds the
	// daemon it is three fifths of that at most: the rest is for what Go does not count.
	collectAlways = 256 << 20
)

// tuneCollector sets the garbage collector for a daemon, as far as GOGC and
// GOMEMLIMIT say nothing else.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(min(collectAlways, memoryLimit()*3/5))
	}
}

// memoryLimit is how much memory this process may have: what the cgroups that it is in
// allow, of version 1 or 2, and half of what the host has.
func memoryLimit() int64 {
	limit := int64(math.MaxInt64 / 4)
	var host unix.Sysinfo_t
	if unix.Sysinfo(&host) == nil {
		limit = int64(host.Totalram) * int64(host.Unit) / 2
	}
	return min(limit, cgroupLimit("/proc/self/cgroup", "/sys/fs/cgroup"))
}

// cgroupLimit is the least limit of a process's cgroups and of those above them.
func cgroupLimit(of, mounted string) int64 {
	limit := int64(math.MaxInt64 / 4)
	f, err := os.Open(of)
	if err != nil {
		return limit
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		part := strings.SplitN(lines.Text(), ":", 3)
		if len(part) != 3 {
			continue
		}
		roots, file := []string{mounted, filepath.Join(mounted, "unified")}, "memory.max"
		switch controllers := strings.Split(part[1], ","); {
		case part[1] == "":
		case slices.Contains(controllers, "memory"):
			roots, file = []string{filepath.Join(mounted, part[1]), filepath.Join(mounted, "memory")}, "memory.limit_in_bytes"
		default:
			continue
		}
		for _, root := range roots {
			// In a container the path may be that of the host, and what is mounted its own part.
			for path := part[2]; ; path = filepath.Dir(path) {
				text, err := os.ReadFile(filepath.Join(root, path, file))
				if n, nerr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && nerr == nil && n > 0 {
					limit = min(limit, n)
				}
				if path == "/" || path == "." {
					break
				}
			}
		}
	}
	return limit
}
