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

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree/apply"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *os.File {
	t.Helper()
	needs.OpenAt2(t)
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func me() thread.User { return thread.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())} }

// write makes files below dir: a name that ends with a slash is a directory, a
// content that begins with "-> " a link.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		full := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		link, isLink := strings.CutPrefix(content, "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
			must(t, os.MkdirAll(full, 0o755))
		case isLink:
			must(t, os.Symlink(link, full))
		default:
			must(t, os.WriteFile(full, []byte(content), 0o644))
		}
	}
}

// look reads all that is below dir, in the form that write takes.
func look(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			got[rel+"/"] = ""
		case d.Type()&os.ModeSymlink != 0:
			to, err := os.Readlink(p)
			got[rel] = "-> " + to
			return err
		case !d.Type().IsRegular():
			got[rel] = d.Type().String()
			return nil
		default:
			data, err := os.ReadFile(p)
			got[rel] = string(data)
			return err
		}
		return nil
	}))
	return got
}

func pack(t testing.TB, dir string) (*Manifest, []byte) {
	t.Helper()
	var b bytes.Buffer
	m, err := Pack(t.Context(), &b, open(t, dir), me(), Into{Prefix: "workspace", UID: 1000, GID: 1000}, DefaultLimits)
	must(t, err)
	var kept bytes.Buffer
	must(t, m.Write(&kept))
	m, err = ReadManifest(&kept)
	must(t, err)
	return m, b.Bytes()
}

// unpack is what the other side has.
func unpack(t testing.TB, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, "workspace")
		}
		must(t, err)
		full := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			must(t, os.MkdirAll(full, 0o755))
		case tar.TypeSymlink:
			must(t, os.Symlink(h.Linkname, full))
		default:
			f, err := os.OpenFile(full, os.O_CREATE|os.O_WRONLY, os.FileMode(h.Mode))
			must(t, err)
			_, err = io.Copy(f, r)
			must(t, errors.Join(err, f.Close()))
		}
	}
}

func TestThereAndBack(t *testing.T) {
	here := t.TempDir()
	write(t, here, map[string]string{
		"same": "same", "edit": "old", "gone": "x", "dir/": "", "dir/deep/f": "f", "old/": "", "old/f": "f", "link": "-> same", "relink": "-> a",
		"swap": "file", "swapdir/": "", "swapdir/x": "x", ".git/config": "c", "run": "#!", "touched": "a", "both": "a", "bothgone": "a", "awkward \n": "n",
	})
	must(t, unix.Mkfifo(filepath.Join(here, "fifo"), 0o644))
	m, archive := pack(t, here)
	if len(m.entries) != 20 {
		t.Errorf("%d entries in the manifest", len(m.entries))
	}
	there := unpack(t, archive)
	before := look(t, here)
	delete(before, "fifo")
	for _, name := range []string{"gone", "old", "relink", "swap", "swapdir", "bothgone"} {
		must(t, os.RemoveAll(filepath.Join(there, name)))
	}
	write(t, there, map[string]string{
		"edit": "new", "relink": "-> b", "swap/": "", "swap/in": "i", "swapdir": "now a file", "new/deep/f": "n", "new/link": "-> /etc/passwd", "both": "theirs", "added": "theirs",
	})
	must(t, os.Chmod(filepath.Join(there, "run"), 0o755))
	must(t, os.Link(filepath.Join(there, "edit"), filepath.Join(there, "hard")))
	must(t, unix.Mkfifo(filepath.Join(there, "pipe"), 0o644))
	// Meanwhile on this side.
	write(t, here, map[string]string{"both": "ours", "bothgone": "ours", "added": "ours", "mine": "mine"})
	report := applied(t, here, there, m)
	got := look(t, here)
	want := map[string]string{
		"same": "same", "edit": "new", "dir/": "", "dir/deep/": "", "dir/deep/f": "f", "link": "-> same", "relink": "-> b", "swap/": "", "swap/in": "i", "swapdir": "now a file",
		".git/": "", ".git/config": "c", "run": "#!", "touched": "a", "both": "ours", "bothgone": "ours", "added": "ours", "mine": "mine", "new/": "", "new/deep/": "", "new/deep/f": "n",
		"new/link": "-> /etc/passwd", "hard": "new", "awkward \n": "n", "fifo": "",
	}
	delete(got, "fifo")
	delete(want, "fifo")
	for _, name := range slices.Concat(keys(got), keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%q: got %q, want %q", name, got[name], want[name])
		}
	}
	slices.Sort(report.Conflicts)
	if !slices.Equal(report.Conflicts, []string{"added", "both", "bothgone"}) || !slices.Equal(report.Refused, []string{"workspace/pipe"}) {
		t.Errorf("got %+v", report)
	}
	if fi, err := os.Stat(filepath.Join(here, "run")); err != nil || fi.Mode() != 0o755 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

