package hardening

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/toold/toold/client"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// one is the check of that name on a host that has nothing but these files.
func one(t *testing.T, name string, files fstest.MapFS) client.Check {
	t.Helper()
	for _, c := range Checks(files, client.Limits{PIDs: 512, OpenFiles: 4096}) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no check %s", name)
	return client.Check{}
}

func TestSettings(t *testing.T) {
	for _, tc := range []struct {
		key, text string
		want      client.CheckStatus
		hint      string
	}{
		{"vm.panic_on_oom", "0", client.CheckOK, ""},
		{"vm.panic_on_oom", "1", client.CheckWarn, "set the sysctl vm.panic_on_oom to 0"},
		{"vm.panic_on_oom", "2", client.CheckFail, "set the sysctl vm.panic_on_oom to 0"},
		{"kernel.panic_on_warn", "1", client.CheckWarn, "set the sysctl kernel.panic_on_warn to 0"},
		{"kernel.randomize_va_space", "2", client.CheckOK, ""},
		{"kernel.randomize_va_space", "1", client.CheckWarn, "set the sysctl kernel.randomize_va_space to 2"},
		{"kernel.kptr_restrict", "0", client.CheckWarn, "set the sysctl kernel.kptr_restrict to 1"},
		{"kernel.kptr_restrict", "1", client.CheckOK, ""},
		{"kernel.kptr_restrict", "2", client.CheckOK, ""},
		{"kernel.perf_event_paranoid", "-1", client.CheckWarn, "set the sysctl kernel.perf_event_paranoid to 2"},
		{"kernel.perf_event_paranoid", "4", client.CheckOK, ""},
		{"kernel.yama.ptrace_scope", "0", client.CheckWarn, "set the sysctl kernel.yama.ptrace_scope to 1"},
		{"vm.mmap_min_addr", "65536", client.CheckOK, ""},
		{"fs.suid_dumpable", "what", client.CheckFail, "set the sysctl fs.suid_dumpable to 0"},
	} {
		c := one(t, tc.key, fstest.MapFS{"proc/sys/" + strings.ReplaceAll(tc.key, ".", "/"): file(tc.text + "\n")})
		if c.Status != tc.want || c.Hint != tc.hint || !strings.HasPrefix(c.Detail, tc.text) || c.Group != "hardening" {
			t.Errorf("%s = %s: %+v, want %s, hint %q", tc.key, tc.text, c, tc.want, tc.hint)
		}
		if (c.Status == client.CheckOK) != (c.Detail == tc.text) {
			t.Errorf("%s = %s: says %q", tc.key, tc.text, c.Detail)
		}
	}
}

func TestNothingToRead(t *testing.T) {
	for _, c := range Checks(fstest.MapFS{}, client.Limits{PIDs: 512, OpenFiles: 4096}) {
		if c.Status != client.CheckNA || c.Detail == "" || c.Hint != "" {
			t.Errorf("%s: %+v", c.Name, c)
		}
	}
}

func TestCorePattern(t *testing.T) {
	const path = "proc/sys/kernel/core_pattern"
	if c := one(t, "kernel.core_pattern", fstest.MapFS{path: file("core\n")}); c.Status != client.CheckOK || c.Detail != "core" {
		t.Errorf("a file: %+v", c)
	}
	program := fstest.MapFS{path: file("|/usr/lib/systemd/systemd-coredump %P %u\n")}
	if c := corePattern(program, 1); c.Status != client.CheckOK || c.Hint != "" {
		t.Errorf("a program that is not started: %+v", c)
	}
	c := corePattern(program, 0)
	if c.Status != client.CheckWarn || !strings.Contains(c.Detail, "starts /usr/lib/systemd/systemd-coredump on the host") || c.Hint == "" {
		t.Errorf("a program: %+v", c)
	}
}

func TestFileTable(t *testing.T) {
	const path = "proc/sys/fs/file-max"
	if c := one(t, "fs.file-max", fstest.MapFS{path: file("9223372036854775807\n")}); c.Status != client.CheckOK {
		t.Errorf("no bound: %+v", c)
	}
	if c := one(t, "fs.file-max", fstest.MapFS{path: file("8388608\n")}); c.Status != client.CheckOK {
		t.Errorf("room for four: %+v", c)
	}
	c := one(t, "fs.file-max", fstest.MapFS{path: file("2466193\n")})
	if c.Status != client.CheckWarn || !strings.Contains(c.Detail, "2097152 files") || !strings.Contains(c.Detail, "2 such sessions") ||
		!strings.Contains(c.Hint, "fs.file-max to 8388608") {
		t.Errorf("room for one: %+v", c)
	}
}

