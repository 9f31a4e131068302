package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// movedCases are what a session and then the host do with directories. lost are those of the
// session whose files the source has lost; none, and all that the session has is applied.
var movedCases = map[string]struct {
	session, host string
	lost          []string
	left          string // a file that diff still shows
}{
	"removed":                    {"mv d e; echo new >e/new", "rm -r d", []string{"e"}, "e/new"},
	"moved away":                 {"mv d e; echo new >e/new", "mv d f", []string{"e"}, "e/new"},
	"replaced by a copy":         {"mv d e", "cp -rp d c; rm -r d; mv c d", []string{"e"}, "e/one"},
	"swapped":                    {"mv d e", "mv d x; mv other d; mv x other", []string{"e"}, "e/o"},
	"its parent moved":           {"mv p/q e; echo new >e/new", "mv p p2", []string{"e"}, "e/new"},
	"now a file":                 {"mv d e; echo new >e/new", "rm -r d; echo x >d", []string{"e"}, "e/new"},
	"now a link":                 {"mv d e; echo new >e/new", "mv d d2; ln -s d2 d", []string{"e"}, "e/new"},
	"a chain":                    {"mv d e; mv e g; mkdir h; mv g h/i", "rm -r d", []string{"h/i"}, "h/i"},
	"nested":                     {"mv d e; mv e/sub top", "rm -r d/sub", []string{"e", "top"}, "e/one"},
	"renamed below one":          {"mv d e; mv e/sub e/sub2", "rm -r d", []string{"e", "e/sub2"}, "e"},
	"touched below one":          {"mv d e; echo new >e/sub/new", "mv d/sub s", []string{"e", "e/sub"}, "e/sub/new"},
	"a file of it removed":       {"mv d e", "rm d/one", []string{"e"}, "e/sub/two"},
	"a file below it moved away": {"mv d e", "mv d/sub/two .", []string{"e"}, "e/one"},
	"exchanged in the session":   {"mv d t; mv other d; mv t other", "rm -r d", []string{"other"}, "d/o"},
	"in place of another":        {"rm -r other; mv d other", "rm -r d", []string{"other"}, "other/o"},
	"something else":             {"mv d e", "rm -r p; echo 1 >mine", nil, ""},
	"nothing":                    {"mv d e; mv p/q d", "true", nil, ""},
	"a new directory":            {"rm -r d; mkdir d; echo 1 >d/own", "true", nil, ""},
}

// TestRealMoved: where the host takes away what a session has moved, nothing that shows or applies
// its changes is silent about it, whether the session lives or not, and after checkpoints; and
// nothing is written. What the source still has is applied, after which the rest is no less known.
func TestRealMoved(t *testing.T) {
	a := newApplyRig(t)
	top := a.src
	for _, then := range []string{"live", "checkpoint", "end"} {
		a.src = top + "/" + then // each has a tree of its own
		a.must(errors.Join(os.MkdirAll(a.src, 0o755), os.Chown(a.src, int(alice.UID), int(alice.GID))))
		for name := range movedCases {
			a.host(name, "mkdir -p d/sub other p/q; echo 1 >d/one; echo 2 >d/sub/two; echo o >other/o; echo r >p/q/r")
		}
		id := a.session("")
		for step, more := 0, true; more; step++ {
			more = false
			var all strings.Builder
			for name, tt := range movedCases {
				if steps := strings.Split(tt.session, "; "); step < len(steps) {
					more = true
					fmt.Fprintf(&all, "cd '/workspace/%s' && %s || exit 1\n", name, steps[step])
				}
			}
			a.bash(id, all.String()+"true")
			if then == "checkpoint" {
				_, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{})
				a.must(err)
			}
		}
		if then == "end" {
			a.end(id)
		}
		for name, tt := range movedCases {
			a.host(name, tt.host)
		}
		a.shown(then, id)
		a.refused(then, id)
		var whole []string
		for name, tt := range movedCases {
			if tt.lost == nil {
				whole = append(whole, name)
			}
		}
		a.apply(id, client.ApplyRequest{Paths: whole})
		a.shown("after an apply, "+then, id)
		a.refused("after an apply, "+then, id)
		a.comesBack(then, id)
		if _, err := a.m.trees.Discard(t.Context(), owner, id, client.DiscardRequest{Paths: []string{"removed/e"}}); err != nil {
			t.Error(err)
		}
		if c, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{Paths: []string{"removed"}}); err != nil || len(c.Incomplete) > 0 {
			t.Errorf("%s: what was discarded: %+v, %v", then, c, err)
		}
		if then != "end" {
			a.end(id)
		}
	}
}

