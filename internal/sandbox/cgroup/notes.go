package cgroup

import (
	"os"
	"path/filepath"
	"strings"
)

// Notes say what this host cannot give to any sandbox.
func (t *Tree) Notes() []string {
	var list []string
	if t.has("memory") && hasSwap() && !t.countsSwap() {
		list = append(list, "this kernel does not account swap: tools can use swap beyond limits.memory (boot with swapaccount=1)")
	}
	if !t.has("cpuset") {
		list = append(list, "there is no cpuset controller: programs see all processors and may start more threads than limits.cpus can run")
	}
	return list
}

func hasSwap() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err == nil && strings.Count(string(b), "\n") > 1
}

func (t *Tree) countsSwap() bool {
	file := filepath.Join(t.v2, t.parent, "memory.swap.max")
	if mount, v1 := t.v1["memory"]; v1 {
		file = filepath.Join(mount, "memory.memsw.limit_in_bytes")
	}
	_, err := os.Stat(file)
	return err == nil
}
