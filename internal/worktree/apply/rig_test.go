package apply

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/treediff"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustRun(t testing.TB, dir string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
}

// owner is whose the trees of tests are: another user than root's, where that can be.
func owner() thread.User {
	if os.Geteuid() == 0 {
		return thread.User{UID: 54321, GID: 54321}
	}
	return thread.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
}

// give gives a tree to its owner.
func give(t testing.TB, dir string) {
	t.Helper()
	o := owner()
	must(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, int(o.UID), int(o.GID))
	}))
}

// tree makes a tree below a new directory: a name that ends with a slash is a directory, a
// content that begins with "-> " a link.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	needs.OpenAt2(t)
	dir := filepath.Join(t.TempDir(), "tree")
	must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { wipe(t, dir) })
	give(t, dir)
	write(t, dir, files)
	return dir
}

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		full, content := filepath.Join(dir, name), files[name]
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			_ = os.Remove(full)
			must(t, os.Symlink(to, full))
		} else if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(full, 0o755))
		} else {
			must(t, os.WriteFile(full, []byte(content), 0o644))
		}
		for p := full; len(p) >= len(dir); p = filepath.Dir(p) {
			// Without need it would be a change.
			if info, err := os.Lstat(p); err == nil && info.Sys().(*syscall.Stat_t).Uid != owner().UID {
				must(t, os.Lchown(p, int(owner().UID), int(owner().GID)))
			}
		}
	}
}

func remove(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, os.RemoveAll(filepath.Join(dir, name)))
	}
}

// look shows all of a tree, with modes and contents.
func look(t testing.TB, dir string) map[string]string {
	t.Helper()
	seen := make(map[string]string)
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel := strings.TrimPrefix(p, dir+"/")
		info, err := d.Info()
		must(t, err)
		switch {
		case info.IsDir():
			seen[rel] = fmt.Sprintf("dir %o", info.Mode().Perm())
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			must(t, err)
			seen[rel] = "link " + to
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			must(t, err)
			seen[rel] = fmt.Sprintf("file %o %s", info.Mode().Perm(), b)
		default:
			seen[rel] = info.Mode().Type().String()
		}
		return nil
	}))
	return seen
}

// same says in which way two trees differ.
func differ(got, want map[string]string) (diffs []string) {
	all := maps.Clone(got)
	maps.Copy(all, want)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if got[p] != want[p] {
			diffs = append(diffs, fmt.Sprintf("%q is %.60q, want %.60q", p, got[p], want[p]))
		}
	}
	return diffs
}

// copyTree makes a copy of a tree, with its modes.
func copyTree(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	mustRun(t, "/", "cp", "-a", from, to)
	t.Cleanup(func() { wipe(t, to) })
	return to
}

// entry is one of an archive.
type entry struct {
	tar.Header
	content     string
	status, old string
	sum         string // hex
}

// kindIn is what was or is at a path: the words of the archive.
func kindIn(info fs.FileInfo) string {
	switch {
	case info == nil:
		return ""
	case info.IsDir():
		return "dir"
	case info.Mode()&fs.ModeSymlink != 0:
		return "link"
	case info.Mode().IsRegular():
		return "file"
	}
	return "other"
}

// changesOf are the entries of all that differs between two trees.
func changesOf(t testing.TB, base, now string) (entries []entry) {
	t.Helper()
	was, is := look(t, base), look(t, now)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if was[p] == is[p] {
			continue
		}
		before, _ := os.Lstat(filepath.Join(base, p))
		after, _ := os.Lstat(filepath.Join(now, p))
		e := entry{Header: tar.Header{Name: p, Typeflag: tar.TypeReg}, old: kindIn(before)}
		var old []byte
		var err error
		switch e.old {
		case "file":
			old, err = os.ReadFile(filepath.Join(base, p))
		case "link":
			var to string
			to, err = os.Readlink(filepath.Join(base, p))
			old = []byte(to)
		}
		must(t, err)
		if e.old == "file" || e.old == "link" {
			sum := sha256.Sum256(old)
			e.sum = hex.EncodeToString(sum[:])
		}
		switch kind := kindIn(after); {
		case kind == "":
			e.status = "deleted"
		case e.old == "":
			e.status = "added"
		case e.old == kind:
			e.status = "modified"
		default:
			e.status = "type"
		}
		if after != nil {
			e.Mode = int64(after.Mode().Perm())
		}
		switch kindIn(after) {
		case "other":
			e.Typeflag = tar.TypeFifo
		case "dir":
			e.Typeflag = tar.TypeDir
		case "link":
			e.Typeflag = tar.TypeSymlink
			e.Linkname, err = os.Readlink(filepath.Join(now, p))
		case "file":
			var b []byte
			b, err = os.ReadFile(filepath.Join(now, p))
			e.content = string(b)
		}
		must(t, err)
		entries = append(entries, e)
	}
	// As the format wants it: deletions of a directory after what is in it.
	slices.SortStableFunc(entries, func(a, b entry) int {
		if a.status == "deleted" && b.status == "deleted" && strings.HasPrefix(b.Name, a.Name+"/") {
			return 1
		}
		return 0
	})
	return entries
}

