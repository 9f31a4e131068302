package mount

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// TestLayersAgain: layers that an overlay wrote to are mounted again when it is gone, with all that
// was written, and are written to.
func TestLayersAgain(t *testing.T) {
	t.Parallel()
	from := source{ownedDir(t, sourceUID, sourceUID), sourceUID, sourceUID}
	d := Session{
		Claim: &sandbox.Claim{Worktree: sandbox.Worktree{Source: from.dir}}, ToolUID: toolUID, ToolGID: toolUID, Staging: t.TempDir(),
	}.detaching()
	defer d.close()
	was := &sandbox.Overlay{Upper: ownedDir(t, 0, 0)}
	make := func() (*os.File, error) { return d.layered(from, nil, was.Upper, RenamesRedirect) }
	for _, name := range []string{"one", "two", "three"} {
		tree, err := make()
		if err == nil {
			err = unix.Mkdirat(int(tree.Fd()), name, 0o755)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
		make = func() (*os.File, error) { return d.again(from, was) }
	}
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", was.Upper.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"root/one", "root/two", "root/three"} {
		if _, missing := root.Stat(name); missing != nil {
			err = errors.Join(err, missing)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
