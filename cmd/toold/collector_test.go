package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCgroupLimit: the least limit counts of all cgroups that a process is in, of both versions,
// on the host and in a container, where the path is that of the host.
func TestCgroupLimit(t *testing.T) {
	t.Parallel()
	const none = int64(1) << 60
	for name, tt := range map[string]struct {
		of    string
		files map[string]string
		want  int64
	}{
		"no cgroups":       {"", nil, none},
		"no limit":         {"0::/a/b\n", map[string]string{"a/b/memory.max": "max\n"}, none},
		"version 2":        {"0::/a/b\n", map[string]string{"a/b/memory.max": "300\n", "a/memory.max": "max\n"}, 300},
		"one above":        {"0::/a/b\n", map[string]string{"a/b/memory.max": "300\n", "a/memory.max": "200\n"}, 200},
		"version 1":        {"4:memory:/a\n0::/\n", map[string]string{"memory/a/memory.limit_in_bytes": "200\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"}, 200},
		"version 1, mixed": {"4:memory,cpu:/a\n", map[string]string{"memory,cpu/a/memory.limit_in_bytes": "200\n"}, 200},
		"in a container":   {"0::/docker/x\n", map[string]string{"memory.max": "100\n"}, 100},
		"both":             {"4:memory:/\n0::/a\n", map[string]string{"unified/a/memory.max": "50\n"}, 50},
		"another one":      {"4:pids:/a\n", map[string]string{"pids/a/memory.limit_in_bytes": "1\n"}, none},
	} {
		dir := t.TempDir()
		of := filepath.Join(dir, "of")
		if tt.of != "" {
			if err := os.WriteFile(of, []byte(tt.of), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for path, text := range tt.files {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupLimit(of, dir); got != tt.want && (tt.want != none || got < none) {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if n := memoryLimit(); n < 16<<20 {
		t.Errorf("this process may have %d bytes", n)
	}
}