// pack makes an archive of entries.
func pack(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.Header
		h.Format, h.Size = tar.FormatPAX, int64(len(e.content))
		records := map[string]string{"TOOLD.status": e.status}
		if e.old != "" {
			records["TOOLD.old"] = e.old
		}
		if e.sum != "" {
			records["TOOLD.oldsha256"] = e.sum
		}
		maps.Copy(records, h.PAXRecords)
		h.PAXRecords = records
		must(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, e.content)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func archiveOf(t testing.TB, base, now string) []byte { return pack(t, changesOf(t, base, now)) }

// coarseNow is the clock that file systems take their times from, in ns.
func coarseNow() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now)
	return now.Nano()
}

// tick waits until files that are changed have a later change time than those before.
func tick() int64 {
	for begun := time.Now().UnixNano(); coarseNow() <= begun; {
		runtime.Gosched()
	}
	since := coarseNow()
	for coarseNow() <= since {
		runtime.Gosched()
	}
	return since
}

// rig is a source with a session.
type rig struct {
	t      testing.TB
	source string // what the session began with, and is applied to
	base   string // a copy
	work   string // the worktree
	job    Job
}

// begin begins a session on a source.
func begin(t testing.TB, source string) *rig {
	t.Helper()
	g := &rig{t: t, source: source, base: copyTree(t, source), work: copyTree(t, source)}
	g.job = Job{Dir: filepath.Join(t.TempDir(), "state"), Source: pin(t, source), Owner: owner(), Since: tick()}
	return g
}

