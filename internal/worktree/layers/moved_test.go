package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
)

// TestMovedWithoutHandles: an overlay marks what it copies from a source whose file system has no
// handles with an empty attribute. What lies in a moved directory and is changed there is found
// by that, also in a layer that was made of several.
func TestMovedWithoutHandles(t *testing.T) {
	needs.OpenAt2(t)
	s, tree := rig(t)
	root := filepath.Join(s.layers(), tree.Upper, "root")
	testrig.Must(t, os.MkdirAll(filepath.Join(root, "e/sub"), 0o755))
	for _, set := range [][3]string{{"e", attrRedirect, "/d"}, {"e", attrOrigin, ""}, {"e/sub", attrOrigin, ""}} {
		err := unix.Lsetxattr(filepath.Join(root, set[0]), set[1], []byte(set[2]), 0)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("needs root and extended attributes: ", err)
		}
		testrig.Must(t, err)
	}
	tree = must[*Tree](t)(s.Freeze("ses_1", Checkpoint{}))
	write(t, s, tree, "file")
	tree = must[*Tree](t)(s.Freeze("ses_1", Checkpoint{}))
	one := must[*Welded](t)(Welding{s}.Weld(t.Context(), tree.Lower))
	defer one.Release()
	for what, lower := range map[string][]string{"as they are": tree.Lower, "as one": {one.Layer}} {
		got := must[[]Moved](t)(FindMoved(t.Context(), s, &Tree{Lower: lower}))
		if len(got) != 2 || got[0].Path != "e" || got[0].From != "d" || got[1].Path != "e/sub" || got[1].From != "d/sub" {
			t.Errorf("layers %s: %+v", what, got)
		}
	}
}

// TestMovedTooMany: a hundred thousand directories that lie too deep, or whose paths are together
// too much to keep, are one on the list and a count.
func TestMovedTooMany(t *testing.T) {
	needs.OpenAt2(t)
	s, tree := rig(t)
	root := filepath.Join(s.layers(), tree.Upper, "root")
	testrig.Must(t, os.MkdirAll(root, 0o755))
	fd := must[int](t)(unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0))
	deep := strings.Repeat("d", 250)
	for range maxPath / len(deep) {
		testrig.Must(t, unix.Mkdirat(fd, deep, 0o755))
		next := must[int](t)(unix.Openat(fd, deep, unix.O_PATH|unix.O_DIRECTORY, 0))
		testrig.Must(t, unix.Close(fd))
		fd = next
	}
	defer unix.Close(fd)
	for i := range 200 {
		testrig.Must(t, unix.Mkdirat(fd, fmt.Sprintf("%0200d", i), 0o755))
	}
	t.Cleanup(func() { _ = beneath.RemoveAll(root) }) // the test's directory is removed by paths
	got := must[[]Moved](t)(FindMoved(t.Context(), s, tree))
	if len(got) != 1 || got[0].From != "" || got[0].More != 199 || len(got[0].Path) <= maxPath {
		t.Errorf("too deep: %d, %.100v", len(got), got)
	}

	m, sum := &mover{room: maxFound, steps: maxSteps, rest: -1}, 0
	for i := range 10_000 {
		m.add(Moved{Path: fmt.Sprintf("%0*d", maxPath, i), From: "d"})
	}
	for _, d := range m.found {
		sum += len(d.Path)
	}
	last := m.found[len(m.found)-1]
	if sum > maxFound+maxPath || last.From != "" || len(m.found)+last.More != 10_000 {
		t.Errorf("too many: %d with %d bytes, the last stands for %d more", len(m.found), sum, last.More)
	}
}

// TestMovedDeep: how many names a look goes through is bounded, also of directories on the way to
// others, however a session has arranged them. What is not looked at is one on the list and a count.
func TestMovedDeep(t *testing.T) {
	needs.OpenAt2(t)
	for _, deep := range []int{maxDeep - 10, maxDeep + 20} {
		const beside = 50
		s, tree := rig(t)
		root := filepath.Join(s.layers(), tree.Upper, "root")
		testrig.Must(t, os.MkdirAll(root, 0o755))
		fd := must[int](t)(unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0))
		for range deep {
			testrig.Must(t, unix.Mkdirat(fd, "d", 0o755))
			next := must[int](t)(unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0))
			testrig.Must(t, unix.Close(fd))
			fd = next
		}
		for i := range beside {
			testrig.Must(t, unix.Mkdirat(fd, fmt.Sprint(i), 0o755))
		}
		testrig.Must(t, unix.Close(fd))
		t.Cleanup(func() { _ = beneath.RemoveAll(root) }) // the test's directory is removed by paths
		m := &mover{ctx: t.Context(), room: maxFound, steps: maxSteps, rest: -1}
		testrig.Must(t, m.find(s, tree))
		if took, most := maxSteps-m.steps, (deep+beside)*2*3*openSteps; took > most || m.open != 0 {
			t.Errorf("%d deep: it took %d steps, want at most %d; %d are open", deep, took, most, m.open)
		}
		if got := m.found; deep < maxDeep && len(got) != 0 || deep > maxDeep && (len(got) != 1 || got[0].From != "" || got[0].More != 0) {
			t.Errorf("%d deep: %d, %.100v", deep, len(got), got)
		}
		m = &mover{ctx: t.Context(), room: maxFound, steps: 100 * openSteps, rest: -1}
		testrig.Must(t, m.find(s, tree))
		if got := m.found; len(got) != 1 || got[0].From != "" || m.steps < -2*openSteps-maxDeep {
			t.Errorf("%d deep, and few steps: %d left, %d, %.100v", deep, m.steps, len(got), got)
		}
	}
}
