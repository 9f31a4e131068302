package treediff

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run/root"
)

func (r *rig) revert(t testing.TB, paths ...string) Totals {
	t.Helper()
	o := r.options(t, "", paths...)
	defer o.Base.Close()
	defer o.Tree.Close()
	totals, err := Revert(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

// Random trees become their base again, in one step or path by path.
func TestRevert(t *testing.T) {
	eachTree(t, 41, 100, func(t *testing.T, rnd *rand.Rand, r *rig) {
		old, new := snapshot(t, r.base), snapshot(t, r.tree)
		if rnd.IntN(2) == 0 {
			if got, want := r.revert(t), (Totals{Files: len(expected(old, new))}); got != want {
				t.Errorf("totals %+v; want %+v", got, want)
			}
			sameTree(t, snapshot(t, r.tree), old)
			return
		}
		for p := range expected(old, new) {
			if _, err := os.Lstat(filepath.Join(r.base, p)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
				t.Fatal(err)
			}
			want := snapshot(t, r.tree)
			if totals := r.revert(t, p); totals.LeftOut != 0 {
				t.Errorf("%q: %+v", p, totals)
			}
			got := snapshot(t, r.tree)
			for at := range merged(want, got, old) {
				switch {
				case at == p || strings.HasPrefix(at, p+"/"):
					if got[at] != old[at] {
						t.Errorf("%q: %q is %+v; want %+v", p, at, got[at], old[at])
					}
				case strings.HasPrefix(p, at+"/"): // on the way
				case got[at] != want[at] && want[parent(at, p)].kind == Dir:
					t.Errorf("%q: %q became %+v from %+v", p, at, got[at], want[at])
				}
			}
		}
		sameTree(t, snapshot(t, r.tree), old)
	})
}

func merged(all ...map[string]seen) map[string]bool {
	m := make(map[string]bool)
	for _, s := range all {
		for p := range s {
			m[p] = true
		}
	}
	return m
}

// parent is the part of at that is on the way to p, as far as both have it.
func parent(at, p string) string {
	for !strings.HasPrefix(p, at+"/") {
		if at = filepath.Dir(at); at == "." {
			return p // of the top, which is always there
		}
	}
	return at
}

// The tool user gets into directories that it has shut itself, and leaves them as the
// base has them. What it may not write stays and is counted.
func TestRevertAsUser(t *testing.T) {
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
		err = errors.Join(err, os.MkdirAll(dir+"/ro/in", 0o755), os.WriteFile(dir+"/ro/in/f", []byte(dir), 0o444), os.Mkdir(dir+"/shut", 0o755),
			os.Mkdir(dir+"/foreign", 0o755), os.Chmod(filepath.Dir(dir), 0o755))
	}
	err = errors.Join(err, os.WriteFile(r.tree+"/ro/in/new", []byte("x"), 0o600), os.MkdirAll(r.tree+"/add/a/b", 0o755), os.WriteFile(r.tree+"/add/a/b/c", nil, 0o644),
		os.WriteFile(r.tree+"/shut/x", nil, 0o644), os.WriteFile(r.tree+"/foreign/x", nil, 0o644))
	for _, dir := range []string{r.base, r.tree} {
		for _, p := range append(paths(t, dir), "") {
			if !strings.HasPrefix(p, "foreign") {
				err = errors.Join(err, os.Lchown(dir+"/"+p, user, user))
			}
		}
		err = errors.Join(err, os.Chmod(dir+"/ro/in", 0o555), os.Chmod(dir+"/ro", 0o555))
	}
	err = errors.Join(err, os.Chmod(r.tree+"/shut", 0), os.Chmod(r.tree+"/add/a/b", 0o111), os.Chmod(r.tree+"/add/a", 0), os.Chmod(r.tree+"/ro/in/f", 0))
	if err != nil {
		t.Fatal(err)
	}
	want := snapshot(t, r.base)
	want["foreign/x"] = snapshot(t, r.tree)["foreign/x"]
	if got, want := r.revert(t), (Totals{Files: 9, LeftOut: 1}); got != want {
		t.Errorf("totals %+v; want %+v", got, want)
	}
	sameTree(t, snapshot(t, r.tree), want)
}
