package session

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/worktree/apply"
)

// What is at the path p of a case, and what the session and a person make of it, each not knowing of
// the other. A rename is one of a directory or file that may not be there.
var (
	theirsBegins = []string{"echo base >p", "true", "mkdir -p p/y; echo base >p/x; echo base >p/y/z"}
	theirsActs   = []string{
		"rm -rf p; echo session >p", "rm -rf p; ln -s session p", "rm -rf p; mkdir p; echo session >p/session", "rm -rf p",
		"[ ! -e p ] || mv p q", "if [ -d p ]; then echo session >>p/x; else echo session >>p; fi", "if [ -d p ]; then rm p/x; else chmod +x p 2>/dev/null || true; fi",
	}
	theirsOwn = []string{
		"true", "for f in p p/y/z; do [ ! -f $f ] || echo person >$f; done", "rm -rf p; echo person >p", "rm -rf p; ln -s person p",
		"rm -rf p; mkdir -p p/sub; echo person >p/x; echo person >p/sub/f", "rm -rf p; mkdir p", "[ ! -d p ] || { mkdir p/more; echo person >p/new; echo person >p/more/new; }",
		"for f in p p/y/z; do [ ! -f $f ] || { echo person >saved; mv saved $f; }; done", "rm -rf p", "[ ! -e p ] || mv p r", "rm -rf p; mv old p", "rm -rf p; mkfifo p",
	}
)

// TestRealTheirs: whatever two sides make of a path, the patch, the list of changes and apply agree: a
// patch takes back nothing of the person's, and has the files that the list has; what apply refuses the
// list marks, and what it writes is what the list has.
func TestRealTheirs(t *testing.T) {
	a := newApplyRig(t)
	type one struct {
		dir, begin, act, own string
	}
	var all []one
	var acts strings.Builder
	for i, begin := range theirsBegins {
		for j, act := range theirsActs {
			for k, own := range theirsOwn {
				if os.Getenv("TOOLD_TEST_LONG") == "" && (i+2*j+3*k)%4 != 0 {
					continue
				}
				c := one{fmt.Sprintf("c%d-%d-%d", i, j, k), begin, act, own}
				all = append(all, c)
				a.host(c.dir, begin+"; mkdir -p old; echo old >old/f; echo alone >alone")
				fmt.Fprintf(&acts, "(cd %s; %s)\n", c.dir, act)
			}
		}
	}
	base := t.TempDir() + "/base"
	a.must(exec.Command("cp", "-a", a.src, base).Run())
	id := a.session("")
	up, err := a.m.Files.Upload(t.Context(), alice, id, "/tmp/acts", 0o600, strings.NewReader(acts.String()))
	if err != nil || up.IsError {
		t.Fatalf("%+v, %v", up, err)
	}
	a.bash(id, "bash -e /tmp/acts")
	a.changed(id) // after which what it began with is kept
	has := t.TempDir() + "/has"
	a.must(exec.Command("cp", "-a", base, has).Run())
	cmd := exec.Command("bash", "-e")
	cmd.Dir, cmd.Stdin = has, strings.NewReader(acts.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range all {
		a.host(c.dir, c.own)
	}
	for _, c := range all {
		a.theirs(id, c.dir, fmt.Sprintf("%s (%s | %s | %s)", c.dir, c.begin, c.act, c.own), base, has)
	}
	t.Logf("%d cases", len(all))
	a.end(id)
}

// theirs looks at one case. has is what the session has, base what it began with.
func (a *applyRig) theirs(id, dir, what, base, has string) {
	t := a.t
	t.Helper()
	q := client.DiffQuery{Paths: []string{dir}, Limit: 10_000}
	list, err := a.m.trees.Changes(t.Context(), owner, id, q)
	a.must(err)
	q.Limit = 0
	patch, stale := a.patch(id, q)
	listed, dirs, marked := map[string]bool{}, map[string]bool{}, false
	for i := range list.Items {
		c := &list.Items[i]
		marked = marked || c.Stale || c.SourceChanged
		if file := func(kind string) bool { return kind == "file" || kind == "link" }; !c.Stale && (file(c.Kind) || file(c.OldKind)) {
			listed[c.Path] = true
		}
		dirs[c.Path] = c.Kind == "dir" && c.Status == client.ChangeAdded
	}
	if strings.Contains(string(patch), "\n-person") {
		t.Errorf("%s: the patch takes back what a person did:\n%s", what, patch)
	}
	if stale != list.Stale {
		t.Errorf("%s: stale are %d in the patch, and %d in the list", what, stale, list.Stale)
	}
	for name := range listed {
		if !bytes.Contains(patch, []byte("diff --git a/"+name+" b/"+name+"\n")) {
			t.Errorf("%s: the list has %s, the patch has not:\n%s", what, name, patch)
		}
	}
	for l := range strings.SplitSeq(string(patch), "\n") {
		head, is := strings.CutPrefix(l, "diff --git a/")
		if name, _, _ := strings.Cut(head, " b/"); is && !listed[name] && !within(listed, name) {
			t.Errorf("%s: the patch has %s, the list has not: %+v", what, name, list.Items)
		}
	}
	for _, dry := range []bool{true, false} {
		v, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Paths: []string{dir}, DryRun: dry})
		if err != nil {
			e, ok := errors.AsType[*apply.ConflictError](err)
			// No list marks a directory in the place of a file that the source has no more.
			if !ok || !marked && slices.ContainsFunc(e.Conflicts, func(c apply.Conflict) bool { return !dirs[c.Path] }) {
				t.Errorf("%s, dry %v: %v, and the list marks nothing: %+v", what, dry, err, list.Items)
			}
			continue
		}
		var wrote []string
		for _, p := range append(slices.Clone(v.Written), v.Removed...) {
			if info, err := os.Lstat(filepath.Join(has, p)); err != nil || !info.IsDir() {
				wrote = append(wrote, p)
			}
		}
		for _, p := range wrote {
			if info, err := os.Lstat(filepath.Join(base, p)); !listed[p] && (err != nil || !info.IsDir()) {
				t.Errorf("%s, dry %v: it wrote %s, which the list has not: %+v", what, dry, p, list.Items)
			}
		}
		for p := range listed {
			if !slices.Contains(v.Written, p) && !slices.Contains(v.Removed, p) && !slices.Contains(v.Skipped, p) {
				t.Errorf("%s, dry %v: the list has %s, which it did not write: %+v", what, dry, p, v)
			}
		}
	}
}

// within reports whether a path is below one of some, as what was in a directory is that a file has taken
// the place of.
func within(all map[string]bool, name string) bool {
	for d := filepath.Dir(name); d != "."; d = filepath.Dir(d) {
		if all[d] {
			return true
		}
	}
	return false
}
