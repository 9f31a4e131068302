package layers

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/testrig"
)

// diskRig is a store with a tree on a disk of its own.
func diskRig(t *testing.T) (*Store, *Tree) {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "worktrees"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	if err := s.Bounded(); err != nil {
		testrig.Skipf(t, "loop", "no disks in files: %v", err)
	}
	return s, beginOn(t, s, "ses_1", nil)
}

func beginOn(t *testing.T, s *Store, session string, lower []string) *Tree {
	t.Helper()
	disk, release, err := s.NewDisk(loopdisk.Least)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	tree := &Tree{Session: session, Disk: disk, Lower: lower}
	if err := s.Begin(tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// put does what an overlay would, with so many bytes, or less where there is no room.
func put(t *testing.T, s *Store, layer, name string, size int) error {
	t.Helper()
	path, release, err := s.at(layer)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := os.MkdirAll(filepath.Join(path, "root"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(path, "root", name), make([]byte, size), 0o644)
}

// files are the disks of a store, and mounted those that are held.
func files(t *testing.T, s *Store) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(s.disks.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), diskPrefix) {
			names = append(names, e.Name())
		}
	}
	return names
}

func (s *Store) mounted() int { return len(s.disks.open) }

// endsAsNothing ends ses_1, which has changed nothing.
func endsAsNothing(t *testing.T, s *Store) {
	t.Helper()
	if err := s.End("ses_1", time.Now()); err != nil {
		t.Fatal(err)
	}
	if tree, err := s.Get("ses_1"); !errors.Is(err, ErrNone) {
		t.Errorf("it has changed nothing: %+v, %v", tree, err)
	}
}

// there reports whether a layer is on its disk.
func there(t *testing.T, s *Store, layer string) bool {
	t.Helper()
	path, release, err := s.at(layer)
	if err != nil {
		return false
	}
	defer release()
	_, err = os.Stat(path)
	return err == nil
}

// TestDiskOfTree: a disk is mounted while its tree lives, a fork names layers of it, and it
// goes when nobody names one any more.
func TestDiskOfTree(t *testing.T) {
	s, tree := diskRig(t)
	if err := put(t, s, tree.Upper, "a", 1<<20); err != nil {
		t.Fatal(err)
	}
	frozen := tree.Upper
	tree = must[*Tree](t)(s.Freeze("ses_1", Checkpoint{Name: "one"}))
	fork := beginOn(t, s, "ses_2", tree.Lower)
	if fork.Disk == tree.Disk || s.mounted() != 2 || len(files(t, s)) != 2 {
		t.Errorf("disks %q and %q, %d are mounted, files %v", tree.Disk, fork.Disk, s.mounted(), files(t, s))
	}
	if err := put(t, s, fork.Upper, "b", 1); err != nil {
		t.Fatal(err)
	}
	if n := s.Bytes(tree, frozen); n < 1<<20 || n > 2<<20 {
		t.Errorf("a layer of a megabyte has %d bytes", n)
	}
	left := tree.Upper
	tree = must[*Tree](t)(s.Reset("ses_1"))
	must[*Tree](t)(s.Drop("ses_1", "one"))
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if there(t, s, left) || !there(t, s, frozen) || !there(t, s, tree.Upper) {
		t.Error("what was reset is there, or something else is not")
	}
	endsAsNothing(t, s)
	if err := s.Sweep(); err != nil || len(files(t, s)) != 2 {
		t.Errorf("files %v, %v: the fork names a layer of the first", files(t, s), err)
	}
	over := ended(t, s, "ses_2")
	if over == nil || s.mounted() != 0 {
		t.Errorf("at the end of both %d are mounted, %+v", s.mounted(), over)
	}
	if room, err := s.Room(over); err != nil || room != 2*loopdisk.Least {
		t.Errorf("room %v, %v", room, err)
	}
	if got := over.Places(); len(got) != 2 || s.Bytes(over, got[0]) == 0 {
		t.Errorf("places %v", got)
	}
	if err := errors.Join(s.Remove("ses_2"), s.Sweep()); err != nil || len(files(t, s)) != 0 || s.mounted() != 0 {
		t.Errorf("nobody names a layer: %v, %d are mounted, %v", files(t, s), s.mounted(), err)
	}
}

// TestDiskOfNothing: a session that has changed nothing leaves nothing.
func TestDiskOfNothing(t *testing.T) {
	s, _ := diskRig(t)
	endsAsNothing(t, s)
	if len(files(t, s)) != 0 || s.mounted() != 0 {
		t.Errorf("files %v, %d are mounted", files(t, s), s.mounted())
	}
}

