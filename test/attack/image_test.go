package attack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

// scriptPrograms are those of a small image.
var scriptPrograms = []string{"bash", "cat", "dd", "find", "head", "id", "ls", "mkdir", "rm", "seq", "stat", "touch", "true"}

// smallImage is an archive of a root filesystem with scriptPrograms, and what more
// adds: links take the place of what it has.
func smallImage(t *testing.T, more ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	hidden := map[string]bool{}
	for _, h := range more {
		hidden[h.Name] = true
	}
	for _, d := range []string{"etc", "usr", "usr/bin", "usr/lib", "usr/lib64", "srv"} {
		if !hidden[d] {
			must(t, w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o755}))
		}
	}
	must(t, w.WriteHeader(&tar.Header{Name: "srv/open/", Typeflag: tar.TypeDir, Mode: 0o777}))
	for _, l := range []string{"bin", "lib", "lib64"} {
		must(t, w.WriteHeader(&tar.Header{Name: l, Linkname: "usr/" + l, Typeflag: tar.TypeSymlink, Mode: 0o777}))
	}
	files := map[string]string{}
	for _, name := range scriptPrograms {
		path, err := exec.LookPath(name)
		must(t, err)
		files["usr/bin/"+name] = path
		out, _ := exec.Command("ldd", path).Output() // fails for what is static
		for word := range strings.FieldsSeq(string(out)) {
			if lib, ok := strings.CutPrefix(word, "/"); ok {
				files["usr/"+strings.TrimPrefix(lib, "usr/")] = word
			}
		}
	}
	for name, path := range files {
		must(t, sandboxtest.AddFile(w, name, path))
	}
	for _, h := range more {
		must(t, w.WriteHeader(&h))
	}
	must(t, w.Close())
	return b.Bytes()
}

// imageRig is a rig that has an image.
func imageRig(t *testing.T, lines string, archive []byte) *rig {
	t.Helper()
	r := newRig(t, nil, "")
	for line := range strings.Lines(lines) {
		appendConfig(t, r, "[sandbox]", strings.TrimSpace(line))
	}
	if lines != "" {
		r.stop(t)
		r.start(t)
	}
	_, err := r.admin.ImportImage(t.Context(), "attack:1", bytes.NewReader(archive))
	must(t, err)
	return r
}

// inode is a file, whatever its names are.
type inode struct{ dev, ino uint64 }

// executables are the inodes of all programs and libraries in a directory of the
// host or, by /proc/PID/root, of a sandbox, with one name of each.
func executables(dirs ...string) map[inode]string {
	found := map[inode]string{}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // what cannot be seen is not visible
			}
			if d.IsDir() && (strings.HasSuffix(path, "/root/proc") || strings.HasSuffix(path, "/root/sys") || strings.HasSuffix(path, "/workspace")) {
				return fs.SkipDir
			}
			var st unix.Stat_t
			if d.Type().IsRegular() && unix.Lstat(path, &st) == nil && (st.Mode&0o111 != 0 || strings.Contains(d.Name(), ".so")) {
				found[inode{st.Dev, st.Ino}] = path
			}
			return nil
		})
	}
	return found
}

// K19: what a sandbox sees is what the host executes. With require_image no
// program, library or agent that a session can see is a file that the host runs.
func TestK19Executables(t *testing.T) {
	r := imageRig(t, "require_image = true", smallImage(t))
	host := executables("/usr", "/bin", "/sbin", "/lib", "/opt", filepath.Dir(bin.toold))
	if bin.runtime != "" {
		var st unix.Stat_t
		must(t, unix.Stat(bin.runtime, &st))
		host[inode{st.Dev, st.Ino}] = bin.runtime
	}
	if _, err := r.a.CreateSession(t.Context(), client.SessionCreate{}); err == nil || !strings.Contains(err.Error(), "require_image") {
		t.Errorf("a session without an image: %v", err)
	}
	s := r.session(t, r.a, client.SessionCreate{Image: "attack:1"})
	if out := bash(t, r.a, s.ID, "id -u; cat /etc/passwd").Output; !strings.HasPrefix(out, "1000\n") || !strings.Contains(out, "tool:x:1000") {
		t.Errorf("the session with an image: %q", out)
	}
	// By the sandbox's own root, which says for an overlay what is mounted over it,
	// and by what the overlay's layers are: the image that the daemon keeps, the
	// skeleton and the agent's copy.
	inside := executables(rootOf(t, s), filepath.Join(r.dir, "state", "images"), filepath.Join(r.dir, "state", "oci"), filepath.Join(r.dir, "run-sandboxes"))
	if len(inside) < len(scriptPrograms) {
		t.Errorf("only %d programs are to be seen inside: the walk saw nothing", len(inside))
	}
	for id, name := range inside {
		holds(t, "executable", host[id] == "", "%s is the host's %s", name, host[id])
	}

	// Control: with the host's own root filesystem they are the same files.
	c := newRig(t, nil, "")
	x := c.session(t, c.a, client.SessionCreate{})
	same := 0
	for id := range executables(filepath.Join(rootOf(t, x), "usr/bin")) {
		if host[id] != "" {
			same++
		}
	}
	holds(t, "control", same > 0, "with rootfs = host there is no file in common")
}

