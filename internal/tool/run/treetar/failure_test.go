package treetar

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/tool/run/root"
)

// userRoot does all work as a user without rights where the tests are root's.
func userRoot(t *testing.T, dir string) *root.Root {
	t.Helper()
	if os.Getuid() != 0 {
		return newRoot(t, dir)
	}
	const nobody = 65534
	r, err := root.New(root.Config{Dir: dir, UID: nobody, GID: nobody})
	testrig.Must(t, err)
	t.Cleanup(r.Close)
	return r
}

// open is a directory that every user can reach.
func open(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testrig.Must(t, os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

// TestText: what was done and what is missing, as people read it.
func TestText(t *testing.T) {
	c := Count{Files: 1, Dirs: 2, Bytes: 1}
	if got, want := c.Text("Packed"), "Packed 1 file, 2 directories, 0 links (1 byte)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := c.Notes("be read"); got != nil {
		t.Errorf("nothing is missing: %q", got)
	}
	c.Skipped.Add("/p")
	c.fail("/a\x1b", errors.New("first."))
	c.fail("/b", errors.New("second"))
	got := strings.Join(c.Notes("be read"), "\n")
	for _, want := range []string{"1 entry skipped, since only files, directories and links are copied: ", "/p\n2 entries could not be read: ", "/b; the first: first"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, "\x1b") || strings.Contains(got, "second") || strings.HasSuffix(got, ".") {
		t.Errorf("%q", got)
	}
}

// TestUnreadable: what a user may not read is counted and named, and the rest is packed.
func TestUnreadable(t *testing.T) {
	needs.OpenAt2(t)
	top := open(t)
	in := func(name string) string { return filepath.Join(top, name) }
	for _, name := range []string{"a", "shut/f", "list/f", "secret", "z"} {
		testrig.Must(t, os.MkdirAll(filepath.Dir(in(name)), 0o755), os.WriteFile(in(name), []byte(name), 0o644))
	}
	testrig.Must(t, os.Chmod(in("shut"), 0), os.Chmod(in("list"), 0o644), os.Chmod(in("secret"), 0))
	t.Cleanup(func() { testrig.Must(t, os.Chmod(in("shut"), 0o755), os.Chmod(in("list"), 0o755)) })
	var out bytes.Buffer
	p := &Packer{Root: userRoot(t, top), Top: "/", Out: &out, Most: testMost}
	testrig.Must(t, p.Pack(t.Context()))
	note := strings.Join(p.Notes("be read"), "\n")
	for _, want := range []string{"3 entries could not be read: ", "/shut", "/list/f", "/secret", "permission denied"} {
		if !strings.Contains(note, want) {
			t.Errorf("no %q in %q", want, note)
		}
	}
	var names []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	slices.Sort(names)
	if got, want := strings.Join(names, " "), "./ a list/ shut/ z"; got != want {
		t.Errorf("packed are %q, want %q", got, want)
	}

	// A directory that cannot be packed at all is an error, and so is one that is none.
	for at, want := range map[string]root.Code{"/shut": "", "/none": root.NotExist} {
		p := &Packer{Root: userRoot(t, top), Top: at, Out: io.Discard, Most: testMost}
		err := p.Pack(t.Context())
		if (err == nil) != (want == "") || want != "" && root.CodeOf(err) != want {
			t.Errorf("%s: %v", at, err)
		}
		if want == "" && p.Failed.N != 1 {
			t.Errorf("%s: %q", at, p.Notes("be read"))
		}
	}
}

// TestUnwritable: what a user may not write is counted and named, and the rest is unpacked.
func TestUnwritable(t *testing.T) {
	needs.OpenAt2(t)
	top := open(t)
	testrig.Must(t, os.Mkdir(filepath.Join(top, "in"), 0o777), os.Chmod(filepath.Join(top, "in"), 0o777), os.Mkdir(filepath.Join(top, "in/shut"), 0o555))
	u := &Unpacker{Root: userRoot(t, top), Top: "/in", Most: testMost, In: bytes.NewReader(archive(t, "x",
		dir("shut"), file("shut/f"), dir("shut/d"), link("shut/l", "x"), file("z")))}
	testrig.Must(t, u.Unpack(t.Context()))
	note := strings.Join(u.Notes("be written"), "\n")
	if u.Failed.N != 3 || u.Files != 1 || !strings.Contains(note, "3 entries could not be written: ") || !strings.Contains(note, "permission denied") {
		t.Errorf("%q", note)
	}
	// Where not even its directory can be made, nothing is.
	u = &Unpacker{Root: userRoot(t, top), Top: "/in/shut/new", Most: testMost, In: bytes.NewReader(archive(t, "x", file("z")))}
	if err := u.Unpack(t.Context()); root.CodeOf(err) != root.Denied || u.Files != 0 {
		t.Errorf("%v", err)
	}
}

// TestLeftOut: what is hidden, skipped or to stay is not touched.
func TestLeftOut(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	in := func(name string) string { return filepath.Join(top, name) }
	for name, size := range map[string]int{"a": 1, ".git/config": 20, "hidden/kept": 8, "hidden/b": 1, "proc/1": 1} {
		name = in("src/" + name)
		testrig.Must(t, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, make([]byte, size), 0o644))
	}
	testrig.Must(t, os.Symlink("a", in("src/l")), os.Symlink("a", in("src/m")))
	var out bytes.Buffer
	p := &Packer{
		Root: newRoot(t, top), Top: "/src", Out: &out, Most: testMost, Skip: map[string]bool{"/src/proc": true},
		Hides: func(at string, dir bool) bool {
			return at == "/src/hidden" && dir || at == "/src/hidden/b" || at == "/src/l"
		},
	}
	testrig.Must(t, p.Pack(t.Context()))
	if p.Files != 3 || p.Links != 1 || p.Dirs != 2 || p.Skipped.N != 1 || !strings.Contains(p.Notes("be read")[0], "/src/proc") {
		t.Errorf("%s, %q", p.Text("Packed"), p.Notes("be read"))
	}
	u := &Unpacker{
		Root: newRoot(t, top), Top: "/out", In: &out, Most: testMost, MaxFile: 8,
		Leaves: func(at string, e *Entry) bool { return at == "/out/a" || e.Kind == Link },
	}
	testrig.Must(t, u.Unpack(t.Context()))
	// The directory that was hidden is made for what is below it.
	got := picture(t, in("out"))
	if strings.Join(sorted(got), " ") != ". .git hidden hidden/kept" || u.Failed.N != 1 || !strings.Contains(strings.Join(u.Notes("be written"), ""), "a file may have 8") {
		t.Errorf("%q, %q", got, u.Notes("be written"))
	}
}

