package layers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

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
