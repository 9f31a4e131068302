package apply

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// entriesOf is what a tree has.
func entriesOf(t testing.TB, dir string) map[string]*Entry {
	t.Helper()
	all := make(map[string]*Entry)
	must(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		var st unix.Stat_t
		must(t, unix.Lstat(p, &st))
		e := &Entry{Kind: beneath.KindOf(st.Mode), Perm: st.Mode & 0o777, CTime: st.Ctim.Nano()}
		switch e.Kind {
		case beneath.File:
			b, err := os.ReadFile(p)
			must(t, err)
			e.SHA256 = sha256.Sum256(b)
		case beneath.Link:
			e.Link, err = os.Readlink(p)
			must(t, err)
		}
		all[strings.TrimPrefix(p, dir+"/")] = e
		return nil
	}))
	return all
}

// copied is the job for a copy of the source, which the worktree is.
func (g *rig) copied(was map[string]*Entry) Job {
	g.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(g.t, filepath.Walk(g.work, func(p string, info fs.FileInfo, err error) error {
		must(g.t, err)
		to, _ := os.Readlink(p)
		h, err := tar.FileInfoHeader(info, to)
		must(g.t, err)
		h.Name, h.Format = "top"+strings.TrimPrefix(p, g.work), tar.FormatPAX
		must(g.t, w.WriteHeader(h))
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			must(g.t, err)
			_, err = w.Write(b)
			must(g.t, err)
		}
		return nil
	}))
	must(g.t, w.Close())
	return g.returned(was, b.Bytes())
}

// returned is the job for a copy that comes back as an archive.
func (g *rig) returned(was map[string]*Entry, archive []byte) Job {
	g.t.Helper()
	j := g.job
	j.Request.IncludeSensitive = true
	j.Copy = &Copy{
		Archive: filepath.Join(g.t.TempDir(), "archive"), Top: "top", Was: was,
		Refused: func(name string) { g.t.Errorf("%q is refused", name) },
	}
	must(g.t, os.WriteFile(j.Copy.Archive, archive, 0o600))
	return j
}

// Whatever changes in a copy, the source becomes like it; a second time changes nothing.
func TestCopiesOfAnyTree(t *testing.T) {
	rounds := uint64(20)
	if os.Getenv("TOOLD_TEST_LONG") != "" {
		rounds *= 25
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(seed, 1))
		source := tree(t, nil)
		grow(t, r, source, 60)
		give(t, source)
		g := begin(t, source)
		was := entriesOf(t, source)
		disturb(t, r, g.work, 30)
		t.Cleanup(func() { wipe(t, g.work) })
		job := g.copied(was)
		for range 2 {
			_, err := job.Run(t.Context(), nil)
			if diffs := differ(look(t, source), look(t, g.work)); err != nil || diffs != nil {
				t.Fatalf("seed %d: %v, %q", seed, err, diffs)
			}
		}
		tidy(t, job.Dir)
	}
}