// TestHardLinkToHidden: a hard link is a copy only of what may be read.
func TestHardLinkToHidden(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	testrig.Must(t, os.WriteFile(filepath.Join(top, ".env"), []byte("secret"), 0o644))
	u := &Unpacker{
		Root: newRoot(t, top), Top: "/", Most: testMost, In: bytes.NewReader(archive(t, "x", file("f"), hard("copy", ".env"), hard("fine", "f"))),
		Readable: func(at string) error {
			if at == "/.env" {
				return errors.New("read asks about it")
			}
			return nil
		},
	}
	testrig.Must(t, u.Unpack(t.Context()))
	if _, err := os.Lstat(filepath.Join(top, "copy")); err == nil {
		t.Error("it was copied")
	}
	if note := strings.Join(u.Notes("be written"), ""); u.Failed.N != 1 || u.Files != 2 || !strings.Contains(note, "read asks about it") {
		t.Errorf("%q", note)
	}
}

// TestSwapped: entries that become something else between two looks are counted, and never
// packed as what they were, nor as what they lead to.
func TestSwapped(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	in := func(name string) string { return filepath.Join(top, name) }
	testrig.Must(t, os.MkdirAll(in("src/d"), 0o755), os.MkdirAll(in("src/e"), 0o755), os.WriteFile(in("secret"), []byte("secret"), 0o644),
		os.WriteFile(in("src/e/f"), []byte("e"), 0o644), os.WriteFile(in("src/f"), []byte("f"), 0o644), os.WriteFile(in("src/g"), []byte("g"), 0o644),
		os.Symlink("f", in("src/l")), os.Symlink("f", in("src/m")))
	swap := map[string]func() error{
		"/src/f": func() error { return errors.Join(os.Remove(in("src/f")), os.Symlink("../secret", in("src/f"))) },
		"/src/g": func() error { return os.Remove(in("src/g")) },
		"/src/l": func() error { return errors.Join(os.Remove(in("src/l")), os.WriteFile(in("src/l"), nil, 0o644)) },
		"/src/m": func() error { return os.Remove(in("src/m")) },
		"/src": func() error { // directories come after what is beside them
			return errors.Join(os.Remove(in("src/d")), os.RemoveAll(in("src/e")), os.Symlink("..", in("src/e")))
		},
	}
	first := true
	var out bytes.Buffer
	p := &Packer{Root: newRoot(t, top), Top: "/src", Out: &out, Most: testMost, Hides: func(at string, dir bool) bool {
		if f := swap[at]; f != nil && !dir {
			testrig.Must(t, f())
		}
		if first && !dir { // the directory has been opened, and is listed
			first = false
			testrig.Must(t, swap["/src"]())
		}
		return false
	}}
	testrig.Must(t, p.Pack(t.Context()))
	if p.Files != 0 || p.Links > 1 || p.Failed.N+p.Links < 5 || bytes.Contains(out.Bytes(), []byte("secret")) {
		t.Errorf("%s, %q", p.Text("Packed"), p.Notes("be read"))
	}
}

