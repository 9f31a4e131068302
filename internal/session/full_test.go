package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// mapped is a program that writes to all pages of a file in memory; one that is unlinked leaves
// nothing that is full.
const mapped = `head -c 8M /dev/zero >/dev/shm/other; python3 -c '
import mmap, os, sys
def fill(path, unlink):
    f = open(path, "w+b")
    f.truncate(64 << 20)
    if unlink: os.remove(path)
    m = mmap.mmap(f.fileno(), 0)
    for i in range(0, 64 << 20, 1 << 20): m[i:i+(1<<20)] = bytes(1 << 20)
`

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
		{"rm ~/x; head -c 60M /dev/zero >/dev/shm/x; cp /dev/zero /dev/shm/y", "memory", "/dev/shm", "no space left in /dev/shm (64MiB, half of limits.memory, which --limit memory= sets); remove files"},
		{"rm /dev/shm/*; cp /dev/zero x", "disk", "/workspace", "16MiB, limits.tmp"},
		{"rm x; for i in $(seq 9999); do : > /tmp/f$i || exit 4; done", "disk", "/tmp", "exit code 4: no space left in /tmp"},
		{"rm /tmp/f*; cp /dev/zero /tmp/x; rm /tmp/x; exit 5", "disk", "/tmp", "exit code 5: no space left in /tmp"}, // full while it ran
		{"echo 'char big[20 << 20] = {1};' >/dev/shm/big.c; gcc -c /dev/shm/big.c -o ~/1.o && gcc -c /dev/shm/big.c -o ~/2.o", "disk", "/home/tool", "32MiB, limits.disk"},
		{"gcc -c /dev/shm/big.c -o /tmp/big.o", "disk", "/tmp", "16MiB, limits.tmp"},
		{"echo it said no space left on device; exit 6", "exit", "", "exit code 6"},
		// It is a part of the memory.
		{"rm /dev/shm/*; head -c 60M /dev/zero >/dev/shm/x; head -c 100M /dev/zero | tail -c 90M", "memory", "", "out of memory (limit 128MiB)"},
		// The exit code of a pipe is its last command's.
		{"rm -f /tmp/*; cp /dev/zero /tmp/x 2>&1 | cat", "exit", "", "[/tmp is full (16MiB, limits.tmp, which --limit tmp= sets)]"},
		{"rm /tmp/x; cp /dev/zero /tmp/x 2>&1 | cat; rm /tmp/x", "exit", "", "[the output says that no space was left in /tmp (16MiB, limits.tmp"},
		{"rm -f /tmp/* ~/*; true", "exit", "", ""},
		{mapped + `fill("/dev/shm/m", False)'`, "memory", "/dev/shm", "killed by SIGBUS: no space left in /dev/shm (64MiB, half of limits.memory, which --limit memory= sets)"},
		{"rm /dev/shm/*; " + mapped + `fill("/dev/shm/m", True)'`, "signal", "", "[SIGBUS comes where a file that is mapped to memory has no room, or has been cut: /dev/shm has 64MiB, half of limits.memory, which --limit memory= sets]"},
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

// TestRealTmpOnDisk: without limits.tmp, /tmp and an empty worktree are on the disk of the home
// directory, which bounds them together.
func TestRealTmpOnDisk(t *testing.T) {
	m := openReal(t, newRealHouse(t))
	set := *m.settings.Load()
	set.Limits.Tmp = 0
	m.Reload(set)
	s, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Limits.Tmp != 0 || len(s.Notes) > 0 && strings.Contains(strings.Join(s.Notes, "\n"), "/tmp") {
		t.Errorf("limits %+v, notes %q", s.Limits, s.Notes)
	}
	for _, tt := range []struct{ command, reason, full, says string }{
		{"stat -c %d /tmp ~ . | uniq | wc -l; stat -fc %T /tmp; stat -c '%a %u' /tmp", "exit", "", "1\next2/ext3\n1777 0\n"},
		{"head -c 24M /dev/zero >/tmp/x && echo fits", "exit", "", "fits"}, // more than an eighth of the memory
		{"cp /dev/zero /tmp/y", "disk", "/tmp", "no space left in /tmp (32MiB, limits.disk for /tmp and the home directory together, which --limit disk= sets)"},
		{"rm /tmp/?; cp /dev/zero ~/y", "disk", "/home/tool", "32MiB, limits.disk for /tmp and the home directory together"},
	} {
		c := realCall(t, m, s.ID, "bash", object{"command": tt.command})
		full, _ := c.Metadata["full"].(string)
		if c.Error != nil || c.Metadata["reason"] != tt.reason || full != tt.full || !strings.Contains(c.Output, tt.says) {
			t.Errorf("%s: reason %v, full %q, output %q, error %v", tt.command, c.Metadata["reason"], full, c.Output, c.Error)
		}
	}
	brief, err := m.Tools.Brief(t.Context(), alice, s.ID)
	if err != nil || !strings.Contains(brief, "32MiB in /workspace, /home/tool and /tmp together") || !strings.Contains(brief, "inotify instances") {
		t.Errorf("%s, %v", brief, err)
	}
}
