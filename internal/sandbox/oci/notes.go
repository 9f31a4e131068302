package oci

import (
	"os"
	"path/filepath"
	"strings"
)

// notes say what this host cannot give to any sandbox.
func (c *cgroups) notes() []string {
	var list []string
	if c.has("memory") && hasSwap() && !c.countsSwap() {
		list = append(list, "this kernel does not account swap: tools can use swap beyond limits.memory (boot with swapaccount=1)")
	}
	if !c.has("cpuset") {
		list = append(list, "there is no cpuset controller: programs see all processors and may start more threads than limits.cpus can run")
	}
	return list
}

func hasSwap() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err == nil && strings.Count(string(b), "\n") > 1
}

func (c *cgroups) countsSwap() bool {
	file := filepath.Join(c.v2, c.parent, "memory.swap.max")
	if mount, v1 := c.v1["memory"]; v1 {
		file = filepath.Join(mount, "memory.memsw.limit_in_bytes")
	}
	_, err := os.Stat(file)
	return err == nil
}
