package cgroup

import (
	"math"
	"path/filepath"
)

// unbounded is less than what a cgroup of v1 has as its limit that has none.
const unbounded = 1 << 62

// Left is how many bytes of memory, and how many processes, the cgroups above those of the sessions leave;
// math.MaxInt64 where nothing bounds that. What the kernel can take back at once counts as left.
func (t *Tree) Left() (memory, pids int64) {
	memory, pids = math.MaxInt64, math.MaxInt64
	least := func(sum *int64, controller, most, used, cached string) {
		root, v1 := t.v1[controller]
		if !v1 {
			root = t.v2
		}
		if !t.has(controller) {
			return
		}
		for path := t.parent; ; path = filepath.Dir(path) { // what is mounted may be a container's part, with a bound
			dir := filepath.Join(root, path)
			if n := readInt(filepath.Join(dir, most)); n > 0 && n < unbounded { // "max" is none
				*sum = min(*sum, n-readInt(filepath.Join(dir, used))+readKey(filepath.Join(dir, "memory.stat"), cached))
			}
			if path == "/" {
				return
			}
		}
	}
	if _, v1 := t.v1["memory"]; v1 {
		least(&memory, "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
	} else {
		least(&memory, "memory", "memory.max", "memory.current", "inactive_file")
	}
	least(&pids, "pids", "pids.max", "pids.current", "")
	return memory, pids
}
