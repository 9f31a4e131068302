package treetar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run/root"
)

const testMost = 1 << 30

func newRoot(t testing.TB, dir string) *root.Root {
	t.Helper()
	r, err := root.New(root.Config{Dir: dir, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// grow makes a random tree of about n entries below dir, which exists.
func grow(t testing.TB, rnd *rand.Rand, dir string, n int) (files int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	dirs, made := []string{dir}, []string{}
	modes := map[string]os.FileMode{}
	for range n {
		in := dirs[rnd.IntN(len(dirs))]
		at := filepath.Join(in, randomName(rnd))
		if _, err := os.Lstat(at); err == nil || len(at) > 3000 {
			continue
		}
		switch k := rnd.IntN(20); {
		case k < 4:
			must(os.Mkdir(at, 0o755))
			dirs = append(dirs, at)
			modes[at] = []os.FileMode{0o755, 0o700, 0o555, 0o750, 0o500, 0o777}[rnd.IntN(6)]
		case k < 7:
			must(os.Symlink([]string{"../x", "/etc/passwd", ".", "..", "a\nb", "\xff\xfe", strings.Repeat("l/", 300), at}[rnd.IntN(8)], at))
		case k == 7 && len(made) > 0:
			must(os.Link(made[rnd.IntN(len(made))], at))
			files++
		default:
			size := []int{0, 1, 511, 512, 513, rnd.IntN(5000), rnd.IntN(5000), 64 << 10, 600<<10 + rnd.IntN(10)}[rnd.IntN(9)]
			if size > 70<<10 && rnd.IntN(8) > 0 {
				size = 3
			}
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			must(os.WriteFile(at, b, 0o644))
			must(os.Chmod(at, os.FileMode(rnd.IntN(0o1000))|0o400))
			made = append(made, at)
			files++
		}
	}
	for d, m := range modes {
		must(os.Chmod(d, m))
	}
	return files
}

// randomName is a name of any bytes that names may have.
func randomName(rnd *rand.Rand) string {
	switch rnd.IntN(8) {
	case 0:
		return strings.Repeat("n", 1+rnd.IntN(255))
	case 1:
		return []string{"...", "-rf", "a\nb", "\xff\xfe", "ü", " ", "a ", "\x1b[2J", "\u202e", "*", "\"q", "a\\b", ".git", "~", "%s"}[rnd.IntN(15)]
	}
	b := make([]byte, 1+rnd.IntN(12))
	for i := range b {
		for b[i] == 0 || b[i] == '/' {
			b[i] = byte(rnd.Uint32())
		}
	}
	if s := string(b); s != "." && s != ".." {
		return s
	}
	return "d"
}

// picture is all that there is below dir: kinds, modes, contents, links.
func picture(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(at)
			if err != nil {
				return err
			}
			text += to
		case info.Mode().IsRegular():
			b, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			text += string(b)
		}
		rel, _ := filepath.Rel(dir, at)
		all[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func compare(t testing.TB, what, got, want string) {
	t.Helper()
	g, w := picture(t, got), picture(t, want)
	for name := range w {
		if v, ok := g[name]; !ok || v != w[name] {
			t.Errorf("%s: %q is %.80q (there: %v), want %.80q", what, name, v, ok, w[name])
		}
	}
	for name := range g {
		if _, ok := w[name]; !ok {
			t.Errorf("%s: %q is there and should not be", what, name)
		}
	}
}

func command(t testing.TB, stdin io.Reader, stdout io.Writer, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = stdin, stdout, &stderr, append(os.Environ(), "LC_ALL=C.UTF-8")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v: %s", argv, err, stderr.String())
	}
}

func pack(t testing.TB, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	p := &Packer{Root: newRoot(t, filepath.Dir(dir)), Top: "/" + filepath.Base(dir), Out: &out, Most: testMost}
	if err := p.Pack(t.Context()); err != nil || p.Failed.N > 0 {
		t.Fatalf("pack: %v, %v", err, p.Notes("be read"))
	}
	return out.Bytes()
}

func unpack(t testing.TB, in io.Reader, dir string) *Unpacker {
	t.Helper()
	u := &Unpacker{Root: newRoot(t, filepath.Dir(dir)), Top: "/" + filepath.Base(dir), In: in, Most: testMost}
	if err := u.Unpack(t.Context()); err != nil {
		t.Fatalf("unpack: %v", err)
	}
	return u
}

// Random trees come out as cp -a copies them, whoever packs and whoever unpacks: we, or
// GNU tar. Over what is there too.
func TestOracle(t *testing.T) {
	needs.OpenAt2(t)
	for _, tool := range []string{"tar", "cp"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	rounds, files := max(2, testrig.Rounds(12)), 0
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		top := t.TempDir()
		t.Cleanup(func() { command(t, nil, nil, "chmod", "-R", "u+rwX", top) }) // for TempDir
		in := func(name string) string { return filepath.Join(top, name) }
		if err := os.Mkdir(in("src"), 0o755); err != nil {
			t.Fatal(err)
		}
		n := grow(t, rnd, in("src"), 700)
		files += n
		command(t, nil, nil, "cp", "-a", in("src"), in("want"))
		ours := pack(t, in("src"))

		unpack(t, bytes.NewReader(ours), in("ours"))
		compare(t, fmt.Sprintf("seed %d, ours to ours", seed), in("ours"), in("want"))
		if again := pack(t, in("ours")); len(again) != len(ours) {
			t.Errorf("seed %d: packed again it has %d bytes, not %d", seed, len(again), len(ours))
		}

		if err := os.Mkdir(in("gnu"), 0o755); err != nil {
			t.Fatal(err)
		}
		command(t, bytes.NewReader(ours), nil, "tar", "-C", in("gnu"), "-xp", "-f", "-")
		compare(t, fmt.Sprintf("seed %d, ours to tar", seed), in("gnu"), in("want"))

		var theirs bytes.Buffer
		format := []string{"gnu", "pax"}[seed%2]
		command(t, nil, &theirs, "tar", "-C", in("src"), "-c", "--sparse", "--format="+format, "-f", "-", ".")
		u := unpack(t, &theirs, in("theirs"))
		if u.Failed.N > 0 || u.Skipped.N > 0 || u.Files != n {
			t.Errorf("seed %d, tar %s: %d files of %d, %v", seed, format, u.Files, n, u.Notes("be written"))
		}
		compare(t, fmt.Sprintf("seed %d, tar %s to ours", seed, format), in("theirs"), in("want"))

		// Over itself: all files are there, and nothing changes. Without root that works
		// only where the directories may be written to.
		if os.Getuid() == 0 && seed%3 == 0 {
			unpack(t, bytes.NewReader(ours), in("ours"))
			compare(t, fmt.Sprintf("seed %d, twice", seed), in("ours"), in("want"))
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d trees, %d files", rounds, files)
}

// A reader and a writer that are slow, or stop, hold nothing up but themselves.
func TestCancel(t *testing.T) {
	needs.OpenAt2(t)
	dir := t.TempDir()
	t.Cleanup(func() { command(t, nil, nil, "chmod", "-R", "u+rwX", dir) }) // for TempDir
	grow(t, rand.New(rand.NewPCG(1, 1)), dir, 200)
	for _, after := range []int64{0, 1, 512, 10_000, 100_000} {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the client is gone")
		p := &Packer{Root: newRoot(t, dir), Top: "/", Most: testMost}
		p.Out = writerFunc(func(b []byte) (int, error) {
			if after -= int64(len(b)); after < 0 {
				cancel(gone)
				return 0, gone
			}
			return len(b), nil
		})
		if err := p.Pack(ctx); !errors.Is(err, gone) {
			t.Errorf("after %d bytes: %v", after, err)
		}
		cancel(nil)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
