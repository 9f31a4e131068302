package session

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
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