func TestVulnerabilities(t *testing.T) {
	const dir = "sys/devices/system/cpu/vulnerabilities/"
	files := fstest.MapFS{
		dir + "l1tf":       file("Not affected\n"),
		dir + "spectre_v1": file("Mitigation: usercopy/swapgs barriers\n"),
	}
	if c := one(t, "cpu mitigations", files); c.Status != client.CheckOK {
		t.Errorf("nothing open: %+v", c)
	}
	files[dir+"spectre_v2"] = file("Mitigation: Enhanced IBRS; BHI: Vulnerable\n")
	files[dir+"mds"] = file("Mitigation: Clear CPU buffers; SMT vulnerable\n")
	files[dir+"retbleed"] = file("Vulnerable\n")
	if c := one(t, "cpu mitigations", files); c.Status != client.CheckWarn || c.Detail != "open: mds, retbleed, spectre_v2" || c.Hint == "" {
		t.Errorf("three open: %+v", c)
	}
}

func TestSwap(t *testing.T) {
	const head = "Filename Type Size Used Priority\n"
	for _, tc := range []struct {
		name, swaps string
		want        client.CheckStatus
		detail      string
	}{
		{"none", head, client.CheckOK, "there is none"},
		{"memory", head + "/dev/zram0 partition 1 0 -2\n", client.CheckOK, "/dev/zram0: in memory or encrypted"},
		{"crypt", head + "/dev/dm-1 partition 1 0 -2\n", client.CheckOK, "/dev/dm-1: in memory or encrypted"},
		{"volume", head + "/dev/dm-2 partition 1 0 -2\n", client.CheckWarn, "/dev/dm-2: memory of sessions is written to a disk as it is"},
		{"file beside", head + "/dev/dm-1 partition 1 0 -2\n/swapfile file 1 0 -2\n", client.CheckWarn, "/swapfile: memory of sessions is written to a disk as it is"},
	} {
		c := one(t, "swap", fstest.MapFS{
			"proc/swaps":             file(tc.swaps),
			"sys/block/dm-1/dm/uuid": file("CRYPT-PLAIN-swap\n"),
			"sys/block/dm-2/dm/uuid": file("LVM-abc\n"),
		})
		if c.Status != tc.want || c.Detail != tc.detail {
			t.Errorf("%s: %+v, want %s %q", tc.name, c, tc.want, tc.detail)
		}
	}
}

// TestHere reads the host that the tests run on: whatever it is like, each check
// says what it saw, and each warning what to do.
func TestHere(t *testing.T) {
	for _, c := range Checks(os.DirFS("/"), client.Limits{PIDs: 512, OpenFiles: 4096}) {
		if c.Detail == "" || (c.Status == client.CheckWarn) != (c.Hint != "") && c.Status != client.CheckFail {
			t.Errorf("%+v", c)
		}
	}
}

// TestDocumented keeps the list of the documentation the one that is checked.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if !strings.Contains(string(text), fmt.Sprintf("%s = %d", s.key, s.want)) {
			t.Errorf("docs/operations.md does not have %s = %d", s.key, s.want)
		}
	}
}

func TestWatchLimits(t *testing.T) {
	const dir = "proc/sys/fs/inotify/max_user_"
	for _, tt := range []struct {
		instances, watches string
		want               client.CheckStatus
		hint               string
	}{
		{"128", "65536", client.CheckWarn, "set the sysctls fs.inotify.max_user_instances to 512 and fs.inotify.max_user_watches to 65536, or more"},
		{"1024", "8192", client.CheckWarn, "set the sysctls fs.inotify.max_user_instances to 1024 and fs.inotify.max_user_watches to 65536, or more"},
		{"1024", "524288", client.CheckOK, ""},
	} {
		c := one(t, "fs.inotify", fstest.MapFS{dir + "instances": file(tt.instances + "\n"), dir + "watches": file(tt.watches + "\n")})
		if c.Status != tt.want || c.Hint != tt.hint {
			t.Errorf("%s, %s: %+v", tt.instances, tt.watches, c)
		}
	}
}
