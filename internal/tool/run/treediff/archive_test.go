package treediff

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree/apply"
)

// unpack carries an archive out in dir, as whoever takes it would.
func unpack(t testing.TB, data []byte, dir string) map[string]Status {
	t.Helper()
	got := make(map[string]Status)
	in := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		status, path := Status(h.PAXRecords[RecordStatus]), filepath.Join(dir, h.Name)
		if got[h.Name] != "" {
			t.Errorf("%q comes twice", h.Name)
		}
		got[h.Name] = status
		checkOld(t, h, path)
		if status == Deleted || status == Type {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if status != Deleted {
			err = unpackOne(h, in, path, status)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.HasSuffix(data, make([]byte, 1024)) {
		t.Error("the archive has no end")
	}
	return got
}

func unpackOne(h *tar.Header, in io.Reader, path string, status Status) error {
	mode := uint32(h.Mode)
	switch h.Typeflag {
	case tar.TypeDir:
		if status != Modified {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
		}
		return unix.Chmod(path, mode)
	case tar.TypeSymlink:
		if status == Modified {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		return os.Symlink(h.Linkname, path)
	case tar.TypeFifo:
		if status != Modified {
			if err := unix.Mkfifo(path, 0o600); err != nil {
				return err
			}
		}
		return unix.Chmod(path, mode)
	case tar.TypeReg:
		data, err := io.ReadAll(in)
		if status == Modified {
			err = errors.Join(err, os.Remove(path))
		}
		return errors.Join(err, os.WriteFile(path, data, 0o600), unix.Chmod(path, mode))
	}
	return fmt.Errorf("an entry of type %q", h.Typeflag)
}

// checkOld compares what an entry says of the base with what is there.
func checkOld(t testing.TB, h *tar.Header, path string) {
	t.Helper()
	kind, sum := Kind(""), ""
	info, err := os.Lstat(path)
	switch {
	case err != nil:
	case info.IsDir():
		kind = Dir
	case info.Mode().IsRegular():
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		kind, sum = File, fmt.Sprintf("%x", sha256.Sum256(data))
	case info.Mode()&fs.ModeSymlink != 0:
		to, _ := os.Readlink(path)
		kind, sum = Link, fmt.Sprintf("%x", sha256.Sum256([]byte(to)))
	default:
		kind = Other
	}
	if h.PAXRecords[RecordOld] != string(kind) || h.PAXRecords[RecordSHA256] != sum {
		t.Errorf("%q is said to have been %v; it is %s %s", h.Name, h.PAXRecords, kind, sum)
	}
}

// The archive of random trees, unpacked over the base, makes the tree, and has what the
// list has.
func TestArchive(t *testing.T) {
	eachTree(t, 21, 150, func(t *testing.T, _ *rand.Rand, r *rig) {
		data, totals := r.write(t, Archive)
		old, new := snapshot(t, r.base), snapshot(t, r.tree)
		got := unpack(t, data, r.base)
		sameTree(t, snapshot(t, r.base), new)
		want := expected(old, new)
		if len(got) != len(want) || totals != (Totals{Files: len(want)}) {
			t.Errorf("%d entries, totals %+v; want %d", len(got), totals, len(want))
		}
		for p, s := range want {
			if got[p] != s {
				t.Errorf("%q: %q; want %q", p, got[p], s)
			}
		}
	})
}

// Files that are not held in memory come whole, and are compared to their end.
func TestLargeFiles(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	data := make([]byte, maxText+chunk+17)
	rand.NewChaCha8([32]byte{}).Read(data)
	changed := bytes.Clone(data)
	changed[len(changed)-1] ^= 1
	text := bytes.Repeat([]byte("line\n"), maxText/5+1)
	err := errors.Join(os.WriteFile(r.base+"/same", data, 0o600), os.WriteFile(r.base+"/changed", data, 0o600),
		os.WriteFile(r.base+"/shorter", data, 0o600), os.WriteFile(r.base+"/gone", text, 0o600))
	tick(t)
	err = errors.Join(err, os.WriteFile(r.tree+"/same", data, 0o600), os.WriteFile(r.tree+"/changed", changed, 0o600),
		os.WriteFile(r.tree+"/shorter", []byte("x\n"), 0o600), os.WriteFile(r.tree+"/text", text, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	list, totals := r.write(t, List)
	all, _ := lines(t, list)
	for _, l := range all {
		if !l.Binary || l.Path == "same" {
			t.Errorf("%+v", l)
		}
	}
	if totals != (Totals{Files: 4}) {
		t.Errorf("totals %+v", totals)
	}
	archive, _ := r.write(t, Archive)
	unpack(t, archive, r.base)
	sameTree(t, snapshot(t, r.base), snapshot(t, r.tree))
}

// A stream that its reader gives up ends the work.
func TestBrokenStream(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	for i := range 100 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", r.tree, i), make([]byte, 100<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []Format{Archive, List} {
		o := r.options(t, f)
		if _, err := Write(t.Context(), o, &broken{}); !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", f, err)
		}
		o.Base.Close()
		o.Tree.Close()
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (*broken) Write([]byte) (int, error) { return 0, errBroken }

// The daemon writes the archive of random trees to the base, so that this becomes the
// tree, but for what cannot be written there.
func TestArchiveApplied(t *testing.T) {
	noFIFOs := func(t testing.TB, dir string) {
		for p, s := range snapshot(t, dir) {
			if s.kind == Other {
				_ = os.Remove(filepath.Join(dir, p))
			}
		}
	}
	eachPrepared(t, 22, 60, noFIFOs, func(t *testing.T, _ *rand.Rand, r *rig) {
		data, _ := r.write(t, Archive)
		want := snapshot(t, r.tree)
		source, err := os.Open(r.base)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		job := &apply.Job{
			Dir: t.TempDir(), Source: source, Owner: thread.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}, Since: math.MaxInt64,
			Request: client.ApplyRequest{IncludeSensitive: true},
		}
		if done, err := job.Run(t.Context(), bytes.NewReader(data)); err != nil {
			t.Fatalf("%+v, %v", done, err)
		}
		sameTree(t, snapshot(t, r.base), want)
	})
}
