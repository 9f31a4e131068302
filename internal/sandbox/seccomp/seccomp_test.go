package seccomp

import (
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The filter as it is given to the runtime: no rule lets a refused call pass,
// and ioctl's cover all requests but two.
func TestProfile(t *testing.T) {
	p, err := Profile()
	if err != nil {
		t.Fatal(err)
	}
	if p.DefaultAction != specs.ActErrno || len(p.Architectures) != 1 {
		t.Errorf("default %s, architectures %v", p.DefaultAction, p.Architectures)
	}
	allowed := map[string][]specs.LinuxSyscall{}
	for _, r := range p.Syscalls {
		if slices.Equal(r.Names, []string{"io_setup"}) && r.Action == specs.ActErrno && *r.ErrnoRet == uint(unix.ENOSYS) {
			continue
		}
		if r.Action != specs.ActAllow {
			t.Errorf("rule with action %s", r.Action)
		}
		for _, n := range r.Names {
			allowed[n] = append(allowed[n], r)
		}
	}
	for _, name := range []string{"mount", "bpf", "unshare", "setns", "keyctl", "io_uring_setup", "userfaultfd", "socketcall", "io_setup", "ptrace_of_old"} {
		if len(allowed[name]) > 0 {
			t.Errorf("%s is allowed", name)
		}
	}
	for _, name := range []string{"read", "execve", "clone3", "openat2", "ptrace"} {
		if len(allowed[name]) == 0 {
			t.Errorf("%s is not allowed", name)
		}
	}
	passes := func(name string, args ...uint64) bool {
		return slices.ContainsFunc(allowed[name], func(r specs.LinuxSyscall) bool {
			return !slices.ContainsFunc(r.Args, func(a specs.LinuxSeccompArg) bool {
				return a.Op != specs.OpMaskedEqual || args[a.Index]&a.Value != a.ValueTwo
			})
		})
	}
	for request := range uint64(1 << 16) {
		want := request != unix.TIOCSTI && request != unix.TIOCLINUX
		if passes("ioctl", 0, request) != want || passes("ioctl", 0, request|1<<40) != want {
			t.Fatalf("ioctl %#x: allowed is not %v", request, want)
		}
	}
	for protocol := range uint64(64) {
		for _, high := range []uint64{0, 1 << 40} {
			want := protocol == unix.NETLINK_ROUTE
			if passes("socket", unix.AF_NETLINK|high, unix.SOCK_RAW, protocol|high) != want {
				t.Fatalf("netlink protocol %d: allowed is not %v", protocol, want)
			}
			if !passes("socket", unix.AF_INET6|high, unix.SOCK_STREAM, protocol|high) {
				t.Fatalf("protocol %d of another family is not allowed", protocol)
			}
		}
	}
	refused := []uint64{26, 44, 50, 51, 52, 37, 65}
	for option := range uint64(128) {
		for _, high := range []uint64{0, 1 << 40} {
			if want := !slices.Contains(refused, option); passes("setsockopt", 0, 1|high, option|high) != want {
				t.Fatalf("option %d of a socket: allowed is not %v", option, want)
			}
			for _, level := range []uint64{0, 6, 17, 41, 270, 0xffffffff} {
				if !passes("setsockopt", 0, level|high, option|high) {
					t.Fatalf("option %d of level %d is not allowed", option, level)
				}
			}
		}
	}
	for mode := range uint64(1 << 12) {
		want := mode&(unix.S_ISUID|unix.S_ISGID) == 0
		for name, args := range map[string][]uint64{
			"fchmod": {0, mode}, "fchmodat": {0, 0, mode}, "openat": {0, 0, unix.O_CREAT, mode}, "mknodat": {0, 0, unix.S_IFREG | mode},
		} {
			if passes(name, args...) != want {
				t.Fatalf("%s with mode %o: allowed is not %v", name, mode, want)
			}
		}
	}
}