func keys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

// applied packs what is there as an Engine does and applies it.
func applied(t testing.TB, here, there string, m *Manifest) *Report {
	t.Helper()
	var b bytes.Buffer
	tarOf(t, &b, there)
	report, err := Apply(t.Context(), open(t, here), me(), m, kept(t, b.Bytes()), "workspace", journal(t), DefaultLimits)
	must(t, err)
	return report
}

// kept is an archive as a file.
func kept(t testing.TB, archive []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(name, archive, 0o600))
	return name
}

// journal is a directory for a copy back.
func journal(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "journal")
}

// tarOf writes what is there as an Engine does.
func tarOf(t testing.TB, b io.Writer, there string) {
	t.Helper()
	w := tar.NewWriter(b)
	inodes := map[uint64]string{}
	must(t, filepath.Walk(there, func(p string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(filepath.Dir(there), p)
		link, _ := os.Readlink(p)
		h, err := tar.FileInfoHeader(fi, link)
		if err != nil {
			return err
		}
		h.Name = rel
		var st unix.Stat_t
		must(t, unix.Lstat(p, &st))
		first, again := inodes[st.Ino]
		if inodes[st.Ino] = rel; again && fi.Mode().IsRegular() {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		}
		if err := w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
			return err
		}
		data, err := os.ReadFile(p)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}))
	must(t, w.Close())
}

