package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	testregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"

	stdlog "log"

	"github.com/toold/toold/client"
)

// needRoot skips a test that gives files to several owners.
// TOOLD_TEST_REQUIRE=oci makes a failure of that: who can make containers is root.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		testrig.Skipf(t, "oci", "images need root, for their files belong to several users")
	}
}

// testEpoch is when the files of tests were written.
var testEpoch = time.Unix(1_700_000_000, 0)

// newStore opens a store in memory: waiting until all is on a disk would be
// waiting for all that other tests have written.
func newStore(t testing.TB) *Store {
	t.Helper()
	return newStoreLimited(t, Limits{})
}

func newStoreLimited(t testing.TB, l Limits) *Store {
	t.Helper()
	needRoot(t)
	return openStore(t, filepath.Join(detachedTmpfs(t, "512m", "200000"), "images"), l)
}

func openStore(t testing.TB, dir string, l Limits) *Store {
	t.Helper()
	needRoot(t)
	s, err := openKeeping(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.limits = l.withDefaults()
	t.Cleanup(func() { s.Close() })
	return s
}

// openKeeping opens a store that keeps so many bytes free.
func openKeeping(dir string, minFree int64) (*Store, error) {
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err == nil {
		s.AskRoom(func(int64) error {
			var fs unix.Statfs_t
			if err := unix.Fstatfs(int(s.fd.Fd()), &fs); err != nil || int64(fs.Bavail)*fs.Bsize >= minFree {
				return err
			}
			return errFloor
		})
	}
	return s, err
}

var errFloor = errors.New("so much must stay free")

// withDefaults are these limits, where one is 0 the store's own.
func (l Limits) withDefaults() Limits {
	d := defaultLimits
	return Limits{
		Bytes: cmp.Or(l.Bytes, d.Bytes), FileBytes: cmp.Or(l.FileBytes, d.FileBytes), Entries: cmp.Or(l.Entries, d.Entries),
		Layers: cmp.Or(l.Layers, d.Layers), ConfigBytes: cmp.Or(l.ConfigBytes, d.ConfigBytes), Ratio: cmp.Or(l.Ratio, d.Ratio),
	}
}

// detachedTmpfs gives a path to a file system that is mounted nowhere, and is
// gone with the test's process.
func detachedTmpfs(t testing.TB, size, inodes string) string {
	t.Helper()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	err = errors.Join(unix.FsconfigSetString(fs, "size", size), unix.FsconfigSetString(fs, "nr_inodes", inodes), unix.FsconfigCreate(fs))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd) // for other processes too
}

// Entries of archives in tests.

func file(name, content string) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, content}
}

func dir(name string) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

func symlink(name, target string) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, ""}
}

func hardlink(name, target string) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}, ""}
}

func device(name string, kind byte, major, minor int64) tarEntry {
	return tarEntry{tar.Header{Typeflag: kind, Name: name, Mode: 0o666, Devmajor: major, Devminor: minor}, ""}
}

type tarEntry struct {
	tar.Header
	content string
}

func (e tarEntry) owned(uid, gid int) tarEntry {
	e.Uid, e.Gid = uid, gid
	return e
}

func (e tarEntry) mode(m int64) tarEntry {
	e.Mode = m
	return e
}

// tarOf packs entries.
func tarOf(t testing.TB, entries ...tarEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.Header
		if h.ModTime.IsZero() && h.Typeflag != tar.TypeXGlobalHeader {
			h.ModTime = testEpoch
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// layerOf is a layer of a real image.
func layerOf(t testing.TB, entries ...tarEntry) v1.Layer {
	t.Helper()
	raw := tarOf(t, entries...)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// imageOf is a real image for this host.
func imageOf(t testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Config: config, Created: v1.Time{Time: testEpoch.UTC()},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err == nil {
		img, err = mutate.AppendLayers(img, layers...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// simpleImage is an image of two layers.
func simpleImage(t testing.TB) v1.Image {
	t.Helper()
	return imageOf(t, v1.Config{Env: []string{"PATH=/bin", "LANG=C.UTF-8"}, WorkingDir: "/src", User: "1000", Cmd: []string{"sh"}},
		layerOf(t, dir("bin/"), file("bin/sh", "#!shell\n").mode(0o755), dir("etc"), file("etc/motd", "old"), file("etc/gone", "x")),
		layerOf(t, file("etc/motd", "new"), file("etc/.wh.gone", "")))
}

// newTestRegistry starts a registry on the loopback; what it gives is host:port.
func newTestRegistry(t testing.TB) string {
	t.Helper()
	return newRegistryBehind(t, func(next http.Handler) http.Handler { return next })
}

// newRegistryBehind is newTestRegistry with something in front.
func newRegistryBehind(t testing.TB, front func(http.Handler) http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(front(testregistry.New(testregistry.Logger(stdlog.New(io.Discard, "", 0)))))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func push(t testing.TB, ref string, img v1.Image) {
	t.Helper()
	parsed, err := name.ParseReference(ref)
	if err == nil {
		err = remote.Write(parsed, img)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listing describes each file below dir, one a line: kind, mode, owner, name,
// and content or target.
func listing(t testing.TB, dir string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		lines = append(lines, describeFile(t, p, rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func describeFile(t testing.TB, p, rel string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		t.Fatal(err)
	}
	kind, what := "?", ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		kind = "-"
		content, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		what = " " + string(content)
	case unix.S_IFDIR:
		kind = "d"
	case unix.S_IFLNK:
		kind = "l"
		target, err := os.Readlink(p)
		if err != nil {
			t.Fatal(err)
		}
		what = " -> " + target
	case unix.S_IFIFO:
		kind = "p"
	}
	return fmt.Sprintf("%s %04o %d:%d %s%s", kind, st.Mode&0o7777, st.Uid, st.Gid, rel, what)
}

// rootfsOf is where an image's files are.
func rootfsOf(s *Store, img *client.Image) string {
	return filepath.Join(s.dir.Name(), folder(img.Digest), rootfsDir)
}

// checkNothingLeft fails the test if there is anything in the store but want
// images.
func checkNothingLeft(t testing.TB, s *Store, want int) {
	t.Helper()
	for name, n := range map[string]int{tmpDir: 0, imagesDir: want} {
		entries, err := os.ReadDir(filepath.Join(s.dir.Name(), name))
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != n {
			t.Errorf("%s/ holds %d entries, want %d: %v", name, len(entries), n, entries)
		}
	}
}

func statOf(t testing.TB, p string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// quiet is for those who do not ask how far a pull is.
func quiet(client.ImageProgress) {}
