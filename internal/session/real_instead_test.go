package session

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// insteadBegin is what the source has: of the same time, so that no time of a file tells d and new apart.
const insteadBegin = "mkdir -p d/in new/in; for d in d d/in; do echo a >$d/a; echo b >$d/b; done; for d in new new/in; do echo na >$d/a; echo nb >$d/b; done"

var (
	insteadActs = map[string]string{
		"written":       "echo x >d/a",
		"written below": "echo x >d/in/a",
		"removed":       "rm d/a",
		"all removed":   "rm -r d",
		"made anew":     "rm -r d; mkdir d; echo x >d/a",
		"renamed":       "mv d/a d/b",
		"mode":          "chmod 700 d",
		"a file":        "rm -r d; echo x >d",
	}
	insteadSwaps = map[string]string{
		"moved there":         "mv d e; mv new d",
		"touched by then":     "sleep 0.01; mv d e; mv new d; sleep 0.01; touch d/f d/in/f; rm d/f d/in/f",
		"removed, then moved": "rm -r d; mv new d",
		"swapped below":       "mv d/in e; mv new/in d/in",
	}
)

// TestRealInstead: what somebody puts in the place of a directory in which a session has changed
// something is somebody's own, however old its files are: no patch takes it back, no apply writes over
// it, and force tells each of its files that goes.
func TestRealInstead(t *testing.T) {
	a := newApplyRig(t)
	set := *a.m.settings.Load()
	set.Policy = rules(t, "[permission]\nbash = \"allow\"\nexternal_directory = \"allow\"\ndoom_loop = \"allow\"\n") // nobody answers here
	a.m.Reload(set)
	top, n := a.src, 0
	for _, act := range slices.Sorted(maps.Keys(insteadActs)) {
		for _, swap := range slices.Sorted(maps.Keys(insteadSwaps)) {
			for _, how := range []string{"live", "a checkpoint", "ended"} {
				n++
				if os.Getenv("TOOLD_TEST_LONG") == "" && n%7 != 0 {
					continue
				}
				a.src = fmt.Sprintf("%s/%d", top, n)
				a.must(exec.Command("install", "-d", "-o", fmt.Sprint(alice.UID), a.src).Run())
				a.instead(strings.Join([]string{act, swap, how}, ", "), insteadActs[act], insteadSwaps[swap], how)
			}
		}
	}
}

func (a *applyRig) instead(name, act, swap, how string) {
	t := a.t
	a.host(".", insteadBegin)
	began := a.contents()
	id := a.session("")
	a.bash(id, act)
	switch how {
	case "a checkpoint":
		_, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{})
		a.must(err)
		a.bash(id, "echo y >>d/b || true")
	case "ended":
		a.end(id)
	}
	a.host(".", swap)
	before := a.contents()
	theirs := maps.Clone(before)
	maps.DeleteFunc(theirs, func(p, text string) bool { return began[p] == text })
	patch, _ := a.patch(id, client.DiffQuery{})
	if strings.Contains(string(patch), "\n-n") {
		t.Errorf("%s: the patch takes back what somebody put there:\n%s", name, patch)
	}
	for _, r := range []client.ApplyRequest{{DryRun: true}, {}, {Merge: true}, {Force: true}} {
		v, err := a.m.trees.Apply(t.Context(), owner, id, r)
		after := a.contents()
		for p, text := range theirs {
			forced := r.Force && err == nil && slices.Contains(v.Overwritten, p)
			if after[p] != text && !forced {
				t.Errorf("%s: after %+v %s is %q, was %q: %+v, %v", name, r, p, after[p], text, v, err)
			}
		}
	}
	if how != "ended" {
		a.end(id)
	}
}

// TestRealDiscardBelow: what somebody has put into the source is no loss of the session's that a discard
// of paths makes good: it stays what it is when it is changed again.
func TestRealDiscardBelow(t *testing.T) {
	a := newApplyRig(t)
	a.host(".", "mkdir d; echo a >d/a; echo b >d/b")
	id := a.session("s")
	a.bash("s", "stat d/new d/in 2>/dev/null; ls -lR . >/dev/null; echo x >d/a")
	a.host(".", "echo n >d/new; mkdir d/in; echo o >d/in/o; mv d/b d/c")
	v, err := a.m.trees.Discard(t.Context(), owner, id, client.DiscardRequest{Paths: []string{"d"}})
	if err != nil || v.Count != 1 || v.Left != 0 {
		t.Errorf("discarded are %+v, %v", v, err)
	}
	a.host(".", "echo more >>d/new; echo more >>d/in/o; rm d/c")
	if got := a.changed(id); len(got) > 0 {
		t.Errorf("changed are %q", got)
	}
	a.apply(id, client.ApplyRequest{})
	if got, want := a.files(), []string{"d/a=a\n", "d/in/o=o\nmore\n", "d/new=n\nmore\n"}; !slices.Equal(got, want) {
		t.Errorf("the source has %q", got)
	}
	a.end(id)
}