// Nothing that comes back leads out of the directory, and an archive that is not
// whole changes nothing.
func TestHostileArchives(t *testing.T) {
	root := t.TempDir()
	here, outside := filepath.Join(root, "here"), filepath.Join(root, "outside")
	write(t, root, map[string]string{"here/a": "a", "here/out": "-> ../outside", "here/sub/f": "f", "outside/canary": "canary"})
	m, _ := pack(t, here)
	dir := &tar.Header{Name: "workspace/", Typeflag: tar.TypeDir, Mode: 0o755}
	link := func(name, to string) *tar.Header {
		return &tar.Header{Name: "workspace/" + name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	hard := func(name, to string) *tar.Header {
		return &tar.Header{Name: "workspace/" + name, Typeflag: tar.TypeLink, Linkname: to}
	}
	file := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o6777, Size: 4}
	}
	all := func(h ...*tar.Header) []*tar.Header {
		return slices.Concat([]*tar.Header{
			dir, file("workspace/a"), link("out", "../outside"), {Name: "workspace/sub/", Typeflag: tar.TypeDir, Mode: 0o755}, file("workspace/sub/f"),
		}, h)
	}
	for name, headers := range map[string][]*tar.Header{
		"dots":                    all(file("workspace/../outside/canary"), file("../outside/new"), file("workspace/../outside/new2"), file("workspace/sub/../../../outside/canary")),
		"absolute":                all(file(outside+"/canary"), file("/workspace"+outside)),
		"through a link of ours":  all(file("workspace/out/canary"), file("workspace/out/new")),
		"through a link of its":   all(link("evil", outside), file("workspace/evil/canary"), file("workspace/evil/new")),
		"hard link out":           all(hard("h", outside+"/canary"), hard("h2", "workspace/../outside/canary"), hard("h3", "workspace/out/canary")),
		"hard link to a link":     all(link("l", outside+"/canary"), hard("h", "workspace/l")),
		"devices":                 all(&tar.Header{Name: "workspace/dev", Typeflag: tar.TypeBlock, Devmajor: 8}, &tar.Header{Name: "workspace/c", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
		"the directory as a link": {link("", outside), file("workspace/canary")},
		"another directory":       {{Name: "other/", Typeflag: tar.TypeDir, Mode: 0o755}, file("other/a")},
		"twice":                   all(file("workspace/b"), file("workspace/b")),
		"long names":              all(file("workspace/" + strings.Repeat("x/", 400) + "f")),
		"a NUL":                   all(file("workspace/x\x00y")),
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range headers {
				if err := w.WriteHeader(h); err != nil {
					return // Go's own writer refuses it
				}
				if h.Size > 0 {
					fmt.Fprint(w, "evil")
				}
			}
			must(t, w.Close())
			_, err := Apply(t.Context(), open(t, here), me(), m, kept(t, b.Bytes()), "workspace", journal(t), DefaultLimits)
			t.Log(err)
			if got := look(t, outside); len(got) != 1 || got["canary"] != "canary" {
				t.Errorf("outside is %v", got)
			}
			for p, content := range look(t, here) {
				if strings.Contains(content, "canary") && !strings.HasPrefix(content, "-> ") {
					t.Errorf("%s has what is outside", p)
				}
			}
		})
	}
	must(t, os.RemoveAll(here))
	write(t, root, map[string]string{"here/a": "a", "here/sub/f": "f"})
	m, archive := pack(t, here)
	for _, cut := range []int{0, 10, 512, 600, 1024, len(archive) / 2, len(archive) - 512} {
		if _, err := Apply(t.Context(), open(t, here), me(), m, kept(t, archive[:cut]), "workspace", journal(t), DefaultLimits); err == nil {
			t.Errorf("an archive of %d bytes was taken", cut)
		}
	}
	small := Limits{Bytes: 1, Files: 1}
	if _, err := Apply(t.Context(), open(t, here), me(), m, kept(t, archive), "workspace", journal(t), small); !errors.Is(err, apply.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if _, err := Pack(t.Context(), io.Discard, open(t, here), me(), Into{}, small); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// All is done with the owner's ids: what that may not read stays, and what is
// written is the owner's.
func TestOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can work as somebody else")
	}
	here := t.TempDir()
	for dir := here; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	write(t, here, map[string]string{"open": "o", "closed": "secret", "roots/": ""})
	must(t, os.Chmod(filepath.Join(here, "closed"), 0o600))
	must(t, os.Chown(here, 1234, 1234))
	owner := thread.User{UID: 1234, GID: 1234}
	var b bytes.Buffer
	m, err := Pack(t.Context(), &b, open(t, here), owner, Into{Prefix: "workspace"}, DefaultLimits)
	must(t, err)
	if m.Skipped != 1 || bytes.Contains(b.Bytes(), []byte("secret")) {
		t.Errorf("%d skipped; archive %q", m.Skipped, b.Bytes())
	}
	b.Reset()
	w := tar.NewWriter(&b)
	for _, name := range []string{"workspace/", "workspace/open", "workspace/new", "workspace/roots/", "workspace/roots/new", "workspace/closed"} {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 3, Uid: 0, Gid: 0}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size, h.Mode = tar.TypeDir, 0, 0o755
		}
		must(t, w.WriteHeader(h))
		if h.Size > 0 {
			fmt.Fprint(w, "new")
		}
	}
	must(t, w.Close())
	report, err := Apply(t.Context(), open(t, here), owner, m, kept(t, b.Bytes()), "workspace", journal(t), DefaultLimits)
	must(t, err)
	if report.Written != 2 || report.ConflictCount != 2 {
		t.Errorf("got %+v", report)
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(here, "new"), &st))
	if st.Uid != 1234 || st.Gid != 1234 {
		t.Errorf("a new file is %d:%d's", st.Uid, st.Gid)
	}
	if os.Geteuid() != 0 {
		t.Error("the ids of the process have changed")
	}
}

// FuzzApply: no archive makes Apply panic or touch what is outside.
func FuzzApply(f *testing.F) {
	f.Setenv("TMPDIR", "/dev/shm") // Apply waits for disks
	dir := f.TempDir()
	write(f, dir, map[string]string{"a": "a", "sub/b": "b"})
	_, archive := pack(f, dir)
	f.Add(archive)
	f.Fuzz(func(t *testing.T, data []byte) {
		root := t.TempDir()
		here := filepath.Join(root, "here")
		write(t, root, map[string]string{"here/a": "a", "here/sub/b": "b", "canary": "canary"})
		m, _ := pack(t, here)
		_, _ = Apply(t.Context(), open(t, here), me(), m, kept(t, data), "workspace", journal(t), Limits{Bytes: 1 << 20, Files: 100})
		entries, err := os.ReadDir(root)
		must(t, err)
		content, err := os.ReadFile(filepath.Join(root, "canary"))
		if err != nil || string(content) != "canary" || len(entries) != 2 {
			t.Fatalf("outside: %v, %q, %v", entries, content, err)
		}
	})
}