// comesBack sees that what is lost is known as well after all was discarded and came back, and
// where a session begins with what had been there.
func (a *applyRig) comesBack(then, id string) {
	a.t.Helper()
	const name = "all"
	_, err := a.m.trees.Checkpoint(a.t.Context(), owner, id, client.CheckpointCreate{Name: name})
	a.must(err)
	_, err = a.m.trees.Discard(a.t.Context(), owner, id, client.DiscardRequest{})
	a.must(err)
	if c, err := a.m.trees.Changes(a.t.Context(), owner, id, client.DiffQuery{}); err != nil || c.Files+len(c.Incomplete) > 0 {
		a.t.Errorf("%s: all was discarded: %+v, %v", then, c, err)
	}
	fork, err := a.m.trees.Fork(a.t.Context(), owner, id, client.ForkRequest{At: name})
	a.must(err)
	a.shown("in a fork, "+then, fork.ID)
	a.refused("in a fork, "+then, fork.ID)
	a.end(fork.ID)
	_, err = a.m.trees.Restore(a.t.Context(), owner, id, client.RestoreRequest{Checkpoint: name})
	a.must(err)
	a.shown("come back, "+then, id)
	a.refused("come back, "+then, id)
}

// host does something in a directory of the source, as its owner.
func (a *applyRig) host(dir, command string) {
	a.t.Helper()
	cmd := exec.Command("sh", "-ec", fmt.Sprintf("mkdir -p '%s'; cd '%[1]s'; %s", dir, command))
	cmd.Dir, cmd.SysProcAttr = a.src, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice.UID, Gid: alice.GID}}
	if out, err := cmd.CombinedOutput(); err != nil {
		a.t.Fatalf("%s: %v %s", command, err, out)
	}
}

// files are the paths of the files of the source, with what they have.
func (a *applyRig) files() (all []string) {
	a.t.Helper()
	a.must(filepath.WalkDir(a.src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, _ := os.ReadFile(path)
		all = append(all, strings.TrimPrefix(path, a.src+"/")+"="+string(b))
		return nil
	}))
	return all
}

// shown sees that what shows the changes names what is lost, and has what is left.
func (a *applyRig) shown(when, id string) {
	t := a.t
	t.Helper()
	c, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{Limit: 10_000})
	a.must(err)
	lost := 0
	for name, tt := range movedCases {
		var named, paths []string
		for _, i := range c.Incomplete {
			if p, ok := strings.CutPrefix(i.Path, name+"/"); ok {
				named = append(named, p)
			}
		}
		for _, i := range c.Items {
			if p, ok := strings.CutPrefix(i.Path, name+"/"); ok {
				paths = append(paths, p)
			}
		}
		slices.Sort(named)
		if !slices.Equal(named, tt.lost) {
			t.Errorf("%s, %s: the list names %q, want %q", name, when, named, tt.lost)
		}
		if tt.left != "" && !slices.Contains(paths, tt.left) {
			t.Errorf("%s, %s: the list lacks %s: %q", name, when, tt.left, paths)
		}
		lost += len(tt.lost)
	}
	patch, err := a.m.trees.Diff(t.Context(), owner, id, client.DiffQuery{})
	a.must(err)
	_, err = io.Copy(io.Discard, patch)
	a.must(errors.Join(err, patch.Close()))
	if n := patch.(interface{ Incomplete() int }).Incomplete(); n != lost {
		t.Errorf("%s: the patch says that %d are incomplete, not %d", when, n, lost)
	}
}

// refused sees that no case of which something is lost is applied.
func (a *applyRig) refused(when, id string) {
	t := a.t
	t.Helper()
	before := a.files()
	for name, tt := range movedCases {
		if tt.lost == nil {
			continue
		}
		for _, dry := range []bool{true, false} {
			_, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Paths: []string{name}, DryRun: dry})
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Conflict || f.Hint == "" {
				t.Errorf("%s, %s, dry %v: %v", name, when, dry, err)
				continue
			}
			var places []string
			for _, p := range f.Places {
				places = append(places, strings.TrimPrefix(p.Path, name+"/"))
			}
			slices.Sort(places)
			if !slices.Equal(places, tt.lost) {
				t.Errorf("%s, %s, dry %v: %v", name, when, dry, err)
			}
		}
	}
	if after := a.files(); !slices.Equal(before, after) {
		t.Errorf("%s: the source had %q and has %q", when, before, after)
	}
}

