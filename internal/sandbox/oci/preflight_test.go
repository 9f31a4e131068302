package oci

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

func TestMapped(t *testing.T) {
	for _, tt := range []struct {
		text string
		base uint32
		want bool
	}{
		{"         0          0 4294967295\n", 1879048192, true},
		{"         0       1000          1\n", 1879048192, false},
		{"0 1000 1\n1 100000 65536\n", 65536, false},
		{"0 1000 1\n1 100000 131072\n", 65536, true},
		{"0 0 131071\n", 65536, false},
		{"0 0 131072\n", 65536, true},
		{"no map\n", 65536, false},
		{"", 65536, false},
	} {
		if got := mapped(tt.text, tt.base); got != tt.want {
			t.Errorf("%q, %d: %v", tt.text, tt.base, got)
		}
	}
}

func TestByV1(t *testing.T) {
	hybrid := "12:devices:/user.slice\n4:cpu,cpuacct:/\n0::/user.slice/session\n"
	for controller, want := range map[string]bool{"devices": true, "cpuacct": true, "cpu": true, "memory": false} {
		if got := byV1(hybrid, controller); got != want {
			t.Errorf("%q: %v", controller, got)
		}
	}
	if byV1("0::/\n", "devices") || byV1("", "devices") {
		t.Error("v2 alone has devices on v1")
	}
}

// TestDeviceRules: who lacks the right is told which one it is, and where to give it.
func TestDeviceRules(t *testing.T) {
	ok := client.Check{Group: "host", Name: "device rules", Status: client.CheckOK, Detail: "can be set"}
	for _, err := range []error{nil, fmt.Errorf("bpf: %w", unix.EINVAL), fmt.Errorf("bpf: %w", unix.ENOSYS)} {
		if got := deviceRules(ok, err); got != ok {
			t.Errorf("%v: %+v", err, got)
		}
	}
	got := deviceRules(ok, fmt.Errorf("bpf: %w", unix.EPERM))
	if got.Status != client.CheckFail || !strings.Contains(got.Detail, unix.EPERM.Error()) || !strings.Contains(got.Hint, "CAP_NET_ADMIN") || !strings.Contains(got.Hint, "CapabilityBoundingSet=") {
		t.Errorf("without the right: %+v", got)
	}
}

// TestQueryDevices: the question is one that the kernel understands.
func TestQueryDevices(t *testing.T) {
	at, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(at) == 0 {
		t.Skipf("no cgroup v2 is mounted here (%v)", err)
	}
	dir, err := os.Open(at[0].Mountpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	err = queryDevices(dir)
	if os.Getuid() == 0 && err != nil || err != nil && !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := queryDevices(file); err == nil {
		t.Error("what is no cgroup has programs")
	}
}
