package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestLeft: the tightest of the cgroups above counts, that of a container included, on both versions.
func TestLeft(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	root := t.TempDir()
	v2 := &Tree{parent: "/service/toold", v2: root + "/v2", v2has: map[string]bool{"memory": true, "pids": true}}
	v1 := &Tree{parent: "/service/toold", v2: root + "/none", v1: map[string]string{"memory": root + "/memory", "pids": root + "/pids"}}
	write := func(files map[string]string) {
		t.Helper()
		for name, text := range files {
			p := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	is := func(when string, tree *Tree, memory, pids int64) {
		t.Helper()
		if m, p := tree.Left(); m != memory || p != pids {
			t.Errorf("%s: %d bytes and %d processes, want %d and %d", when, m, p, memory, pids)
		}
	}
	is("no controllers", new(Tree), math.MaxInt64, math.MaxInt64)
	write(map[string]string{
		"v2/service/toold/memory.max": "max", "v2/service/toold/pids.max": "max", "v2/service/toold/memory.current": "5",
		"memory/service/toold/memory.limit_in_bytes": "9223372036854771712", "pids/service/toold/pids.max": "max",
	})
	is("v2 without bounds", v2, math.MaxInt64, math.MaxInt64)
	is("v1 without bounds", v1, math.MaxInt64, math.MaxInt64)
	write(map[string]string{
		"v2/memory.max": "104857600", "v2/memory.current": "62914560", "v2/memory.stat": "anon 1\ninactive_file 10485760\nactive_file 5",
		"v2/service/memory.max": "209715200", "v2/service/memory.current": "1", "v2/service/pids.max": "100", "v2/service/pids.current": "40",
		"memory/memory.limit_in_bytes": "104857600", "memory/memory.usage_in_bytes": "62914560", "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 10485760",
		"pids/pids.max": "100", "pids/pids.current": "40",
	})
	is("v2", v2, 50*mib, 60)
	is("v1", v1, 50*mib, 60)
}
