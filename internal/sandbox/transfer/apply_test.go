package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree/apply"
)

// archive makes one of these entries below workspace/; files have their own names as
// content.
func archive(t testing.TB, headers ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "workspace/", Typeflag: tar.TypeDir, Mode: 0o755}))
	for _, h := range headers {
		name := h.Name
		h.Name, h.Mode = "workspace/"+name, 0o644
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(name))
		}
		must(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			fmt.Fprint(w, name)
		}
	}
	must(t, w.Close())
	return kept(t, b.Bytes())
}

// Applying once more what was interrupted finds no conflict with its own work.
func TestApplyAgain(t *testing.T) {
	here := t.TempDir()
	write(t, here, map[string]string{"edit": "old", "gone/deep/f": "x", "relink": "-> a", "swap": "file", "swapdir/x": "x"})
	m, archive := pack(t, here)
	there := unpack(t, archive)
	for _, name := range []string{"gone", "relink", "swap", "swapdir"} {
		must(t, os.RemoveAll(filepath.Join(there, name)))
	}
	write(t, there, map[string]string{"edit": "new", "relink": "-> b", "swap/in": "i", "swapdir": "now a file", "dir/f": "f", "link": "-> x"})
	must(t, os.Link(filepath.Join(there, "edit"), filepath.Join(there, "hard")))
	want := look(t, there)
	for range 2 {
		if report := applied(t, here, there, m); report.ConflictCount > 0 {
			t.Errorf("got %+v", report)
		}
		got := look(t, here)
		for _, name := range slices.Concat(keys(got), keys(want)) {
			if got[name] != want[name] {
				t.Errorf("%q: got %q, want %q", name, got[name], want[name])
			}
		}
	}
	// But with what somebody else did in between.
	write(t, here, map[string]string{"edit": "our"})
	if report := applied(t, here, there, m); !slices.Equal(report.Conflicts, []string{"edit"}) {
		t.Errorf("got %+v", report)
	}
	if got := look(t, here); got["edit"] != "our" || got["hard"] != "new" {
		t.Errorf("ours is %q now, and its link %q", got["edit"], got["hard"])
	}
}

// Names are bytes.
func TestNamesOfAnyBytes(t *testing.T) {
	here := t.TempDir()
	write(t, here, map[string]string{"caf\xe9": "old", "l\xff": "-> to\xfe"})
	m, archive := pack(t, here)
	there := unpack(t, archive)
	write(t, there, map[string]string{"caf\xe9": "new"})
	report := applied(t, here, there, m)
	if report.ConflictCount > 0 || report.Written != 1 || report.Removed > 0 {
		t.Errorf("got %+v", report)
	}
	if got := look(t, here); got["caf\xe9"] != "new" || got["l\xff"] != "-> to\xfe" {
		t.Errorf("got %q", got)
	}
}

// A hard link has the content that it has there, also where what it leads to stays as it
// is here. One to nothing is not made.
func TestHardLinkToConflict(t *testing.T) {
	here := t.TempDir()
	write(t, here, map[string]string{"f": "old"})
	m, packed := pack(t, here)
	there := unpack(t, packed)
	write(t, there, map[string]string{"f": "theirs"})
	must(t, os.Link(filepath.Join(there, "f"), filepath.Join(there, "hard")))
	write(t, here, map[string]string{"f": "ours"})
	report := applied(t, here, there, m)
	if got := look(t, here); len(got) != 2 || got["f"] != "ours" || got["hard"] != "theirs" || !slices.Equal(report.Conflicts, []string{"f"}) {
		t.Errorf("got %q, %+v", got, report)
	}
	a := archive(t, tar.Header{Name: "early", Typeflag: tar.TypeLink, Linkname: "workspace/late"}, tar.Header{Name: "late", Typeflag: tar.TypeReg})
	report, err := Apply(t.Context(), open(t, t.TempDir()), me(), &Manifest{}, a, "workspace", journal(t), DefaultLimits)
	if err != nil || report.Written != 1 || !slices.Equal(report.Conflicts, []string{"early"}) {
		t.Errorf("a link to what comes later: %+v, %v", report, err)
	}
}