// TestDiskFull: a tree can be put aside and begin anew on a disk that is full, and where the
// reserve has come to its end it begins on another one.
func TestDiskFull(t *testing.T) {
	s, tree := diskRig(t)
	first := tree.Disk
	fill := func(name string) {
		t.Helper()
		if err := put(t, s, tree.Upper, name, int(loopdisk.Least)); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	fill("all")
	tree = must[*Tree](t)(s.Freeze("ses_1", Checkpoint{}))
	if len(tree.Lower) != 1 || tree.Disk != first {
		t.Errorf("a full disk took no checkpoint: %+v", tree)
	}
	tree = must[*Tree](t)(s.Laid("ses_1"))
	root := must[*os.File](t)(s.disks.hold(first))
	defer s.disks.release(first)
	for i := 0; !errors.Is(loopdisk.Spend(root), unix.ENOSPC); i++ {
		fill("all" + strconv.Itoa(i))
	}
	if _, err := s.Freeze("ses_1", Checkpoint{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a checkpoint without a reserve: %v", err)
	}
	if again := must[*Tree](t)(s.Get("ses_1")); len(again.Checkpoints) != 1 || again.Upper != tree.Upper {
		t.Errorf("after it failed: %+v", again)
	}
	tree = must[*Tree](t)(s.Reset("ses_1"))
	if tree.Disk == first || len(tree.Lower) != 0 {
		t.Errorf("it began again on the full disk: %+v", tree)
	}
	if err := s.Sweep(); err != nil || len(files(t, s)) != 2 {
		t.Errorf("files %v, %v: its checkpoint is on the first", files(t, s), err)
	}
}

// TestDiskAfterKill: what a store that was killed had not put on record goes, and what it had
// is found by the next.
func TestDiskAfterKill(t *testing.T) {
	s, tree := diskRig(t)
	if err := put(t, s, tree.Upper, "a", 1); err != nil {
		t.Fatal(err)
	}
	if err := loopdisk.Create(s.disks.dir, diskPrefix+"stray", loopdisk.Least); err != nil {
		t.Fatal(err)
	}
	if err := loopdisk.Create(s.disks.dir, removing+diskPrefix+"old", loopdisk.Least); err != nil {
		t.Fatal(err)
	}
	next, err := Open(s.dir) // the first still has it mounted, as a sandbox would
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if got := next.Present(must[*Tree](t)(next.Get("ses_1"))); !slices.Equal(got, []string{tree.Upper}) {
		t.Errorf("layers %v", got)
	}
	if err := next.Sweep(); err != nil || !slices.Equal(files(t, next), []string{tree.Disk}) {
		t.Errorf("files %v, %v", files(t, next), err)
	}
}

// TestMend: layers that a disk has lost are no part of a tree any more, in whatever place it names
// them; the others are what they were.
func TestMend(t *testing.T) {
	s, tree := diskRig(t)
	var all []string
	for range 3 {
		testrig.Must(t, put(t, s, tree.Upper, "f", 1))
		all = append(all, tree.Upper)
		var err error
		tree, err = s.Freeze(tree.Session, Checkpoint{})
		testrig.Must(t, err)
	}
	testrig.Must(t, put(t, s, tree.Upper, "f", 1))
	testrig.Must(t, s.End(tree.Session, time.Now()))
	tree, err := s.Get(tree.Session)
	testrig.Must(t, err)
	if now, lost, err := Mend(s, tree); err != nil || len(lost) != 0 || !slices.Equal(now.All(), tree.All()) {
		t.Fatalf("nothing was lost: %q, %v", lost, err)
	}
	for _, layer := range []string{tree.Upper, all[1]} {
		path, release, err := s.at(layer)
		testrig.Must(t, err)
		testrig.Must(t, os.RemoveAll(path))
		release()
	}
	if _, err := s.OpenLayers(tree.Layers()); err == nil {
		t.Fatal("what is not there can be opened")
	}
	now, lost, err := Mend(s, tree)
	if err != nil || len(lost) != 2 || now.Upper != "" || !slices.Equal(now.Lower, []string{all[2], all[0]}) ||
		!slices.Equal(now.Checkpoints[2].Layers, []string{all[2], all[0]}) || !slices.Equal(now.Checkpoints[0].Layers, all[:1]) {
		t.Errorf("got %+v, %q, %v", now, lost, err)
	}
	open, err := s.OpenLayers(now.Layers())
	testrig.Must(t, err)
	open.Close()
}

// TestBoundedBefore615: layers have disks on kernels that clone no mount that is attached nowhere.
func TestBoundedBefore615(t *testing.T) {
	s, _ := diskRig(t) // or there are none on any kernel
	defer mount.LikeBefore615()()
	s.bounded = false
	if c := s.Check(); c.Status != client.CheckOK {
		t.Errorf("%+v", c)
	}
}