func pin(t testing.TB, dir string) *os.File {
	t.Helper()
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// apply applies what differs between the source and the worktree by now.
func (g *rig) apply(r client.ApplyRequest) (*client.Applied, error) {
	g.t.Helper()
	return g.applyArchive(r, archiveOf(g.t, g.source, g.work))
}

func (g *rig) applyArchive(r client.ApplyRequest, archive []byte) (*client.Applied, error) {
	j := g.job
	j.Request = r
	return j.Run(g.t.Context(), bytes.NewReader(archive))
}

// agents packs what differs as agents do.
func (g *rig) agents(paths ...string) []byte {
	g.t.Helper()
	r, err := root.New(root.Config{Dir: "/", UID: -1, GID: -1})
	must(g.t, err)
	defer r.Close()
	open := func(dir string) *root.Dir {
		f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		must(g.t, err)
		defer f.Close()
		d, err := r.OpenDirFD(g.t.Context(), int(f.Fd()), dir)
		must(g.t, err)
		return d
	}
	var b bytes.Buffer
	base, work := open(g.source), open(g.work)
	defer base.Close()
	defer work.Close()
	_, err = treediff.Write(g.t.Context(), treediff.Options{Root: r, Base: base, Tree: work, Format: treediff.Archive, Paths: paths}, &b)
	must(g.t, err)
	return b.Bytes()
}

func (g *rig) mustApply(r client.ApplyRequest) *client.Applied {
	g.t.Helper()
	a, err := g.apply(r)
	must(g.t, err)
	return a
}

// tidy sees that nothing is left of a job but what is kept for the next ones.
func tidy(t testing.TB, state string) {
	t.Helper()
	list, err := os.ReadDir(state)
	must(t, err)
	for _, e := range list {
		if e.Name() != ownFile && e.Name() != baseDir && e.Name() != wroteFile && e.Name() != cutFile {
			t.Errorf("the state directory has %s", e.Name())
		}
	}
}

// conflictsOf are the paths of an error's conflicts.
func conflictsOf(err error) (paths []string) {
	if e, ok := errors.AsType[*ConflictError](err); ok {
		for _, c := range e.Conflicts {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// names are few, so that changes meet; some are hostile.
var names = []string{"a", "b", "c", "a-b", "d.txt", "\xff\xfe", "new\nline", "e e", "é", ".x", "Makefile", strings.Repeat("n", 250)}

// grow makes random files, directories and links in a tree.
func grow(t testing.TB, r *rand.Rand, dir string, n int) {
	for range n {
		p := somewhere(r, dir)
		if _, err := os.Lstat(p); err == nil {
			continue
		}
		create(t, r, p)
	}
}

// somewhere is a random path whose directory is there.
func somewhere(r *rand.Rand, dir string) string {
	for {
		next := filepath.Join(dir, names[r.IntN(len(names))])
		if info, err := os.Lstat(next); err != nil || !info.IsDir() || r.IntN(3) == 0 {
			return next
		}
		dir = next
	}
}

func create(t testing.TB, r *rand.Rand, p string) {
	open := opened(t, path.Dir(p))
	defer open()
	switch r.IntN(6) {
	case 0, 1:
		must(t, os.Mkdir(p, 0o755))
		must(t, os.Chmod(p, dirModes[r.IntN(len(dirModes))]))
	case 2:
		must(t, os.Symlink([]string{"a", "/etc/passwd", "../../x", "\xfe"}[r.IntN(4)], p))
	default:
		must(t, os.WriteFile(p, content(r), 0o600))
		must(t, os.Chmod(p, fileModes[r.IntN(len(fileModes))]))
	}
}

var (
	dirModes  = []fs.FileMode{0o755, 0o755, 0o700, 0o555, 0o500, 0o777}
	fileModes = []fs.FileMode{0o644, 0o644, 0o600, 0o755, 0o444, 0o777}
)

// opened lets a directory be written to, also by who is not root.
func opened(t testing.TB, dir string) (closeAgain func()) {
	info, err := os.Lstat(dir)
	must(t, err)
	must(t, os.Chmod(dir, info.Mode().Perm()|0o700))
	return func() { must(t, os.Chmod(dir, info.Mode().Perm())) }
}

func content(r *rand.Rand) []byte {
	b := make([]byte, []int{0, 1, 20, 5000, 100_000}[r.IntN(5)])
	for i := range b {
		b[i] = byte(r.IntN(4)) * 'a'
	}
	return b
}

// disturb makes random changes.
func disturb(t testing.TB, r *rand.Rand, dir string, n int) {
	for range n {
		p := somewhere(r, dir)
		info, err := os.Lstat(p)
		if err != nil {
			create(t, r, p)
			continue
		}
		open := opened(t, path.Dir(p))
		switch k := r.IntN(5); {
		case k == 0 && info.Mode()&fs.ModeSymlink == 0:
			if info.IsDir() {
				must(t, os.Chmod(p, dirModes[r.IntN(len(dirModes))]))
			} else {
				must(t, os.Chmod(p, fileModes[r.IntN(len(fileModes))]))
			}
		case k == 1 && info.Mode().IsRegular():
			must(t, os.Chmod(p, 0o600))
			must(t, os.WriteFile(p, content(r), 0o600))
			must(t, os.Chmod(p, info.Mode().Perm()))
		case k == 2:
			to := somewhere(r, dir)
			if _, err := os.Lstat(to); err != nil && !strings.HasPrefix(to, p+"/") {
				openTo := opened(t, path.Dir(to))
				move(t, info, p, to)
				if path.Dir(to) != path.Dir(p) {
					openTo()
				}
			}
		default:
			wipe(t, p)
			if k == 3 {
				create(t, r, p)
			}
		}
		open()
	}
}

// move renames: a directory that its owner cannot write to has to let him for the time.
func move(t testing.TB, info fs.FileInfo, from, to string) {
	if info.IsDir() {
		must(t, os.Chmod(from, 0o700))
	}
	must(t, os.Rename(from, to))
	if info.IsDir() {
		must(t, os.Chmod(to, info.Mode().Perm()))
	}
}

// wipe removes what is at a path, if something is, whatever the modes of its directories.
func wipe(t testing.TB, p string) {
	must(t, filepath.WalkDir(p, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(p, 0o700)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}))
	must(t, os.RemoveAll(p))
}