// TestRealMovedLong: what a session has moved to where its path, or that of a file in it, is too long
// to be copied is named, and never applied in part, by force neither; all else is, and it stays as it
// is in the session. With shorter paths it is applied as a whole.
func TestRealMovedLong(t *testing.T) {
	a := newApplyRig(t)
	a.host(".", "mkdir -p d/sub other; echo 1 >d/one; echo 2 >d/sub/two; echo o >other/long-name.txt")
	id := a.session("")
	const deep = `import os
def deep(name, n):
    os.chdir("/workspace")
    for i in range(n):
        if make: os.mkdir(name * 250)
        os.chdir(name * 250)
`
	a.bash(id, "echo free >free; python3 -c '"+deep+`
make = True
deep("0", 20); os.mkdir("new"); os.rename("/workspace/d", "e")
deep("1", 16); os.rename("/workspace/other", "x" * 70)'`)
	has := "python3 -c '" + deep + `
make = False
deep("0", 20); os.chdir("e"); print(open("one").read() + open("sub/two").read())
deep("1", 16); os.chdir("x" * 70); print(open("long-name.txt").read())'`
	whole := a.bash(id, has)
	before := a.files()
	c, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{Limit: 10_000})
	if err != nil || len(c.Incomplete) != 2 {
		t.Errorf("the list names %+v, %v", c, err)
	}
	refused := func(r client.ApplyRequest) {
		t.Helper()
		for _, r.Force = range []bool{false, true} {
			for _, r.DryRun = range []bool{true, false} {
				_, err := a.m.trees.Apply(t.Context(), owner, id, r)
				if f := new(fault.Error); !errors.As(err, &f) || f.Kind != fault.Conflict || f.Hint == "" || len(f.Places) == 0 {
					t.Errorf("apply of %+v: %v", r, err)
				}
			}
		}
	}
	refused(client.ApplyRequest{})
	refused(client.ApplyRequest{Paths: []string{"d"}})
	refused(client.ApplyRequest{Paths: []string{"other"}})
	if after := a.files(); !slices.Equal(before, after) {
		t.Errorf("the source had %q and has %q", before, after)
	}
	a.apply(id, client.ApplyRequest{Exclude: []string{"0*", "1*", "d", "other"}})
	a.holds("free", "free\n")
	if now := a.bash(id, has); now != whole {
		t.Errorf("the session had %q and has %q", whole, now)
	}
	for range 40 { // more than a tree has layers before some are merged
		a.bash(id, "date >>dates")
		_, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{})
		a.must(err)
	}
	refused(client.ApplyRequest{})
	if now := a.bash(id, has); now != whole {
		t.Errorf("after checkpoints the session had %q and has %q", whole, now)
	}
	a.bash(id, "python3 -c '"+deep+`
make = False
deep("0", 20); assert os.system("mv e /workspace") == 0
deep("1", 16); assert os.system("mv x* /workspace/other2") == 0' && rm dates`)
	a.apply(id, client.ApplyRequest{})
	if got, want := strings.Join(a.files(), ""), "e/one=1\ne/sub/two=2\nfree=free\nother2/long-name.txt=o\n"; got != want {
		t.Errorf("the source has %q, want %q", got, want)
	}
	a.end(id)
}

// TestRealMovedDeep: what lies too deep to be looked at is refused, whatever is excluded, and the
// refusal says what helps: in a fork of a session that is over as in one that lives.
func TestRealMovedDeep(t *testing.T) {
	a := newApplyRig(t)
	a.host(".", "mkdir d; echo 1 >d/one")
	id := a.session("")
	a.bash(id, `echo free >free; python3 -c 'import os
for i in range(65):
    os.mkdir("0" * 250); os.chdir("0" * 250)
for i in range(40): os.mkdir("0" * 200 + str(i))
os.rename("/workspace/d", "d" * 200)'`)
	refused := func() {
		t.Helper()
		_, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Force: true, Exclude: []string{"0*", "d"}})
		f := new(fault.Error)
		if !errors.As(err, &f) || f.Kind != fault.Conflict || len(f.Places) != 1 || !strings.Contains(f.Places[0].Message, "as those of 40 more") ||
			!strings.Contains(f.Hint, "remove it in the session, or in a fork of it") {
			t.Fatalf("apply: %v", err)
		}
	}
	refused()
	a.end(id)
	refused()
	fork, err := a.m.trees.Fork(t.Context(), owner, id, client.ForkRequest{})
	a.must(err)
	id = fork.ID
	refused()
	a.bash(id, `python3 -c 'import os
for i in range(65): os.chdir("0" * 250)
assert os.system("mv d* /workspace/e") == 0' && rm -r 0*`)
	a.apply(id, client.ApplyRequest{})
	if got, want := strings.Join(a.files(), ""), "e/one=1\nfree=free\n"; got != want {
		t.Errorf("the source has %q, want %q", got, want)
	}
	a.end(id)
}
