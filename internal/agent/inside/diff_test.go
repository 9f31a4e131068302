package inside

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
)

// A worktree is compared with a directory that the tools cannot enter, as the tool user.
func TestDiff(t *testing.T) {
	r := newRig(t, run.Diff{}, run.Revert{})
	c, _ := r.connect(r.hello())
	e := &errand.Errand{Conn: c, NewID: newIDs()}
	if _, err := e.TreeChanges(t.Context(), client.DiffQuery{}); err == nil || !strings.Contains(err.Error(), "no base to be compared with") {
		t.Errorf("without a base: %v", err)
	}
	base := filepath.Join(filepath.Dir(r.dir), "tree/base")
	large := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	err := errors.Join(os.MkdirAll(base, 0o755), os.Chmod(filepath.Dir(base), 0o700), os.WriteFile(base+"/gone", []byte("x\n"), 0o644),
		os.WriteFile(r.dir+"/odd\xff\n", []byte("y\n"), 0o644), os.WriteFile(r.dir+"/large", large, 0o644),
		os.WriteFile(r.dir+"/secret", []byte("root's"), 0o600), os.Symlink("/etc/passwd", r.dir+"/link"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.Run(t.Context(), bashCall("ls", "ls "+base), new(sink))
	if err != nil || o.Result == nil || os.Getuid() == 0 && !o.Result.IsError {
		t.Errorf("the tools look at the base: %+v, %v", o, err)
	}
	got, err := e.TreeChanges(t.Context(), client.DiffQuery{})
	if err != nil {
		t.Fatal(err)
	}
	unreadable := 0
	if os.Getuid() == 0 {
		unreadable = 1
	}
	if len(got.Items) != 5 || got.Files != 5 || got.Unreadable != unreadable || string(got.Items[3].Bytes) != "odd\xff\n" || (got.Items[4].Unreadable != "") != (unreadable == 1) {
		t.Errorf("%+v", got)
	}
	var patch, archive bytes.Buffer
	if totals, err := e.TreeDiff(t.Context(), run.DiffQuery{Format: treediff.Patch, Paths: []string{"gone", "link"}}, 0, &patch); err != nil || totals.Files != 2 {
		t.Errorf("%+v, %v", totals, err)
	}
	if s := patch.String(); !strings.Contains(s, "deleted file mode 100644") || !strings.Contains(s, "+/etc/passwd") || strings.Contains(s, "root:") {
		t.Error(s)
	}
	if _, err := e.TreeDiff(t.Context(), run.DiffQuery{Format: treediff.Archive}, 0, &archive); err != nil {
		t.Fatal(err)
	}
	in, names := tar.NewReader(&archive), ""
	for h, err := in.Next(); err == nil; h, err = in.Next() {
		names += h.Name + " "
		if data := new(bytes.Buffer); h.Name == "large" {
			if _, err := data.ReadFrom(in); err != nil || !bytes.Equal(data.Bytes(), large) {
				t.Errorf("%d bytes, %v", data.Len(), err)
			}
		}
	}
	if want := "gone large link odd\xff\n "; strings.TrimSuffix(names, "secret ") != want {
		t.Errorf("%q; want %q", names, want)
	}
	_, err = e.TreeDiff(t.Context(), run.DiffQuery{Format: treediff.Archive}, 1<<10, new(bytes.Buffer))
	if !errors.Is(err, errand.ErrTooLong) {
		t.Errorf("more than may be: %v", err)
	}
	totals, err := e.TreeRevert(t.Context(), []string{"gone", "odd\xff\n", "large"}, "")
	if err != nil || totals != (treediff.Totals{Files: 3}) {
		t.Errorf("%+v, %v", totals, err)
	}
	back, err := e.TreeChanges(t.Context(), client.DiffQuery{})
	if err != nil || back.Files != 2 {
		t.Errorf("%+v, %v", back, err)
	}
	for _, q := range []run.DiffQuery{{Against: "../tree/base"}, {Against: "a/b"}, {Against: "."}, {Against: "none"}, {Paths: []string{"../x"}}, {Paths: []string{"/etc"}}, {Paths: []string{""}}} {
		_, err := e.TreeDiff(t.Context(), q, 0, new(bytes.Buffer))
		if said, ok := errors.AsType[*run.Error](err); !ok || said.Code != run.CodeInvalidInput && said.Code != run.CodeInvalidPath {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestDiffUnmounted: where what a worktree is compared with is mounted and the worktree is not, nothing of
// it has been removed.
func TestDiffUnmounted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts")
	}
	r := newRig(t, run.Diff{}, run.DiffTouched{}, run.Revert{})
	c, _ := r.connect(r.hello())
	e := &errand.Errand{Conn: c, NewID: newIDs()}
	base := filepath.Join(filepath.Dir(r.dir), "tree/base")
	if err := errors.Join(os.MkdirAll(base, 0o755), os.WriteFile(base+"/kept", []byte("x\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	mount := func(dir string) {
		t.Helper()
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("nothing can be mounted here: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				t.Error(err)
			}
		})
	}
	look := func() (files int, err error) {
		got, err := e.TreeChanges(t.Context(), client.DiffQuery{})
		if err == nil {
			files = got.Files
		}
		return files, err
	}
	if files, err := look(); err != nil || files != 1 { // of none that is mounted
		t.Errorf("%d changes, %v", files, err)
	}
	mount(base)
	_, err := look()
	if said, ok := errors.AsType[*run.Error](err); !ok || said.Code != run.CodeSandboxFailed {
		t.Errorf("the list of a worktree that is not mounted: %v", err)
	}
	_, err = e.TreeDiff(t.Context(), run.DiffQuery{Format: treediff.Archive}, 0, new(bytes.Buffer))
	if said, ok := errors.AsType[*run.Error](err); !ok || said.Code != run.CodeSandboxFailed {
		t.Errorf("the archive of a worktree that is not mounted: %v", err)
	}
	if _, err := e.TreeRevert(t.Context(), []string{"kept"}, ""); err == nil {
		t.Error("a file was put back into what is not the worktree")
	}
	if left, err := os.ReadDir(r.dir); err != nil || len(left) > 0 {
		t.Errorf("there are %v, %v", left, err)
	}
	mount(r.dir)
	if files, err := look(); err != nil || files != 1 {
		t.Errorf("mounted: %d changes, %v", files, err)
	}
}

func newIDs() func() string {
	n := 0
	return func() string { n++; return "errand" + string(rune('a'+n)) }
}

var _ errand.Conn = (*agent.Conn)(nil)
