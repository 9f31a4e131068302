package treediff

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/tool/run/root"
)

// What the tool user cannot read is told where it may differ, and never read.
func TestDenied(t *testing.T) {
	if os.Getuid() != 0 {
		testrig.Skipf(t, "oci", "only root makes files of others")
	}
	const user = 1234
	r := newRig(t, t.TempDir(), t.TempDir())
	var err error
	if r.root, err = root.New(root.Config{Dir: "/", UID: user, GID: user}); err != nil {
		t.Fatal(err)
	}
	defer r.root.Close()
	for _, dir := range []string{r.base, r.tree} {
		tick(t)
		err = errors.Join(err, os.Chown(dir, user, user), os.WriteFile(dir+"/own", []byte("same"), 0o644),
			os.WriteFile(dir+"/changed", []byte(dir), 0o600), os.Mkdir(dir+"/closed", 0o700), os.Mkdir(dir+"/shut", 0o755),
			os.Mkdir(dir+"/listed", 0o744), os.WriteFile(dir+"/closed/x", []byte(dir), 0o644))
	}
	parent := filepath.Dir(r.base)
	err = errors.Join(err, os.Chmod(parent, 0o755), os.WriteFile(r.base+"/gone", []byte("x"), 0o600), os.WriteFile(r.tree+"/new", []byte("x"), 0o600),
		os.Chmod(r.tree+"/shut", 0o700), os.WriteFile(r.tree+"/changed", []byte("longer than it was before, by far"+r.tree), 0o600),
		os.Mkdir(r.tree+"/listed/x", 0o755), os.Mkdir(r.tree+"/closed/y", 0o755), old(r.tree+"/listed"), old(r.tree+"/closed"), unix.Mkfifo(r.base+"/pipe", 0o600), os.WriteFile(r.tree+"/pipe", nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	want := []Line{
		{Path: "changed", Status: Modified},
		{Path: "closed", Status: Modified},
		{Path: "gone", Status: Deleted},
		{Path: "listed", Status: Modified},
		{Path: "new", Status: Added},
		{Path: "shut", Status: Modified},
		{Path: "pipe", Status: Type},
	}
	data, totals := r.write(t, List)
	all, _ := lines(t, data)
	got := make(map[string]Line)
	for _, l := range all {
		got[l.Path] = l
	}
	for _, w := range want {
		l := got[w.Path]
		if l.Status != w.Status || (l.Unreadable == "") != (w.Path == "pipe") {
			t.Errorf("%q: %+v", w.Path, l)
		}
	}
	if len(got) != len(want) || totals.Files != len(want) || totals.Unreadable != len(want)-1 {
		t.Errorf("%+v, totals %+v", got, totals)
	}
}

// old gives a file a time that no other has.
func old(path string) error {
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0)
}

// What is mounted in a directory is left out on both sides, with all that is in it, also
// where it is of the same file system.
func TestMounts(t *testing.T) {
	if os.Getuid() != 0 {
		testrig.Skipf(t, "oci", "only root mounts")
	}
	base, tree, other := t.TempDir(), t.TempDir(), t.TempDir()
	err := errors.Join(os.Mkdir(base+"/m", 0o755), os.WriteFile(base+"/m/a", nil, 0o644), os.WriteFile(base+"/f", nil, 0o644), os.WriteFile(other+"/b", []byte("b"), 0o644),
		os.WriteFile(tree+"/f", nil, 0o644), os.Mkdir(tree+"/m", 0o755), os.Mkdir(tree+"/n", 0o755), os.WriteFile(tree+"/new", nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, base, tree)
	data, err := thread.Run(func() ([]byte, error) {
		// The mounts are this thread's alone.
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		if err == nil {
			err = errors.Join(unix.Mount(other, tree+"/m", "", unix.MS_BIND, ""), unix.Mount("tmpfs", tree+"/n", "tmpfs", 0, ""),
				unix.Mount(other+"/b", tree+"/f", "", unix.MS_BIND, ""))
		}
		if err != nil {
			return nil, err
		}
		data, _ := r.write(t, List)
		return data, nil
	})
	if errors.Is(err, unix.EPERM) {
		testrig.Skipf(t, "oci", "nothing can be mounted here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if all, totals := lines(t, data); len(all) != 1 || all[0].Path != "new" || totals.Files != 1 {
		t.Errorf("%+v, totals %+v; want only the new file", all, totals)
	}
}
