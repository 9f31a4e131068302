package session

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/testrig"
)

// belowCases are what a session does, what a person does in the source below its live overlay, what
// may then differ, and files of the source that must be as the person has left them.
var belowCases = map[string]struct {
	session, host string
	differ        []string
	kept          map[string]string
}{
	"directory moved away": {"echo x >d/x", "mv d e", []string{"d", "d/x"}, map[string]string{"e/a": "a\n", "e/b": "b\n"}},
	"another directory": {
		"echo x >d/x", "mkdir new; echo n >new/n; echo na >new/a; mv d e; mv new d",
		[]string{"d", "d/x"},
		map[string]string{"d/n": "n\n", "d/a": "na\n", "e/a": "a\n", "e/b": "b\n"},
	},
	"looked at and replaced": {
		"ls -lR d >/dev/null; cat d/*", "mkdir new; echo n >new/n; mv d e; mv new d", nil, map[string]string{"d/n": "n\n", "e/a": "a\n"},
	},
	"looked at and moved":    {"ls -lR . >/dev/null; cat d/a", "mv d e", nil, map[string]string{"e/a": "a\n", "e/b": "b\n"}},
	"absent and made":        {"stat d/new d/in 2>/dev/null; ls d", "echo n >d/new; mkdir d/in; echo o >d/in/o", nil, map[string]string{"d/new": "n\n", "d/in/o": "o\n"}},
	"absent, beside a write": {"stat d/new 2>/dev/null; echo x >d/x", "echo n >d/new", []string{"d/x"}, map[string]string{"d/new": "n\n"}},
	"replaced by rename":     {"cat d/a; echo x >d/x", "mv d/a d/a~; echo new >d/a", []string{"d/x"}, map[string]string{"d/a": "new\n", "d/a~": "a\n"}},
	"held open":              {"exec 9<d; exec 8<d/a; (sleep 60 <&9 >/dev/null 2>&1 &) ; echo x >x", "mv d/a d/c; mv d e; mkdir d; echo n >d/n", []string{"x"}, map[string]string{"e/c": "a\n", "d/n": "n\n"}},
	"removed":                {"cat d/a d/b; echo x >d/x", "rm d/a", []string{"d/x"}, map[string]string{"d/b": "b\n"}},
	"a file now":             {"ls -l d >/dev/null", "mv d e; echo f >d", nil, map[string]string{"d": "f\n", "e/a": "a\n"}},
	"removed by both":        {"rm d/a; cat d/b", "echo n >d/n; mv d/b d/c", []string{"d/a"}, map[string]string{"d/n": "n\n", "d/c": "b\n"}},
}

// TestRealBelow: what somebody does in the source is no change of a session that lives over it,
// whatever its overlay goes on to show: no list and no patch has it, and no apply takes it back.
func TestRealBelow(t *testing.T) {
	a := newApplyRig(t)
	a.below(t)
}

func (a *applyRig) below(t *testing.T) {
	top := a.src
	i := 0
	for name, tt := range belowCases {
		i++
		a.src = fmt.Sprintf("%s/%d", top, i)
		a.must(exec.Command("install", "-d", "-o", fmt.Sprint(alice.UID), a.src).Run())
		a.host(".", "mkdir d; echo a >d/a; echo b >d/b")
		id := a.session("")
		a.bash(id, "{ "+tt.session+"; } || true")
		a.host(".", tt.host)
		a.bash(id, "ls -lR . >/dev/null 2>&1 || true")
		for _, path := range a.changed(id) {
			if !strings.Contains(" "+strings.Join(tt.differ, " ")+" ", " "+path+" ") {
				t.Errorf("%s: %s is no change of the session", name, path)
			}
		}
		patch, _ := a.patch(id, client.DiffQuery{})
		for path, text := range tt.kept {
			if strings.Contains(string(patch), "a/"+path+" ") || strings.Contains(string(patch), "\n-"+text) {
				t.Errorf("%s: the patch has %s:\n%s", name, path, patch)
			}
		}
		for _, r := range []client.ApplyRequest{{DryRun: true}, {}, {Merge: true}, {Force: true}} {
			v, err := a.m.trees.Apply(t.Context(), owner, id, r)
			if err == nil && v.RemovedCount > len(tt.differ) {
				t.Errorf("%s: %+v", name, v)
			}
			for path, text := range tt.kept {
				if got, err := os.ReadFile(a.src + "/" + path); err != nil || string(got) != text {
					t.Errorf("%s: after %+v the source has %q at %s, %v", name, r, got, path, err)
				}
			}
		}
		a.end(id)
	}
}

