package oci_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

// imagePrograms are those of the host that an image of these tests has.
var imagePrograms = []string{"sh", "cat", "ls", "id", "stat", "rm", "mkdir", "dd", "chmod", "mv", "ln", "head"}

// newImage makes the directory of an image with a few of the host's programs.
func newImage(t testing.TB, f *fixture) (dir string, root *sandbox.Root) {
	t.Helper()
	dir = filepath.Join(filepath.Dir(f.cfg.StateDir), "image-"+sandboxtest.RandomHex(4))
	for _, d := range []string{"usr/bin", "usr/lib", "usr/lib64", "etc", "srv/app", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	copyPrograms(t, filepath.Join(dir, "usr"), imagePrograms)
	if err := os.Chmod(dir+"/var/tmp", 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/etc/passwd", "root:x:0:0:evil:/root:/bin/evil\nnode:x:1000:1000::/home/node:/bin/sh\ndaemon:x:1:1::/:/bin/false\nbroken\n")
	put(t, dir+"/etc/group", "root:x:0:\ndaemon:x:1:\nbig:x:70000:\n")
	put(t, dir+"/etc/os-release", "ID=test\n")
	put(t, dir+"/srv/app/own", "of uid 1000\n")
	put(t, dir+"/srv/app/daemon", "of uid 1\n")
	for name, uid := range map[string]int{"srv/app": 1000, "srv/app/own": 1000, "srv/app/daemon": 1} {
		if err := os.Chown(filepath.Join(dir, name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return dir, &sandbox.Root{Dir: pinned(t, dir), Digest: "sha256:" + strings.Repeat("0", 64)}
}

// copyPrograms copies programs of the host's /bin into that of a root filesystem, and
// what they and the programs of more load beside it.
func copyPrograms(t testing.TB, root string, names []string, more ...string) {
	t.Helper()
	var programs []string
	for _, name := range names {
		programs = append(programs, "/bin/"+name)
	}
	libs, err := exec.Command("sh", append([]string{"-c", `for p; do ldd $p; done | grep -o '/[^ ]*' | sort -u`, "sh"}, append(more, programs...)...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(strings.Fields(string(libs)), programs...) {
		to := "lib"
		if strings.Contains(file, "ld-linux") {
			to = "lib64"
		} else if filepath.Dir(file) == "/bin" {
			to = "bin"
		}
		if out, err := exec.Command("cp", "-L", file, filepath.Join(root, to)).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
}

func put(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func pinned(t testing.TB, dir string) *os.File {
	t.Helper()
	file, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// imageSpec is that of a small session with an image.
func (f *fixture) imageSpec(root *sandbox.Root) sandbox.Spec {
	s := f.Spec()
	s.Root, s.Limits.Disk = root, 32<<20
	return s
}

// Users of the image have their numbers, its files are as they were, and what a
// session writes is its own.
func TestImage(t *testing.T) {
	f := newFixture(t)
	dir, root := newImage(t, f)
	spec := f.imageSpec(root)
	a, b := f.create(spec), f.create(f.imageSpec(root))
	if err := a.Sandbox.(sandbox.Late).Furnish(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ script, want string }{
		{"cat /etc/os-release", "ID=test"},
		{"id -un", "tool"},
		{"stat -c %u:%g /srv/app/own /srv/app/daemon /usr/bin/cat /etc /etc/os-release /", "1000:1000\n1:1\n0:0\n0:0\n0:0\n0:0"},
		{"id -un 1 2>&1; id -un 0", "daemon\nroot"},
		{"cat /etc/group | head -n 4 | cat", "root:x:0:\ntty:x:5:\ntool:x:1000:\nnogroup:x:65534:"},
		{"echo changed >/srv/app/own; rm -f /srv/app/daemon; mkdir /srv/app/new; echo x >/var/tmp/x; cat /srv/app/own; ls /srv/app", "changed\nnew\nown"},
		{"(echo x >/etc/x) 2>/dev/null || echo no; (echo x >/usr/bin/x) 2>/dev/null || echo no", "no\nno"},
		{"ls /run /run/toold", "/run:\ntoold\n\n/run/toold:\nagent\ncontrol\njournal\noutput\nprivate\nripgrep\nsandbox\ntree"},
		{"echo x >/tmp/x && echo x >$HOME/x && echo x >/dev/shm/x && echo ok", "ok"},
	} {
		if got := a.out(c.script); got != c.want {
			t.Errorf("%s: %q, want %q", c.script, got, c.want)
		}
	}
	if got := b.out("cat /srv/app/own; ls /srv/app"); got != "of uid 1000\ndaemon\nown" {
		t.Errorf("the other session sees %q", got)
	}
	if got := readHost(t, dir+"/srv/app/own"); got != "of uid 1000" {
		t.Errorf("the image has become %q", got)
	}
	if got := a.out("cat /proc/self/mountinfo | head -n 1"); strings.Contains(got, f.cfg.RunDir) || strings.Contains(got, f.cfg.StateDir) {
		t.Errorf("mountinfo tells of the host: %s", got)
	}
	for _, l := range []*live{a, b} {
		if err := f.driver.Destroy(f.Ctx(), l.Record()); err != nil {
			t.Fatal(err)
		}
	}
	f.nothingLeft(spec)
	f.noLoops()
}

// noLoops checks that no loop device has a file of this driver. The thread that put
// the layers together may have its mounts for a moment longer.
func (f *fixture) noLoops() {
	f.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		loops := f.loops()
		if len(loops) == 0 {
			return
		}
		if time.Now().After(end) {
			f.Errorf("loop devices are left: %q", loops)
			return
		}
	}
}

// loops are the loop devices that have a file of this driver, as directories in /sys.
func (f *fixture) loops() (list []string) {
	f.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(data), f.cfg.StateDir) {
			list = append(list, filepath.Dir(filepath.Dir(file)))
		}
	}
	return list
}

// Whatever links an image has, nothing of the sandbox's own lands behind them.
func TestHostileImage(t *testing.T) {
	f := newFixture(t)
	dir, root := newImage(t, f)
	for link, to := range map[string]string{
		"dev": "/proc/sys/kernel", "proc": "/etc", "sys": "/", "run": "/run", "tmp": "/usr", "home": "/srv",
		"workspace": "/etc", "work": "/../../../../tmp",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(dir + "/etc"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self", dir+"/etc"); err != nil {
		t.Fatal(err)
	}
	pattern := readHost(t, "/proc/sys/kernel/core_pattern")
	spec := f.imageSpec(root)
	cache := t.TempDir()
	put(t, cache+"/file", "cached\n")
	spec.Mounts = []sandbox.Mount{{Source: pinned(t, cache), Target: "/work/deep/cache"}}
	l := f.create(spec)
	for _, c := range []struct{ script, want string }{
		{"id -un; ls /dev/null; ls /etc/passwd; cat /proc/self/comm", "tool\n/dev/null\n/etc/passwd\ncat"},
		{"cat /work/deep/cache/file", "cached"},
		{"stat -c %F /dev /proc /sys /run /tmp /home /workspace /work /etc", strings.TrimSpace(strings.Repeat("directory\n", 9))},
		{"echo x >/workspace/x && cat /workspace/x", "x"},
	} {
		if got := l.out(c.script); got != c.want {
			t.Errorf("%s: %q, want %q", c.script, got, c.want)
		}
	}
	if got := readHost(t, "/proc/sys/kernel/core_pattern"); got != pattern {
		t.Errorf("the host's core pattern has become %q", got)
	}
}

// What a session writes is bounded in bytes and in inodes; a full one works again
// when it has made room, and no other notices.
func TestImageDisk(t *testing.T) {
	f := newFixture(t)
	_, root := newImage(t, f)
	a, b := f.create(f.imageSpec(root)), f.create(f.imageSpec(root))
	// What is written to a device can only make its file as large as the device is.
	loops := f.loops()
	if len(loops) == 0 {
		t.Error("nothing is on a loop device")
	}
	for _, loop := range loops {
		if got := readHost(t, loop+"/size"); got != itoa(32<<20/512) {
			t.Errorf("%s has %s sectors", loop, got)
		}
	}
	r := a.sh("dd if=/dev/zero of=/var/tmp/big bs=1M 2>&1; stat -c %s /var/tmp/big")
	if !strings.Contains(r.Output, "No space left") {
		t.Errorf("filling: %s", r.Output)
	}
	if got := b.out("dd if=/dev/zero of=/var/tmp/some bs=1M count=8 2>/dev/null; stat -c %s /var/tmp/some"); got != "8388608" {
		t.Errorf("the neighbour wrote %s", got)
	}
	if u, err := a.Usage(f.Ctx()); err != nil || u.DiskBytes < 20<<20 || u.DiskBytes > 32<<20 {
		t.Errorf("usage is %+v, %v", u, err)
	}
	if got := a.out("rm /var/tmp/big; echo fine >/var/tmp/small; cat /var/tmp/small"); got != "fine" {
		t.Errorf("afterwards: %q", got)
	}
	r = a.sh(`cd /var/tmp; n=0; while echo >f$n; do n=$((n+1)); done 2>&1; echo; echo $n`)
	var made int
	lines := strings.Fields(r.Output)
	if _, err := fmt.Sscan(lines[len(lines)-1], &made); err != nil || made < 1000 || made > 32<<20/(8<<10) {
		t.Errorf("%d files: %s", made, r.Output)
	}
	if got := a.out("cd /var/tmp; rm -f f*; mkdir again; ls"); !strings.Contains(got, "again") {
		t.Errorf("afterwards: %q", got)
	}
	if got := b.out("mkdir /var/tmp/d; ls /var/tmp"); got != "d\nsome" {
		t.Errorf("the neighbour: %q", got)
	}
}

func TestImageRefused(t *testing.T) {
	f := newFixture(t)
	_, root := newImage(t, f)
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		want   string
	}{
		"no bound":     {func(s *sandbox.Spec) { s.Limits.Disk = 0 }, "limits.disk"},
		"small bound":  {func(s *sandbox.Spec) { s.Limits.Disk = 1 << 20 }, "at least"},
		"a name":       {func(s *sandbox.Spec) { s.Image = "debian:12" }, "as directories"},
		"our place":    {func(s *sandbox.Spec) { s.Worktree.Target = "/etc/x" }, "mount_target_not_plain"},
		"above ours":   {func(s *sandbox.Spec) { s.Worktree.Target = "/home" }, "mount_target_not_plain"},
		"no directory": {func(s *sandbox.Spec) { s.Root = &sandbox.Root{Dir: pinned(t, "/proc")} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := f.imageSpec(root)
			spec.Limits.Memory = client.Size(256 << 20)
			c.change(&spec)
			sb, err := f.driver.Create(f.Ctx(), spec)
			if err == nil {
				sb.Close()
				t.Fatal("it was made")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v", err)
			}
			// Who asked is told, and not that the host is broken.
			if c.want == "at least" && !errors.Is(err, sandbox.ErrUnsupported) {
				t.Errorf("%v is no refusal", err)
			}
			f.nothingLeft(spec)
		})
	}
	f.noLoops()
}