// TestTooDeep: a tree without an end is packed to where names may be, and says so.
func TestTooDeep(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	testrig.Must(t, os.MkdirAll(filepath.Join(top, strings.Repeat("d/", MaxDepth+2)), 0o755))
	p := &Packer{Root: newRoot(t, top), Top: "/", Out: io.Discard, Most: testMost}
	testrig.Must(t, p.Pack(t.Context()))
	if note := strings.Join(p.Notes("be read"), ""); p.Dirs != MaxDepth+1 || p.Failed.N != 1 || !strings.Contains(note, "more than 1000 directories deep") {
		t.Errorf("%d directories, %q", p.Dirs, note)
	}
}

// TestEndsInBetween: a context that ends, and a stream that breaks, are the error, whatever
// was going on.
func TestEndsInBetween(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	testrig.Must(t, os.WriteFile(filepath.Join(top, "f"), make([]byte, 200<<10), 0o644))
	why := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := &Packer{Root: newRoot(t, top), Top: "/", Most: testMost, Out: writerFunc(func(b []byte) (int, error) { cancel(why); return len(b), nil })}
	if err := p.Pack(ctx); !errors.Is(err, why) {
		t.Errorf("pack: %v", err)
	}
	whole := pack(t, top)
	for after := range int64(8) {
		ctx, cancel := context.WithCancelCause(t.Context())
		broken := errors.New("connection reset")
		for name, u := range map[string]*Unpacker{
			"cancelled": {In: io.MultiReader(bytes.NewReader(whole[:after*700]), readerFunc(func([]byte) (int, error) { cancel(why); return 0, io.EOF }))},
			"broken":    {In: io.MultiReader(bytes.NewReader(whole[:after*700]), readerFunc(func([]byte) (int, error) { return 0, broken }))},
		} {
			u.Root, u.Top, u.Most = newRoot(t, t.TempDir()), "/", testMost
			use, want := t.Context(), broken
			if name == "cancelled" {
				use, want = ctx, why
			}
			if err := u.Unpack(use); !errors.Is(err, want) || u.Files != 0 {
				t.Errorf("%s after %d bytes: %v", name, after*700, err)
			}
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestGitArchive: what git writes, with its global header, is read.
func TestGitArchive(t *testing.T) {
	needs.OpenAt2(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	top := t.TempDir()
	in := func(name string) string { return filepath.Join(top, name) }
	testrig.Must(t, os.MkdirAll(in("src/d"), 0o755), os.WriteFile(in("src/d/f"), []byte("f"), 0o755), os.Symlink("d/f", in("src/l")))
	command(t, nil, nil, "git", "-C", in("src"), "init", "-q")
	command(t, nil, nil, "git", "-C", in("src"), "add", ".")
	command(t, nil, nil, "git", "-C", in("src"), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")
	var out bytes.Buffer
	command(t, nil, &out, "git", "-C", in("src"), "-c", "tar.umask=0022", "archive", "HEAD")
	if !bytes.Contains(out.Bytes(), []byte("pax_global_header")) {
		t.Error("git writes no global header any more: the test shows nothing")
	}
	unpack(t, &out, in("got"))
	testrig.Must(t, os.RemoveAll(in("src/.git")))
	compare(t, "git archive", in("got"), in("src"))
}

// TestNames: names that no archive may have.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{"": "without a name", "a\x00b": "NUL", "/": "absolute", "a/..": "leads out"} {
		if got, err := cleanName(name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x00") {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// TestBounds: an archive has no more bytes and entries than it may have.
func TestBounds(t *testing.T) {
	var out bytes.Buffer
	p := &Packer{Out: &out, Most: 600}
	p.begin()
	add := func(name string) error {
		return p.add(root.Info{Path: "/" + name}, &tar.Header{Typeflag: tar.TypeDir}, nil)
	}
	if err := add("d"); err != nil {
		t.Error(err)
	}
	if err := add("e"); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "more than 600 bytes") {
		t.Errorf("a second header of 512 bytes: %v", err)
	}
	p.entries = MaxEntries
	if err := add("f"); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "1000000 entries") {
		t.Errorf("one more entry: %v", err)
	}
	r := NewReader(bytes.NewReader(archive(t, "", file("f"))), testMost)
	r.entries = MaxEntries
	if _, err := r.Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one more entry is read: %v", err)
	}
}

// TestDiskFull: a disk that is full ends the unpacking; going on would fail for each file.
func TestDiskFull(t *testing.T) {
	needs.OpenAt2(t)
	if os.Getuid() != 0 {
		t.Skip("mounts a small file system")
	}
	top := t.TempDir()
	if err := unix.Mount("none", top, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("mount: ", err)
	}
	t.Cleanup(func() { testrig.Must(t, unix.Unmount(top, unix.MNT_DETACH)) })
	u := &Unpacker{Root: newRoot(t, top), Top: "/", Most: testMost, In: bytes.NewReader(archive(t, strings.Repeat("x", 30_000), file("a"), file("b"), file("c"), file("d"), file("e")))}
	if err := u.Unpack(t.Context()); !errors.Is(err, unix.ENOSPC) || u.Failed.N != 0 || u.Files < 1 || u.Files > 2 {
		t.Errorf("%v, %d files, %q", err, u.Files, u.Notes("be written"))
	}
}
