package cgroup

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/thread"
)

// newTree makes a tree below a cgroup of its own, which goes with the test.
func newTree(t *testing.T) *Tree {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "oci", "cgroups are made by root only")
	}
	b := make([]byte, 4)
	rand.Read(b)
	tree, err := Open("/toold-cgroup-test-" + hex.EncodeToString(b))
	if err != nil {
		testrig.Skipf(t, "oci", "no cgroups here: %v", err)
	}
	t.Cleanup(func() {
		for _, mount := range append([]string{tree.v2}, tree.v1all...) {
			// A thread that has ended leaves its cgroups when the kernel gets to it.
			if err := removeCgroup(filepath.Join(mount, tree.parent), time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
		}
	})
	return tree
}

// What is started by a thread that has entered is born in the cgroups of the
// session, on all hierarchies, and under its limits.
func TestEnclose(t *testing.T) {
	tree := newTree(t)
	const id = "ses_enclosed"
	if err := tree.Claim(&sandbox.Record{ID: sandbox.ID{SessionID: id}}); err != nil {
		t.Fatal(err)
	}
	limits := client.Limits{Memory: 64 << 20, PIDs: 10, CPUs: 1}
	if err := tree.Check(limits); err != nil {
		t.Skip(err)
	}
	if err := tree.Enclose(id, limits, 16<<20); err != nil {
		t.Fatal(err)
	}
	dir, err := tree.OpenEnclosed(id)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	out, err := thread.Run(func() ([]byte, error) {
		if err := tree.Enter(id); err != nil {
			return nil, err
		}
		cmd := exec.Command("/bin/cat", "/proc/self/cgroup")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		return cmd.Output()
	})
	if err != nil {
		t.Fatal(err)
	}
	want := tree.Path(id) + "/tools"
	found := 0
	for line := range strings.Lines(string(out)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(controllers, ",") {
			if _, v1 := tree.v1limited()[name]; v1 || name == "" {
				found++
				if path != want {
					t.Errorf("%q: born in %s, want %s", name, path, want)
				}
			}
		}
	}
	if found == 0 {
		t.Errorf("no cgroups in %q", out)
	}
	for _, tt := range []struct {
		controller, v1, v2 string
		want               int64
	}{
		{"memory", "memory.limit_in_bytes", "memory.max", 64<<20 + 16<<20 + AgentMemory + kernelMemory},
		{"pids", "pids.max", "pids.max", 4*10 + AgentPIDs + kernelPIDs},
	} {
		if got := readInt(tree.File(id, "", tt.controller, tt.v1, tt.v2)); got != tt.want {
			t.Errorf("%s is %d, want %d", tt.v2, got, tt.want)
		}
	}
}