// TestRealSwapped: directories that change places are changes, also where no time and no size of
// their files tells them apart.
func TestRealSwapped(t *testing.T) {
	a := newApplyRig(t)
	for alike := false; !alike; {
		a.host(".", "rm -rf one two; mkdir one two; echo 1 >one/f; echo 2 >two/f")
		var one, two syscall.Stat_t
		a.must(errors.Join(syscall.Stat(a.src+"/one/f", &one), syscall.Stat(a.src+"/two/f", &two)))
		alike = one.Ctim == two.Ctim && one.Mtim == two.Mtim
	}
	id := a.session("s")
	a.bash("s", "mv one t; mv two one; mv t two")
	if got := a.changed(id); !slices.Equal(got, []string{"one/f", "two/f"}) {
		t.Errorf("changed are %q", got)
	}
	if patch, _ := a.patch(id, client.DiffQuery{}); !strings.Contains(string(patch), "-1\n+2") || !strings.Contains(string(patch), "-2\n+1") {
		t.Errorf("the patch is\n%s", patch)
	}
	if v := a.apply(id, client.ApplyRequest{DryRun: true}); v.WrittenCount != 2 {
		t.Errorf("a dry run: %+v", v)
	}
	a.apply(id, client.ApplyRequest{})
	a.holds("one/f", "2\n")
	a.holds("two/f", "1\n")
	a.end(id)
}

// belowHand makes random changes of a tree, of which each file says who wrote it.
type belowHand struct {
	rand    *rand.Rand
	who     string
	script  strings.Builder
	touched []string
}

// belowDirs are the directories of a tree, each with the files x and y.
var belowDirs = []string{".", "a", "b", "a/a", "a/b", "b/a", "b/a/c"}

func (h *belowHand) name() string {
	return path.Join(belowDirs[h.rand.IntN(len(belowDirs))], []string{"x", "y", "new", ".", "a", "b"}[h.rand.IntN(6)])
}

// do adds a line, which may fail: PATH and TO are names, and NEW is a text that nobody else writes.
func (h *belowHand) do(line string) {
	p, to := h.name(), h.name()
	if strings.Contains(line, "NEW") || strings.Contains(line, "rm ") || strings.Contains(line, "mv ") || strings.Contains(line, "mkdir") {
		h.touched = append(h.touched, p, to)
	}
	text := fmt.Sprintf("%s%d", h.who, h.script.Len())
	line = strings.NewReplacer("PATH", p, "DIR", path.Dir(p), "TO", to, "NEW", text).Replace(line)
	fmt.Fprintf(&h.script, "{ %s; } >/dev/null 2>&1 || true\n", line)
}

// touches reports whether it may have changed what is at a path.
func (h *belowHand) touches(p string) bool {
	return slices.ContainsFunc(h.touched, func(q string) bool {
		return p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/")
	})
}

var (
	belowActs  = []string{"mkdir -p DIR; echo NEW >PATH", "mkdir -p DIR; echo NEW >>PATH", "rm -rf PATH", "mv -T PATH TO", "mkdir -p PATH", "rm -rf PATH; mkdir PATH; echo NEW >PATH/a"}
	belowLooks = []string{"ls -lR", "ls -l PATH", "cat PATH", "stat PATH TO", "exec 9<PATH; sleep 60 <&9 & true", "find . -newer PATH"}
	belowTheir = append([]string{"echo NEW >.new; mv -T .new PATH", "mv -T PATH TO", "mkdir n; echo NEW >n/a; mv -T PATH old; mv -T n PATH"}, belowActs...)
)