// rootOf is the root directory of a session's sandbox as the host sees it.
func rootOf(t *testing.T, s *client.Session) string {
	t.Helper()
	pid, ok := agentPID(s.ID)
	if !ok {
		t.Fatal("no agent")
	}
	return fmt.Sprintf("/proc/%d/root", pid)
}

// K10: an image whose /dev, /proc, /etc, /run and mount points are links to
// directories of the host, to itself, or to core_pattern. Nothing is mounted or
// written behind them.
func TestK10ImageLinks(t *testing.T) {
	outside := t.TempDir()
	must(t, os.Chmod(outside, 0o777))
	var links []tar.Header
	for name, to := range map[string]string{
		"dev": "/proc/sys/kernel", "proc": outside, "sys": "/", "run": "/run", "tmp": outside, "home": outside,
		"workspace": outside, "work": "/../../.." + outside, "etc": "/proc/self", "var": "var",
	} {
		links = append(links, tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink, Mode: 0o777})
	}
	r := imageRig(t, "", smallImage(t, links...))
	pattern, passwd := read("/proc/sys/kernel/core_pattern"), read("/etc/passwd")
	n := 20
	if testing.Short() {
		n = 3
	}
	for range n {
		s := r.session(t, r.a, client.SessionCreate{Image: "attack:1", Worktree: client.Worktree{Source: r.tree(t), Target: "/work/deep"}})
		out := bash(t, r.a, s.ID, "id -un; stat -c %F /dev /proc /etc /run /tmp /work/deep; cat /dev/null; echo x >/work/deep/mark && ls /work/deep").Output
		holds(t, "places", strings.HasPrefix(out, "tool\n"+strings.Repeat("directory\n", 6)) && strings.Contains(out, "\nmark\n"), "the session's own places are not there: %q", out)
		_, err := r.a.EndSession(t.Context(), s.ID, client.EndOptions{Force: true})
		must(t, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside of the image there are %v %v", entries, err)
	}
	if got := read("/proc/sys/kernel/core_pattern"); got != pattern {
		_ = os.WriteFile("/proc/sys/kernel/core_pattern", []byte(pattern), 0)
		t.Errorf("core_pattern was %q, is %q", pattern, got)
	}
	if read("/etc/passwd") != passwd {
		t.Error("/etc/passwd changed")
	}
}

// E5: the writable layer of an image is filled, with bytes and with files. It is
// full for that session alone, and works again when there is room.
func TestE5ImageDisk(t *testing.T) {
	r := imageRig(t, "", smallImage(t))
	create := client.SessionCreate{Image: "attack:1", Profile: "wall", Limits: client.Limits{Disk: 32 << 20}}
	s, neighbour := r.session(t, r.a, create), r.session(t, r.b, create)
	out := bash(t, r.a, s.ID, "cd /srv/open; for i in $(seq 100); do dd if=/dev/zero of=big$i bs=1M count=10 2>&1 || break; done; stat -c %s big1").Output
	holds(t, "bytes", strings.Contains(out, "No space left on device"), "filling it: %q", out)
	if got := bash(t, r.b, neighbour.ID, "cd /srv/open; dd if=/dev/zero of=mine bs=1M count=8 2>/dev/null; stat -c %s mine; ls").Output; got != "8388608\nmine\n" {
		t.Errorf("the neighbour: %q", got)
	}
	// The host, on which others write too, loses no more than the file system has.
	var blocks, size int64
	out = bash(t, r.a, s.ID, "stat -f -c '%b %S' /srv/open").Output
	if _, err := fmt.Sscan(out, &blocks, &size); err != nil || blocks*size > 64<<20 {
		t.Errorf("it is written to a file system with %d blocks of %d bytes: %q %v", blocks, size, out, err)
	}
	if got := bash(t, r.a, s.ID, "cd /srv/open; rm -f big*; echo fine >small; cat small").Output; got != "fine\n" {
		t.Errorf("with room again: %q", got)
	}
	out = bash(t, r.a, s.ID, "cd /srv/open; mkdir many; cd many; n=0; while echo >f$n; do n=$((n+1)); done 2>/dev/null; echo $n; rm -rf ../many; echo again >../again && cat ../again").Output
	made, rest, _ := strings.Cut(out, "\n")
	files, err := strconv.Atoi(made)
	holds(t, "inodes", err == nil && files > 100 && files <= 32<<20/(8<<10), "%d files were made: %q", files, out)
	if rest != "again\n" {
		t.Errorf("with room again: %q", rest)
	}
	// Control: the same of the neighbour's works, so that it is not the host that is full.
	if got := bash(t, r.b, neighbour.ID, "cd /srv/open; mkdir d; for i in $(seq 200); do echo >d/$i; done; ls d | while read -r f; do echo $f; done | tail -n 1 2>/dev/null || true; echo done").Output; !strings.HasSuffix(got, "done\n") {
		t.Errorf("control: %q", got)
	}
}
