package systemd

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
)

// stockVariable is the environment variable with the pattern of the tests that run in the virtual
// machines; without it none is booted, since they take all of this one for minutes.
const stockVariable = "TOOLD_TEST_STOCK"

// stockBound is how long one may run: without help of the processor it is ten times slower than
// this host, which other tests load.
const stockBound = 30 * time.Minute

// TestStockHost runs tests of this package on hosts as users have them: Debian's own kernels with
// their systemd, cgroup v2 alone, a state disk of 2 GiB, each in a virtual machine. Nothing of
// toold comes in but what `make install` puts into a host.
func TestStockHost(t *testing.T) {
	if os.Getenv(hereVariable) != "" {
		t.Skip("this is one")
	}
	pattern := os.Getenv(stockVariable)
	if pattern == "" {
		t.Skip("`make vm-test` boots virtual machines")
	}
	for _, suite := range []string{"bookworm", "trixie"} {
		t.Run(suite, func(t *testing.T) {
			if os.Geteuid() != 0 {
				testrig.Skipf(t, "vm", "its disk takes root to make")
			}
			if out, err := exec.Command(filepath.Join(repository, "scripts", "stock-host"), suite).CombinedOutput(); err != nil {
				testrig.Skipf(t, "vm", "there is no host of Debian %s: %s", suite, out)
			}
			v := &stockHost{dir: t.TempDir(), disk: filepath.Join(repository, "bin/stock-host", suite)}
			begin := time.Now()
			must(t, v.pack(installed(t), pattern))
			err := v.boot(t.Context())
			log, code := v.result()
			t.Logf("after %s: exit code %s\n%s", time.Since(begin).Round(time.Second), code, log)
			if err != nil || code != "0" || !strings.Contains(log, "\n--- PASS: ") || strings.Contains(log, "\n--- SKIP: ") {
				console, _ := os.ReadFile(filepath.Join(v.dir, "console"))
				text, _ := os.ReadFile(filepath.Join(v.dir, "text"))
				t.Errorf("the machine: %v, exit code %q\nconsole:\n%s\n%s", err, code, tail(console), tail(text))
			}
		})
	}
}

// tail is the end of what was printed.
func tail(b []byte) []byte { return b[max(0, len(b)-20_000):] }

// stockHost is a virtual machine that runs one job and ends.
type stockHost struct {
	dir  string // of its own: job and out, disks that hold an archive; state; text and console, what it prints
	disk string // the directory that scripts/stock-host has made
}

// job is what the machine runs. What its tests print comes out as they print it, too.
const job = `#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp LC_ALL=C.UTF-8 %s=1 TOOLD_TEST_REQUIRE=systemd
mkdir -p /job/out /var/lib/toold
udevadm wait --timeout=300 /dev/disk/by-id/virtio-state /dev/disk/by-id/virtio-out
mount /dev/disk/by-id/virtio-state /var/lib/toold
systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload
cd /src/test/systemd
./systemd.test -test.v -test.timeout %s -test.run '%s' 2>&1 | tee /job/out/log
echo ${PIPESTATUS[0]} >/job/out/code
dmesg >/job/out/dmesg
tar -cf /dev/disk/by-id/virtio-out -C /job/out .
`

// pack makes the disks: what is installed and the tests, room for the daemon's state, and for what
// comes out.
func (v *stockHost) pack(installed, pattern string) error {
	f, err := os.Create(filepath.Join(v.dir, "job"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(installed)); err != nil {
		return err
	}
	add := func(name string, mode int64, size int64, r io.Reader) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(w, r)
		return err
	}
	script := fmt.Sprintf(job, hereVariable, stockBound, pattern)
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	info, err := self.Stat()
	if err != nil {
		return err
	}
	err = errors.Join(add("job/run", 0o755, int64(len(script)), strings.NewReader(script)), add("src/test/systemd/systemd.test", 0o755, info.Size(), self))
	units, readErr := os.ReadDir(filepath.Join(repository, "deploy/systemd"))
	err = errors.Join(err, readErr)
	for _, u := range units {
		text, readErr := os.ReadFile(filepath.Join(repository, "deploy/systemd", u.Name()))
		err = errors.Join(err, readErr, add("src/deploy/systemd/"+u.Name(), 0o644, int64(len(text)), strings.NewReader(string(text))))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	for name, size := range map[string]int64{"state": 2 << 30, "out": 64 << 20} {
		if err := errors.Join(os.WriteFile(filepath.Join(v.dir, name), nil, 0o600), os.Truncate(filepath.Join(v.dir, name), size)); err != nil {
			return err
		}
	}
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-F", filepath.Join(v.dir, "state")).CombinedOutput(); err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, out)
	}
	return nil
}

// boot runs the machine to its end.
func (v *stockHost) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stockBound+5*time.Minute)
	defer cancel()
	program, env := "qemu-system-x86_64", os.Environ()
	// Nothing that systemd does once only, or for people; and it waits as long as it takes.
	line := "root=/dev/nvme0n1 rw console=ttyS0 panic=-1 net.ifnames=0 quiet systemd.condition-needs-update=no systemd.getty_auto=no" +
		" systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900"
	// -cpu max under emulation has all that it can do.
	args := []string{
		"-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max", "-M", "q35", "-m", "3072", "-smp", "2",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-serial", "file:" + filepath.Join(v.dir, "console"), "-serial", "file:" + filepath.Join(v.dir, "text"),
		"-kernel", filepath.Join(v.disk, "vmlinuz"), "-append", line,
		"-device", "virtio-rng-pci",
		// What the kernel needs of the root disk is built into it, and there is one of its kind: kernels
		// since 6.12 give names as they find disks.
		"-drive", "if=none,id=root,format=raw,snapshot=on,cache=unsafe,file=" + filepath.Join(v.disk, "disk"), "-device", "nvme,serial=root,drive=root",
	}
	for name, options := range map[string]string{"job": "readonly=on", "state": "cache=unsafe", "out": "cache=writeback"} {
		args = append(args, "-drive", fmt.Sprintf("if=none,id=%s,format=raw,file=%s,%s", name, filepath.Join(v.dir, name), options), "-device", fmt.Sprintf("virtio-blk-pci,serial=%s,drive=%[1]s", name))
	}
	if _, err := exec.LookPath(program); err != nil { // unpacked, not installed
		dir, err := filepath.Abs(filepath.Join(repository, "bin/stock-host/qemu"))
		if err != nil {
			return err
		}
		program = filepath.Join(dir, "usr/bin", program)
		lib := filepath.Join(dir, "usr/lib/x86_64-linux-gnu")
		env = append(env, "LD_LIBRARY_PATH="+lib+":"+filepath.Join(dir, "lib/x86_64-linux-gnu"), "QEMU_MODULE_DIR="+filepath.Join(lib, "qemu"))
		args = append(args, "-L", filepath.Join(dir, "usr/share/seabios"), "-L", filepath.Join(dir, "usr/share/qemu"))
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // it is this thread's end that the machine ends with
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("qemu: %w: %s", err, out)
	}
	return nil
}

// result is what the tests printed, and how they ended.
func (v *stockHost) result() (log, code string) {
	f, err := os.Open(filepath.Join(v.dir, "out"))
	if err != nil {
		return "", ""
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err != nil {
			return log, code
		}
		text, _ := io.ReadAll(r)
		switch filepath.Base(h.Name) {
		case "log":
			log = string(text)
		case "code":
			code = strings.TrimSpace(string(text))
		}
	}
}
