package treediff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run/root"
)

// rig compares two directories.
type rig struct {
	root       *root.Root
	base, tree string
}

func newRig(t testing.TB, base, tree string) *rig {
	t.Helper()
	unix.Umask(0o022)
	r, err := root.New(root.Config{Dir: "/", UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return &rig{root: r, base: base, tree: tree}
}

// options opens the two directories, for one comparison.
func (r *rig) options(t testing.TB, f Format, paths ...string) Options {
	t.Helper()
	needs.OpenAt2(t)
	open := func(path string) *root.Dir {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		d, err := r.root.OpenDirFD(t.Context(), fd, path)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return Options{Root: r.root, Base: open(r.base), Tree: open(r.tree), Format: f, Paths: paths}
}

func (r *rig) write(t testing.TB, f Format, paths ...string) ([]byte, Totals) {
	t.Helper()
	return writeAll(t, r.options(t, f, paths...))
}

func writeAll(t testing.TB, o Options) ([]byte, Totals) {
	t.Helper()
	defer o.Base.Close()
	defer o.Tree.Close()
	var out bytes.Buffer
	totals, err := Write(context.Background(), o, &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), totals
}

// oddNames are parts of hostile names.
var oddNames = []string{
	"a", "b", "c", "a-", "a.", "a0", "a.txt", "A", " ", "x y", "\t", "\n", "\r", "\"", "\\", "'", "\xff", "\xfe\xff", "é", "日本", "\x01", "\x7f",
	"-", "--", "+++ b", "diff --git a", "..x", "...", "#", "*", "\u202e", "b", "a b",
}

func randomName(rnd *rand.Rand) string {
	if rnd.IntN(60) == 0 {
		return strings.Repeat(string(rune('a'+rnd.IntN(3))), 255)
	}
	name := oddNames[rnd.IntN(len(oddNames))]
	if rnd.IntN(3) == 0 {
		name += oddNames[rnd.IntN(len(oddNames))]
	}
	return name
}

func randomContent(rnd *rand.Rand) []byte {
	var b bytes.Buffer
	switch rnd.IntN(8) {
	case 0:
		return nil
	case 1:
		for range rnd.IntN(2000) {
			b.WriteByte(byte(rnd.IntN(256)))
		}
		return b.Bytes()
	case 2:
		return []byte{0}
	}
	lines := []string{"a\n", "b\n", "same\n", "same\n", "\n", "{\n", "-- x\n", "++ y\n", "\\ No\n", "\xff\n", "\r\n", " \n"}
	for range rnd.IntN(30) {
		b.WriteString(lines[rnd.IntN(len(lines))])
	}
	if rnd.IntN(3) == 0 {
		b.WriteString("end")
	}
	return b.Bytes()
}

var (
	fileModes = []fs.FileMode{0o644, 0o644, 0o755, 0o600, 0o444, 0o700, 0o664}
	dirModes  = []fs.FileMode{0o755, 0o755, 0o700, 0o775}
)

// fill makes some entries in a directory.
func fill(t testing.TB, rnd *rand.Rand, dir string, depth int) {
	t.Helper()
	for range rnd.IntN(7) {
		makeOne(t, rnd, filepath.Join(dir, randomName(rnd)), depth)
	}
}

func makeOne(t testing.TB, rnd *rand.Rand, path string, depth int) {
	t.Helper()
	if _, err := os.Lstat(path); err == nil {
		return
	}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	switch n := rnd.IntN(12); {
	case n < 4 && depth > 0:
		must(os.Mkdir(path, 0o755))
		fill(t, rnd, path, depth-1)
		must(os.Chmod(path, dirModes[rnd.IntN(len(dirModes))]))
	case n == 5:
		must(os.Symlink(randomName(rnd), path))
	case n == 6 && rnd.IntN(6) == 0:
		must(unix.Mkfifo(path, 0o644))
	default:
		must(os.WriteFile(path, randomContent(rnd), 0o600))
		must(os.Chmod(path, fileModes[rnd.IntN(len(fileModes))]))
	}
}

// tick waits for the next tick of the clock that change times are taken from: what is
// written after it differs from what was written before by that alone.
func tick(t testing.TB) {
	t.Helper()
	var from, now unix.Timespec
	for now == from {
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
			t.Fatal(err)
		}
		if from == (unix.Timespec{}) {
			from = now
		}
	}
}

// mutate changes some of what is in a directory.
func mutate(t testing.TB, rnd *rand.Rand, dir string) {
	t.Helper()
	tick(t)
	for range 1 + rnd.IntN(12) {
		all := paths(t, dir)
		if len(all) == 0 {
			fill(t, rnd, dir, 2)
			continue
		}
		mutateOne(t, rnd, dir, filepath.Join(dir, all[rnd.IntN(len(all))]))
	}
	if rnd.IntN(2) == 0 {
		fill(t, rnd, dir, 2)
	}
}

func mutateOne(t testing.TB, rnd *rand.Rand, dir, path string) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	switch rnd.IntN(8) {
	case 0:
		_ = os.RemoveAll(path)
	case 1:
		_ = os.RemoveAll(path)
		makeOne(t, rnd, path, 2)
	case 2:
		_ = os.Rename(path, filepath.Join(dir, randomName(rnd)))
	case 3:
		if info.Mode().IsRegular() {
			_ = os.Chmod(path, fileModes[rnd.IntN(len(fileModes))])
		} else if info.IsDir() {
			_ = os.Chmod(path, dirModes[rnd.IntN(len(dirModes))])
		}
	case 4: // as it was, with other times
		if info.Mode().IsRegular() {
			data, _ := os.ReadFile(path)
			_ = os.WriteFile(path, data, 0)
		}
	default:
		switch {
		case info.Mode().IsRegular():
			data, _ := os.ReadFile(path)
			if len(data) > 0 && rnd.IntN(2) == 0 {
				data[rnd.IntN(len(data))] ^= 1
			} else {
				data = append(data, randomContent(rnd)...)
			}
			_ = os.WriteFile(path, data, 0)
		case info.IsDir():
			fill(t, rnd, path, 1)
		}
	}
}

// paths are all paths below dir, relative, in the order of their bytes.
func paths(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	dir = dir + "/." // it may be a link
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			all = append(all, path[len(dir)-1:])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// seen is what one path is, for comparisons.
type seen struct {
	kind    Kind
	mode    uint32
	content string
}

// snapshot reads a whole tree.
func snapshot(t testing.TB, dir string) map[string]seen {
	t.Helper()
	all := make(map[string]seen)
	for _, p := range paths(t, dir) {
		info, err := os.Lstat(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		s := seen{kind: Other, mode: info.Sys().(*syscall.Stat_t).Mode & 0o7777}
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(filepath.Join(dir, p))
			if err != nil {
				t.Fatal(err)
			}
			s.kind, s.content = File, string(data)
		case info.IsDir():
			s.kind = Dir
		case info.Mode()&fs.ModeSymlink != 0:
			s.kind, s.mode = Link, 0
			s.content, _ = os.Readlink(filepath.Join(dir, p))
		}
		all[p] = s
	}
	return all
}

// sameTree fails where two snapshots differ.
func sameTree(t testing.TB, got, want map[string]seen) {
	t.Helper()
	for p, w := range want {
		if g, ok := got[p]; !ok || g != w {
			t.Errorf("%q is %.200v; want %.200v", p, fmt.Sprintf("%+v", g), fmt.Sprintf("%+v", w))
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%q is too much", p)
		}
	}
}

func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", "--", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

// eachTree calls f with random pairs of trees: copies, and overlays where they can be
// mounted. Both sides go through prepare.
func eachPrepared(t *testing.T, seed uint64, count int, prepare func(t testing.TB, dir string), f func(t *testing.T, rnd *rand.Rand, r *rig)) {
	t.Helper()
	count = testrig.Rounds(count)
	for _, kind := range []string{"copy", "overlay"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, "", "")
			for n := range count {
				rnd := rand.New(rand.NewPCG(seed, uint64(n)))
				r.base = t.TempDir()
				fill(t, rnd, r.base, 4)
				prepare(t, r.base)
				unmount := func() {}
				if kind == "overlay" {
					r.tree, unmount = overlay(t, r.base)
				} else {
					r.tree = t.TempDir()
					copyTree(t, r.base, r.tree)
				}
				mutate(t, rnd, r.tree)
				prepare(t, r.tree)
				f(t, rnd, r)
				unmount()
				if t.Failed() {
					t.Fatalf("tree %d of seed %d", n, seed)
				}
			}
		})
	}
}

func eachTree(t *testing.T, seed uint64, count int, f func(t *testing.T, rnd *rand.Rand, r *rig)) {
	t.Helper()
	eachPrepared(t, seed, count, func(testing.TB, string) {}, f)
}

// overlay mounts what sessions with an overlay work in, over base. The mount is attached
// nowhere; its path leads to it by a descriptor.
func overlay(t testing.TB, base string) (path string, unmount func()) {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "oci", "only root mounts an overlay")
	}
	disk := t.TempDir()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	must(os.Mkdir(disk+"/upper", 0o755))
	must(os.Mkdir(disk+"/work", 0o755))
	fsfd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.EPERM) {
		testrig.Skipf(t, "oci", "no overlay can be mounted here: %v", err)
	}
	must(err)
	defer unix.Close(fsfd)
	for _, o := range [][2]string{{"lowerdir", base}, {"upperdir", disk + "/upper"}, {"workdir", disk + "/work"}, {"redirect_dir", "on"}} {
		must(unix.FsconfigSetString(fsfd, o[0], o[1]))
	}
	must(unix.FsconfigCreate(fsfd))
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, 0)
	must(err)
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), func() { unix.Close(fd) }
}
