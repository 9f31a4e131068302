package oci_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Programs that size themselves take the session's limits for the machine's. Each runs
// as it is: no variable tells it.
func TestSizesOfPrograms(t *testing.T) {
	f := newFixture(t)
	spec := f.Spec()
	spec.Limits.Memory, spec.Limits.Tmp, spec.Limits.PIDs, spec.Limits.CPUs = 1<<30, 64<<20, 256, 1
	l := f.create(spec)
	const memory = 1 << 30
	for _, p := range []struct {
		program, script string
		least, most     int64
	}{
		{"getconf", "getconf _NPROCESSORS_ONLN", 1, 1},
		{"nproc", "nproc", 1, 1},
		{"python3", "/usr/bin/python3 -c 'import os; print(os.cpu_count())'", 1, 1},
		{"node", "node -p 'process.constrainedMemory()'", memory, memory},
		{"node", "node -p 'v8.getHeapStatistics().heap_size_limit'", memory / 8, memory},
		{"node", "node -p 'os.availableParallelism()'", 1, 1},
		{"java", "java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '$2 == \"MaxHeapSize\" { print $4 }'", memory / 8, memory / 2},
		{"java", "java -Xlog:os+container=info -version 2>&1 | grep -c 'not found' || true", 0, 0},
	} {
		if err := exec.Command("/bin/sh", "-c", "PATH=/usr/bin:/bin command -v "+p.program).Run(); err != nil {
			t.Logf("%s: not on this host", p.program)
			continue
		}
		out := strings.TrimSpace(l.out("cd /tmp && " + p.script))
		n, err := strconv.ParseInt(out, 10, 64)
		if err != nil || n < p.least || n > p.most {
			t.Errorf("%s: %s; want %d to %d", p.script, out, p.least, p.most)
		}
	}
	if out := l.out("grep cgroup /proc/self/mountinfo"); strings.Contains(out, f.cfg.CgroupParent) || strings.Contains(out, spec.SessionID) {
		t.Errorf("names of the host are seen:\n%s", out)
	}
}