// TestRealBelowRandom: whatever a person does in the source below a live overlay that has looked at it,
// nothing that the person wrote or moved, or that the session did not touch, is taken back by a patch
// or an apply; and what the session wrote is applied, or a conflict.
func TestRealBelowRandom(t *testing.T) {
	a := newApplyRig(t)
	set := *a.m.settings.Load()
	set.Policy = rules(t, "[permission]\nbash = \"allow\"\nexternal_directory = \"allow\"\ndoom_loop = \"allow\"\n") // nobody answers here
	a.m.Reload(set)
	top := a.src
	for seed := range uint64(testrig.Rounds(12)) {
		a.src = fmt.Sprintf("%s/%d", top, seed)
		a.must(exec.Command("install", "-d", "-o", fmt.Sprint(alice.UID), a.src).Run())
		if log := a.belowRound(seed); t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, log)
		}
	}
}

func (a *applyRig) belowRound(seed uint64) (log string) {
	t, r := a.t, rand.New(rand.NewPCG(seed, 13))
	t.Helper()
	first, mine, theirs := &belowHand{}, &belowHand{rand: r, who: "S"}, &belowHand{rand: r, who: "P"}
	for _, dir := range belowDirs {
		fmt.Fprintf(&first.script, "mkdir -p %[1]s; echo Ox%[1]s >%[1]s/x; echo Oy%[1]s >%[1]s/y\n", dir)
	}
	a.host(".", first.script.String())
	began := a.contents()
	id := a.session("")
	for range 1 + r.IntN(4) {
		mine.do(belowActs[r.IntN(len(belowActs))])
	}
	for range 1 + r.IntN(6) {
		mine.do(belowLooks[r.IntN(len(belowLooks))])
	}
	a.bash(id, mine.script.String())
	for range 1 + r.IntN(6) {
		theirs.do(belowTheir[r.IntN(len(belowTheir))])
	}
	a.host(".", theirs.script.String())
	a.bash(id, "ls -lR >/dev/null 2>&1; cat */* >/dev/null 2>&1; true # "+id)
	log = first.script.String() + "== session\n" + mine.script.String() + "== person\n" + theirs.script.String()

	before := a.contents()
	keeps := maps.Clone(before) // what must be where it is
	maps.DeleteFunc(keeps, func(p, text string) bool {
		return !strings.Contains(text, "P") && began[p] == text && mine.touches(p)
	})
	for _, p := range a.changed(id) {
		if !mine.touches(p) {
			t.Errorf("%s is no change of the session", p)
		}
	}
	patch, _ := a.patch(id, client.DiffQuery{})
	if strings.Contains(string(patch), "\n-P") {
		t.Errorf("the patch takes back what a person wrote:\n%s", patch)
	}
	would, _ := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Force: true, DryRun: true})
	_, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{})
	after := a.contents()
	if err != nil {
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Conflict {
			t.Error(err)
		}
		if !maps.Equal(before, after) {
			t.Errorf("a conflict, and the source had\n%q, and has\n%q", before, after)
		}
		var did *client.Applied
		did, err = a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Force: true})
		if f, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || f.Kind != fault.Conflict) {
			t.Errorf("by force: %v", err)
		}
		after = a.contents()
		if err == nil {
			for _, p := range did.Overwritten {
				delete(keeps, p)
			}
			if would == nil || !slices.Equal(would.Overwritten, did.Overwritten) {
				t.Errorf("would be %+v, is %+v", would, did)
			}
		}
	}
	for p, text := range keeps {
		if after[p] != text {
			t.Errorf("%s had %q and has %q, %v", p, text, after[p], err)
		}
	}
	a.end(id)
	return log
}

// contents are the files of the source.
func (a *applyRig) contents() map[string]string {
	all := make(map[string]string)
	for _, f := range a.files() {
		name, text, _ := strings.Cut(f, "=")
		all[name] = text
	}
	return all
}
