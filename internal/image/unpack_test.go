package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unpackLayers applies layers to a new directory.
func unpackLayers(t testing.TB, l Limits, layers ...[]byte) (string, error) {
	t.Helper()
	needRoot(t)
	path := filepath.Join(t.TempDir(), "rootfs")
	return path, unpackTo(t.Context(), path, l, layers...)
}

func unpackTo(ctx context.Context, path string, l Limits, layers ...[]byte) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	u, err := newUnpacker(int(d.Fd()), &budget{limits: l.withDefaults(), disk: disk{fd: int(d.Fd())}})
	if err != nil {
		return err
	}
	defer u.close()
	for i, layer := range layers {
		if err := u.apply(ctx, bytes.NewReader(layer), ratioGrace+int64(len(layer))*u.budget.limits.Ratio); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

func TestUnpack(t *testing.T) {
	tests := []struct {
		name   string
		layers [][]tarEntry
		want   []string // without the root
	}{
		{"kinds, owners, modes", [][]tarEntry{{
			dir("a").owned(1, 2).mode(0o750),
			file("a/f", "text").owned(3, 65535).mode(0o640),
			symlink("a/l", "/etc/passwd").owned(4, 5),
			hardlink("a/h", "a/f"),
			{tar.Header{Typeflag: tar.TypeFifo, Name: "a/p", Mode: 0o600, Uid: 6}, ""},
		}}, []string{
			"d 0750 1:2 a", "- 0640 3:65535 a/f text", "- 0640 3:65535 a/h text",
			"l 0777 4:5 a/l -> /etc/passwd", "p 0600 6:0 a/p",
		}},
		{"set-uid, set-gid and unknown bits are dropped, sticky is kept", [][]tarEntry{{
			file("su", "").mode(0o6755), dir("tmp").mode(0o1777), dir("sg").mode(0o2755), file("odd", "").mode(0o100644),
		}}, []string{"- 0644 0:0 odd ", "d 0755 0:0 sg", "- 0755 0:0 su ", "d 1777 0:0 tmp"}},
		{"spellings of names", [][]tarEntry{{
			dir("./"), file("./a", "1"), file("b/./c", "2"), file("b//d", "3"), dir("e//"),
		}}, []string{"- 0644 0:0 a 1", "d 0755 0:0 b", "- 0644 0:0 b/c 2", "- 0644 0:0 b/d 3", "d 0755 0:0 e"}},
		{"bytes that are no UTF-8", [][]tarEntry{{
			file("a\xff\x01b", "x"),
		}}, []string{"- 0644 0:0 a\xff\x01b x"}},
		{"parents that no entry names", [][]tarEntry{{
			file("a/b/c/d", "x"),
		}}, []string{"d 0755 0:0 a", "d 0755 0:0 a/b", "d 0755 0:0 a/b/c", "- 0644 0:0 a/b/c/d x"}},
		{"the later of two entries counts", [][]tarEntry{{
			file("a", "1"), file("a", "2"), dir("b"), dir("b").mode(0o700),
		}}, []string{"- 0644 0:0 a 2", "d 0700 0:0 b"}},
		{"file over directory and directory over file", [][]tarEntry{
			{file("a/x", "1"), file("b", "2")},
			{file("a", "3"), dir("b"), file("b/y", "4")},
		}, []string{"- 0644 0:0 a 3", "d 0755 0:0 b", "- 0644 0:0 b/y 4"}},
		{"a directory over a directory keeps what is in it", [][]tarEntry{
			{file("a/x", "1")},
			{dir("a").owned(7, 7)},
		}, []string{"d 0755 7:7 a", "- 0644 0:0 a/x 1"}},
		{"a directory over a link to one takes its place", [][]tarEntry{
			{file("real/x", "1"), symlink("a", "real")},
			{dir("a"), file("a/y", "2")},
		}, []string{"d 0755 0:0 a", "- 0644 0:0 a/y 2", "d 0755 0:0 real", "- 0644 0:0 real/x 1"}},
		{"entries below a link go where it leads", [][]tarEntry{
			{dir("usr/lib"), symlink("lib", "usr/lib"), symlink("abs", "/usr/lib")},
			{file("lib/a", "1"), file("abs/b", "2")},
		}, []string{
			"l 0777 0:0 abs -> /usr/lib", "l 0777 0:0 lib -> usr/lib", "d 0755 0:0 usr",
			"d 0755 0:0 usr/lib", "- 0644 0:0 usr/lib/a 1", "- 0644 0:0 usr/lib/b 2",
		}},
		{"the kept directory is not the one of before", [][]tarEntry{
			{dir("one"), dir("two"), symlink("at", "one"), file("at/x", "1"), symlink("at", "two"), file("at/y", "2")},
		}, []string{"l 0777 0:0 at -> two", "d 0755 0:0 one", "- 0644 0:0 one/x 1", "d 0755 0:0 two", "- 0644 0:0 two/y 2"}},
		{"whiteouts", [][]tarEntry{
			{file("a", "1"), file("b/c", "2"), file("b/d", "3"), dir("e/f"), symlink("l", "b")},
			{file(".wh.a", ""), file("b/.wh.c", ""), file(".wh.e", ""), file(".wh.l", ""), file(".wh.never", ""), file("no/where/.wh.x", "")},
		}, []string{"d 0755 0:0 b", "- 0644 0:0 b/d 3"}},
		{"a whiteout is about the layers below, before and after", [][]tarEntry{
			{file("a", "1"), file("b/old", "2"), file("c", "3")},
			{file("a", "4"), file(".wh.a", ""), dir("b"), file("b/new", "5"), file(".wh.b", ""), file(".wh.c", ""), file("c", "6")},
		}, []string{"- 0644 0:0 a 4", "d 0755 0:0 b", "- 0644 0:0 b/new 5", "- 0644 0:0 c 6"}},
		{"opaque directories", [][]tarEntry{
			{file("d/x", "1"), file("d/sub/y", "2"), file("d/sub/z", "3"), file("keep", "4")},
			{file("d/first", "5"), file("d/sub/y", "6"), file("d/.wh..wh..opq", ""), file("d/after", "7")},
		}, []string{
			"d 0755 0:0 d", "- 0644 0:0 d/after 7", "- 0644 0:0 d/first 5", "d 0755 0:0 d/sub", "- 0644 0:0 d/sub/y 6", "- 0644 0:0 keep 4",
		}},
		{"an opaque root", [][]tarEntry{
			{file("a", "1"), file("b/c", "2")},
			{file(".wh..wh..opq", ""), file("d", "3")},
		}, []string{"- 0644 0:0 d 3"}},
		{"opaque over a link stays inside", [][]tarEntry{
			{file("real/x", "1"), symlink("l", "/real"), symlink("up", "../../..")},
			{file("l/.wh..wh..opq", "")},
		}, []string{"l 0777 0:0 l -> /real", "d 0755 0:0 real", "l 0777 0:0 up -> ../../.."}},
		{"a hard link of this layer to a file of one below survives", [][]tarEntry{
			{file("d/a", "1")},
			{hardlink("d/b", "d/a"), file("d/.wh..wh..opq", "")},
		}, []string{"d 0755 0:0 d", "- 0644 0:0 d/b 1"}},
		{"notes of storage drivers", [][]tarEntry{
			{file(".wh..wh.plnk", ""), file(".wh..wh.aufs", ""), file("a", "")},
		}, []string{"- 0644 0:0 a "}},
		{"devices that every container has", [][]tarEntry{{
			dir("dev"), device("dev/null", tar.TypeChar, 1, 3), device("dev/tty1", tar.TypeChar, 4, 1), symlink("dev/fd", "/proc/self/fd"),
		}}, []string{"d 0755 0:0 dev", "l 0777 0:0 dev/fd -> /proc/self/fd"}},
		{"a hard link to itself, and over its target", [][]tarEntry{{
			file("a", "1"), hardlink("a", "a"), hardlink("b", "a"), hardlink("b", "a"),
		}}, []string{"- 0644 0:0 a 1", "- 0644 0:0 b 1"}},
		{"a hard link whose target is below a link", [][]tarEntry{
			{file("usr/x", "1"), symlink("l", "/usr"), hardlink("h", "l/x")},
		}, []string{"- 0644 0:0 h 1", "l 0777 0:0 l -> /usr", "d 0755 0:0 usr", "- 0644 0:0 usr/x 1"}},
		{"a root that nobody may enter", [][]tarEntry{{dir("./").mode(0o700), file("a", "")}}, []string{"- 0644 0:0 a "}},
		{"global headers", [][]tarEntry{{
			{tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, ""},
			file("a", ""),
		}}, []string{"- 0644 0:0 a "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, tarOf(t, l...))
			}
			path, err := unpackLayers(t, Limits{}, layers...)
			if err != nil {
				t.Fatal(err)
			}
			got := listing(t, path)
			if root := got[0]; root != "d 0755 0:0 ." {
				t.Errorf("the root is %q", root)
			}
			if !slices.Equal(got[1:], tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got[1:], "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// TestUnpackedTimes: also of directories, to which later entries do something.
func TestUnpackedTimes(t *testing.T) {
	path, err := unpackLayers(t, Limits{}, tarOf(t, dir("d"), file("d/f", "x"), symlink("d/l", "f"), file("gone/x", ""), dir("gone"), file("gone", "")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "d/f", "d/l"} {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if !info.ModTime().Equal(testEpoch) {
			t.Errorf("%s: modified %v, want %v", name, info.ModTime(), testEpoch)
		}
	}
}

// TestUnpackedLinks: names of one inode in the image are names of one inode.
func TestUnpackedLinks(t *testing.T) {
	path, err := unpackLayers(t, Limits{}, tarOf(t, file("a", "x"), hardlink("b", "a"), file("c", "x")))
	if err != nil {
		t.Fatal(err)
	}
	stat := func(name string) (st unix.Stat_t) {
		if err := unix.Lstat(filepath.Join(path, name), &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	if a, b := stat("a"), stat("b"); a.Ino != b.Ino || a.Nlink != 2 {
		t.Errorf("inodes %d and %d with %d names", a.Ino, b.Ino, a.Nlink)
	}
	if a, c := stat("a"), stat("c"); a.Ino == c.Ino {
		t.Error("two files became one")
	}
}

// TestUnpackDropsAttributes: a file with a capability would be one with set-uid
// by another name.
func TestUnpackDropsAttributes(t *testing.T) {
	e := file("f", "x")
	e.PAXRecords = map[string]string{
		"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00",
		"SCHILY.xattr.user.note":           "hello", "SCHILY.xattr.trusted.overlay.opaque": "y",
	}
	path, err := unpackLayers(t, Limits{}, tarOf(t, e))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1000)
	if n, err := unix.Llistxattr(filepath.Join(path, "f"), buf); err != nil || n != 0 {
		t.Errorf("attributes %q, %v", buf[:max(n, 0)], err)
	}
}

func TestUnpackIgnoresUmask(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	path, err := unpackLayers(t, Limits{}, tarOf(t, file("a/b", "x").mode(0o666)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := listing(t, path)[1:], []string{"d 0755 0:0 a", "- 0666 0:0 a/b x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnpackEndsWithContext(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrDeadlineExceeded)
	err := unpackTo(ctx, filepath.Join(t.TempDir(), "r"), Limits{}, tarOf(t, file("a", "x")))
	if err == nil || !strings.Contains(err.Error(), os.ErrDeadlineExceeded.Error()) {
		t.Errorf("got %v, want the cause", err)
	}
}

func FuzzUnpackLayer(f *testing.F) {
	needRoot(f)
	for _, entries := range [][]tarEntry{
		{dir("a"), file("a/b", "x"), hardlink("c", "a/b"), symlink("l", "/a"), file("l/y", "z")},
		{file("a/.wh.b", ""), file("a/.wh..wh..opq", ""), symlink("a", "../.."), file("a/etc/passwd", "x")},
		{symlink("x", "../.."), file("x/canary", "dead"), hardlink("y", "x/canary"), file("x/.wh.canary", "")},
		{device("dev/null", tar.TypeChar, 1, 3), device("sda", tar.TypeBlock, 8, 0)},
	} {
		f.Add(tarOf(f, entries...), tarOf(f, entries[0]))
	}
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		// The directory is two below the one that is looked at, with a file that
		// no entry may reach.
		outer := detachedTmpfs(t, "16m", "2000")
		canary := filepath.Join(outer, "canary")
		if err := os.WriteFile(canary, []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(outer, "in"), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(outer, "in", "rootfs")
		limits := Limits{Bytes: 1 << 20, FileBytes: 1 << 20, Entries: 1000}
		if unpackTo(t.Context(), path, limits, lower, upper) == nil {
			checkSurvey(t, path)
		}
		for dir, want := range map[string][]string{outer: {"canary", "in"}, filepath.Join(outer, "in"): {"rootfs"}} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, e.Name())
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s holds %q, want %q", dir, got, want)
			}
		}
		if b, err := os.ReadFile(canary); err != nil || string(b) != "alive" {
			t.Fatalf("the canary says %q, %v", b, err)
		}
	})
}

func checkSurvey(t *testing.T, path string) {
	t.Helper()
	if _, err := surveyTree(unix.AT_FDCWD, path); err != nil {
		t.Fatalf("what was accepted holds what none may: %v", err)
	}
}

// TestWhiteoutsAgain: what a layer removes again and again is looked for once. A
// look for each would take minutes.
func TestWhiteoutsAgain(t *testing.T) {
	var entries []tarEntry
	for i := range 10_000 {
		entries = append(entries, file(fmt.Sprintf("d/f%d", i), ""))
	}
	for range 10_000 {
		entries = append(entries, file(".wh.d", ""), file("d/.wh..wh..opq", ""))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	needRoot(t)
	path := filepath.Join(detachedTmpfs(t, "512m", "200000"), "rootfs") // a disk may have much else to do
	if err := unpackTo(ctx, path, Limits{}, tarOf(t, file("d/old", "")), tarOf(t, entries...)); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(filepath.Join(path, "d"))
	if err != nil || len(names) != 10_000 || slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == "old" }) {
		t.Errorf("%d files are there, %v", len(names), err)
	}
}

// TestNamesOverLinks: what is kept of names is bounded by what they are, and not by
// how an image writes them.
func TestNamesOverLinks(t *testing.T) {
	needRoot(t)
	d, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	deep := strings.Repeat("d/", 100)
	entries := []tarEntry{dir(deep), symlink("l", deep)}
	for i := range 100 {
		entries = append(entries, dir(fmt.Sprintf("l/%d", i)))
	}
	u, err := newUnpacker(int(d.Fd()), &budget{limits: Limits{}.withDefaults(), disk: disk{fd: int(d.Fd())}, names: maxNameBytes - 10_000})
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	if err := u.apply(t.Context(), bytes.NewReader(tarOf(t, entries...)), ratioGrace); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "names") {
		t.Errorf("got %v", err)
	}
}

// A disk that would be left with too little is noticed within a file, before it is written.
func TestFileIsPaidFor(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := &budget{limits: defaultLimits, disk: disk{fd: int(f.Fd()), room: func(int64) error { return errFloor }}}
	p := &paid{f, b}
	if n, err := p.Write(make([]byte, checkEvery-1)); n != checkEvery-1 || err != nil {
		t.Fatalf("wrote %d bytes, %v", n, err)
	}
	if n, err := p.Write([]byte("x")); n != 0 || !errors.Is(err, errFloor) {
		t.Errorf("wrote %d bytes, %v, want %v", n, err, errFloor)
	}
	if fi, err := f.Stat(); err != nil || fi.Size() != checkEvery-1 || b.bytes != checkEvery {
		t.Errorf("the file has %d bytes, %d were counted, %v", fi.Size(), b.bytes, err)
	}
}
