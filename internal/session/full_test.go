package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestRealFullPlaces: a program that fails for want of room has that as its reason,
// with the place and the limit.
func TestRealFullPlaces(t *testing.T) {
	m := openReal(t, newRealHouse(t))
	set := *m.settings.Load()
	set.Policy = rules(t, "[permission]\nexternal_directory = \"allow\"\ndoom_loop = \"allow\"\n")
	set.Approvals.None = true // a question is a failure here
	m.Reload(set)
	s, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ command, reason, full, says string }{
		{"head -c 32M /dev/zero > /tmp/x", "disk", "/tmp", "no space left in /tmp (16MiB, limits.tmp, which --limit tmp= sets); remove files"},
		{"echo other; exit 3", "exit", "", "exit code 3\n[/tmp is full (16MiB, limits.tmp, which --limit tmp= sets)]"},
		{"true", "exit", "", ""},
		{"rm /tmp/x; cp /dev/zero ~/x", "disk", "/home/tool", "32MiB, limits.disk, which --limit disk= sets"},
		{`rm ~/x; python3 -c 'open("/dev/shm/x", "wb").write(bytes(8 << 20))'`, "disk", "/dev/shm", "4MiB, a quarter of limits.tmp"},
		{`python3 -c 'import os; os.remove("/dev/shm/x")'; cp /dev/zero x`, "disk", "/workspace", "16MiB, limits.tmp"},
		{"rm x; for i in $(seq 9999); do : > /tmp/f$i || exit 4; done", "disk", "/tmp", "exit code 4: no space left in /tmp"},
		{"rm /tmp/f*; cp /dev/zero /tmp/x; rm /tmp/x; exit 5", "disk", "/tmp", "exit code 5: no space left in /tmp"}, // full while it ran
		{"echo 'char big[20 << 20] = {1};' >/dev/shm/big.c; gcc -c /dev/shm/big.c -o ~/1.o && gcc -c /dev/shm/big.c -o ~/2.o", "disk", "/home/tool", "32MiB, limits.disk"},
		{"gcc -c /dev/shm/big.c -o /tmp/big.o", "disk", "/tmp", "16MiB, limits.tmp"},
		{"echo it said no space left on device; exit 6", "exit", "", "exit code 6"},
		{`python3 -c 'import mmap; f = open("/dev/shm/m", "w+b"); f.truncate(64 << 20); m = mmap.mmap(f.fileno(), 0); m[:] = bytes(64 << 20)'`, "disk", "/dev/shm", "killed by SIGBUS: no space left in /dev/shm"},
	} {
		c := realCall(t, m, s.ID, "bash", object{"command": tt.command})
		full := ""
		if f, ok := c.Metadata["full"]; ok {
			full = fmt.Sprint(f)
		}
		if c.Error != nil || c.Metadata["reason"] != tt.reason || full != tt.full || !strings.Contains(c.Output, tt.says) {
			t.Errorf("%s: reason %v, full %q, output %q, error %v", tt.command, c.Metadata["reason"], full, c.Output, c.Error)
		}
	}
	realCall(t, m, s.ID, "bash", object{"command": "cp /dev/zero /tmp/x; true"})
	c := realCall(t, m, s.ID, "write", object{"file_path": "/tmp/y", "content": strings.Repeat("x", 1<<20)})
	if !c.IsError || !strings.Contains(c.Output, "limits.tmp") {
		t.Errorf("write: %q, error %v", c.Output, c.Error)
	}
}
