package worktree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMountsIn: what comes to be mounted below a directory is seen, whatever its name, and nothing else.
func TestMountsIn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount takes root")
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := new(Mounts)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	for i, name := range []string{"src", "a b", "new\nline", `back\slash`, "tab\t", "\xff"} {
		dir := filepath.Join(base, name)
		for _, sub := range []string{dir + "/in/deep", dir + "-x", fmt.Sprintf("%s/%d", base, i)} {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		before := m.In(f)
		if before != "\n" {
			t.Errorf("%q: %q", name, before)
		}
		mounted := func(what, at string, want bool) {
			t.Helper()
			if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
				t.Fatal(err)
			}
			unmount := func() { _ = unix.Unmount(at, unix.MNT_DETACH) }
			t.Cleanup(unmount)
			if got := MountedSince(before, m.In(f)); got != want {
				t.Errorf("%q, %s: %v, want %v", name, what, got, want)
			}
			if want && MountedSince(m.In(f), m.In(f)) {
				t.Errorf("%q, %s: it was not there before", name, what)
			}
			unmount()
			if MountedSince(before, m.In(f)) {
				t.Errorf("%q, %s: it is not there any more", name, what)
			}
		}
		mounted("below", dir+"/in", true)
		mounted("far below", dir+"/in/deep", true)
		mounted("beside", dir+"-x", false)
		mounted("elsewhere", fmt.Sprintf("%s/%d", base, i), false)
	}
}

// TestMountedSince: what cannot be known is not said, and what goes is none that came.
func TestMountedSince(t *testing.T) {
	for _, tt := range []struct {
		before, now string
		want        bool
	}{
		{"", "\n0:1 / /a\n", false},
		{"\n", "", false},
		{"\n0:1 / /a\n", "\n", false},
		{"\n0:1 / /a\n0:2 / /b\n", "\n0:2 / /b\n", false},
		{"\n0:1 / /a\n", "\n0:2 / /a\n", true},
		{"\n10:1 / /a\n", "\n0:1 / /a\n", true},
		{"\n0:1 / /ab\n", "\n0:1 / /a\n", true},
	} {
		if got := MountedSince(tt.before, tt.now); got != tt.want {
			t.Errorf("%q, %q: %v", tt.before, tt.now, got)
		}
	}
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, "1 2 0:1 / /src/%d rw - tmpfs tmpfs rw\n", i)
	}
	if got := mountedIn([]byte(many.String()), "/src"); got != "" {
		t.Errorf("%d bytes", len(got))
	}
}

// BenchmarkMountsIn is what a call pays.
func BenchmarkMountsIn(b *testing.B) {
	f, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	m := new(Mounts)
	defer m.Close()
	for b.Loop() {
		m.In(f)
	}
}
