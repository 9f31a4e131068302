package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Notes say what this host cannot give to any sandbox.
func (t *Tree) Notes() []string {
	var list []string
	if t.has("memory") && hasSwap() && !t.countsSwap() {
		list = append(list, "this kernel does not account swap: tools can use swap beyond limits.memory (boot with swapaccount=1)")
	}
	if !t.countsSockets() {
		list = append(list, "this kernel does not count the memory of TCP and UDP sockets: tools can take memory of the host with them beyond limits.memory (have it boot with cgroup v2 alone, and without cgroup.memory=nosocket)")
	}
	if !t.has("cpuset") {
		list = append(list, "there is no cpuset controller: programs see all processors and may start more threads than limits.cpus can run")
	}
	return list
}

// countsSockets reports whether something bounds what sockets hold, or nothing bounds memory at all.
func (t *Tree) countsSockets() bool {
	if mount, v1 := t.v1["memory"]; v1 {
		_, err := os.Stat(filepath.Join(mount, t.parent, socketsV1))
		return err == nil // nosocket is of v2 alone
	}
	return !t.has("memory") || !slices.Contains(bootOptions(), "nosocket")
}

// bootOptions are those that the kernel was given for the memory controller.
func bootOptions() (list []string) {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil
	}
	for word := range strings.FieldsSeq(string(b)) {
		if options, ok := strings.CutPrefix(word, "cgroup.memory="); ok {
			list = append(list, strings.Split(options, ",")...)
		}
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