// What is in the way of a change is left alone with what depends on it, whether that shows
// before anything is written or after; all else is written.
func TestConflictsOfCopy(t *testing.T) {
	begins := map[string]string{"edit": "old", "mine": "old", "moved/a": "old", "swap/x": "x", "away/was/x": "x", "plain/gone": "g"}
	g := begin(t, tree(t, begins))
	was := entriesOf(t, g.source)
	write(t, g.work, map[string]string{"edit": "new", "mine": "new", "moved/a": "new", "new/deep/f": "f", "late/deep/f": "f"})
	remove(t, g.work, "swap", "away/was", "plain/gone")
	write(t, g.work, map[string]string{"swap": "now a file", "away/was": "now a file"})
	remove(t, g.source, "plain")
	mine := map[string]string{"mine": "old", "new": "mine", "swap/y": "mine", "plain": "mine"}
	write(t, g.source, mine)
	must(t, os.Chmod(g.source+"/mine", 0o600))
	job := g.copied(was)
	t.Cleanup(func() { step = func(string) {} })
	step = func(at string) {
		switch at {
		case planFile + " renamed":
			must(t, errors.Join(os.Rename(g.source+"/moved", g.source+"/elsewhere"), os.Rename(g.source+"/away", g.source+"/hidden")))
		case committedFile + " renamed":
			must(t, os.Rename(g.source+"/hidden", g.source+"/away"))
		}
	}
	applied, err := job.Run(t.Context(), nil)
	want := []string{"away/was", "mine", "moved/a", "new", "new/deep", "new/deep/f", "swap"}
	got := conflictsOf(err)
	slices.Sort(got)
	if !slices.Equal(got, want) || applied == nil || !slices.Equal(applied.Removed, []string{"away/was/x", "swap/x"}) {
		t.Errorf("got %v, %q, %+v", err, got, applied)
	}
	if found := (&ConflictError{}); !errors.As(err, &found) || !slices.Contains(found.Conflicts, Conflict{"new/deep/f", string(errNotMade)}) {
		t.Errorf("got %v", found.Conflicts)
	}
	tree := map[string]string{
		"edit": "file 644 new", "mine": "file 600 old", "elsewhere": "dir 755", "elsewhere/a": "file 644 old", "new": "file 644 mine",
		"swap": "dir 755", "swap/y": "file 644 mine", "away": "dir 755", "away/was": "dir 755", "plain": "file 644 mine", "late": "dir 755", "late/deep": "dir 755", "late/deep/f": "file 644 f",
	}
	if diffs := differ(look(t, g.source), tree); diffs != nil {
		t.Error(diffs)
	}
	tidy(t, job.Dir)
}

// A daemon that was killed goes on with the archive that it had.
func TestCopyKilled(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"edit": "old", "gone/f": "f"}))
	was := entriesOf(t, g.source)
	write(t, g.work, map[string]string{"edit": "new", "made/f": "f"})
	remove(t, g.work, "gone")
	job := g.copied(was)
	stop := false
	func() {
		defer func() { stop = recover() != nil }()
		at(t, committedFile+" renamed", func() { panic("killed") })
		_, _ = job.Run(t.Context(), nil)
	}()
	must(t, os.Remove(job.Copy.Archive))
	if _, err := Recover(t.Context(), job.Dir); err != nil || !stop {
		t.Errorf("killed: %v, %v", stop, err)
	}
	if diffs := differ(look(t, g.source), look(t, g.work)); diffs != nil {
		t.Error(diffs)
	}
	tidy(t, job.Dir)
}

// Files are found by their places in the archive, which one with holes has otherwise.
func TestHolesOfCopy(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"a": "a"}))
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "top/", Typeflag: tar.TypeDir}))
	records := map[string]string{"major": "1", "minor": "0", "realsize": "1000", "name": "top/a"}
	h := &tar.Header{Name: "top/x", Typeflag: tar.TypeReg, Size: 512 + 4, PAXRecords: map[string]string{}}
	for _, key := range slices.Sorted(maps.Keys(records)) {
		h.PAXRecords["XXX.sparse."+key] = records[key]
	}
	must(t, w.WriteHeader(h))
	_, err := w.Write(append([]byte("1\n996\n4\n"), make([]byte, 512+4-8)...))
	must(t, errors.Join(err, w.Close()))
	job := g.returned(entriesOf(t, g.source), bytes.ReplaceAll(b.Bytes(), []byte("XXX.sparse"), []byte("GNU.sparse")))
	if _, err := job.Run(t.Context(), nil); !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "holes") {
		t.Errorf("got %v", err)
	}
}

// A name that is there twice is an error also where one of both is as it was.
func TestTwiceInCopy(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"a": "a"}))
	was := entriesOf(t, g.source)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "top/", Typeflag: tar.TypeDir}))
	for _, content := range []string{"a", "b"} {
		must(t, w.WriteHeader(&tar.Header{Name: "top/a", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}))
		_, err := w.Write([]byte(content))
		must(t, err)
	}
	must(t, w.Close())
	job := g.returned(was, b.Bytes())
	if _, err := job.Run(t.Context(), nil); !errors.Is(err, ErrArchive) {
		t.Errorf("got %v", err)
	}
}