// What a few bytes of an archive could make of themselves is bounded, too.
func TestBombs(t *testing.T) {
	links := []tar.Header{{Name: strings.Repeat("x", 100), Typeflag: tar.TypeReg}}
	for i := range 30 {
		links = append(links, tar.Header{Name: fmt.Sprint("l", i), Typeflag: tar.TypeLink, Linkname: "workspace/" + links[0].Name})
	}
	long := strings.Repeat(strings.Repeat("n", 200)+"/", 10)
	var names []tar.Header
	for i := range 30 {
		names = append(names, tar.Header{Name: long + fmt.Sprint(i), Typeflag: tar.TypeReg})
	}
	for name, headers := range map[string][]tar.Header{"links": links, "names": names} {
		dir := t.TempDir()
		limits := Limits{Bytes: 1 << 20, Files: 50}
		if name == "links" {
			limits.Bytes = 1000
		} else {
			limits.Files = 100
		}
		_, err := Apply(t.Context(), open(t, dir), me(), &Manifest{}, archive(t, headers...), "workspace", journal(t), limits)
		if !errors.Is(err, apply.ErrTooLarge) {
			t.Errorf("%s: got %v", name, err)
		}
		if got := look(t, dir); len(got) > 0 {
			t.Errorf("%s: %d entries were made", name, len(got))
		}
	}
	dir := t.TempDir()
	for i := range 10 {
		write(t, dir, map[string]string{fmt.Sprint(i, strings.Repeat("n", 200)): "-> " + strings.Repeat("t", 200)})
	}
	if _, err := Pack(t.Context(), io.Discard, open(t, dir), me(), Into{}, Limits{Bytes: 1 << 20, Files: 10}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("packed: got %v", err)
	}
	// Names that are refused are told in short.
	report, err := Apply(t.Context(), open(t, dir), me(), &Manifest{}, archive(t, tar.Header{Name: strings.Repeat("y", 1<<16), Typeflag: tar.TypeReg}), "workspace", journal(t), DefaultLimits)
	if err != nil || len(report.Refused) != 1 || len(report.Refused[0]) > maxShown {
		t.Errorf("got %d refused, %v", report.RefuseCount, err)
	}
}

// Times go there with all entries, and come back with the files that are written; a
// directory gets the mode that it has there, also one that its owner cannot write to.
func TestTimesAndModes(t *testing.T) {
	here := t.TempDir()
	write(t, here, map[string]string{"source": "old", "dir/f": "f", "link": "-> dir"})
	old := time.Unix(1_600_000_000, 0)
	for _, name := range []string{"dir/f", "dir", "source"} {
		must(t, os.Chtimes(filepath.Join(here, name), old, old))
	}
	must(t, unix.Lutimes(filepath.Join(here, "link"), []unix.Timeval{{Sec: old.Unix()}, {Sec: old.Unix()}}))
	m, packed := pack(t, here)
	for r := tar.NewReader(bytes.NewReader(packed)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if h.Name != "workspace/" && !h.ModTime.Equal(old) {
			t.Errorf("%s goes with %v", h.Name, h.ModTime)
		}
	}
	there := unpack(t, packed)
	write(t, there, map[string]string{"source": "new", "made": "of source", "closed/deep/f": "f"})
	want := map[string]time.Time{"made": old.Add(time.Hour), "source": old.Add(2 * time.Hour)}
	for name, at := range want {
		must(t, os.Chtimes(filepath.Join(there, name), at, at))
	}
	modes := map[string]os.FileMode{"dir": 0o555, "closed": 0o550, "closed/deep": 0o500}
	for name, mode := range modes {
		must(t, os.Chmod(filepath.Join(there, name), mode))
	}
	if report := applied(t, here, there, m); report.ConflictCount > 0 {
		t.Errorf("got %+v", report)
	}
	for name, at := range want {
		if fi, err := os.Stat(filepath.Join(here, name)); err != nil || !fi.ModTime().Equal(at) {
			t.Errorf("%s: got %v, %v, want %v", name, fi.ModTime(), err, at)
		}
	}
	for name, mode := range modes {
		if fi, err := os.Stat(filepath.Join(here, name)); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: got %v, %v, want %v", name, fi.Mode(), err, mode)
		}
		must(t, os.Chmod(filepath.Join(here, name), 0o755))  // for who removes it
		must(t, os.Chmod(filepath.Join(there, name), 0o755)) // the same
	}
}

// What is as it was is not written, also in a directory that is closed to its owner. For
// what has changed in that, it is opened for the time.
func TestUntouchedInClosedDir(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can work as somebody else")
	}
	here := t.TempDir()
	for dir := here; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	write(t, here, map[string]string{"closed/same": "same", "closed/edit": "old"})
	must(t, filepath.WalkDir(here, func(p string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, 1234, 1234))
	}))
	must(t, os.Chmod(filepath.Join(here, "closed"), 0o555))
	var b bytes.Buffer
	m, err := Pack(t.Context(), &b, open(t, here), thread.User{UID: 1234, GID: 1234}, Into{Prefix: "workspace"}, DefaultLimits)
	must(t, err)
	there := unpack(t, b.Bytes())
	must(t, os.Chmod(filepath.Join(there, "closed"), 0o555))
	for written, change := range []string{"", "new"} {
		if change != "" {
			write(t, there, map[string]string{"closed/edit": change})
		}
		var before unix.Stat_t
		must(t, unix.Stat(filepath.Join(here, "closed"), &before))
		b.Reset()
		tarOf(t, &b, there)
		report, err := Apply(t.Context(), open(t, here), thread.User{UID: 1234, GID: 1234}, m, kept(t, b.Bytes()), "workspace", journal(t), DefaultLimits)
		if err != nil || report.ConflictCount > 0 || report.Written != written {
			t.Errorf("%q: got %+v, %v", change, report, err)
		}
		var after unix.Stat_t
		must(t, unix.Stat(filepath.Join(here, "closed"), &after))
		if after.Mode&0o777 != 0o555 || written == 0 && after.Ctim != before.Ctim {
			t.Errorf("%q: the directory has the mode %o, and was changed at %v, before at %v", change, after.Mode, after.Ctim, before.Ctim)
		}
	}
}
