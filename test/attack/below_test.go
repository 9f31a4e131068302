package attack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toold/toold/client"
)

// TestBelow: what somebody does in the source below a live overlay is no change of the session, on each
// tier, and no apply takes it back; directories that change places in the session are changes.
func TestBelow(t *testing.T) {
	r := newRig(t, nil, "")
	for _, tt := range []struct {
		name, begin, session, host string
		changed                    []string
		has                        map[string]string // after the apply; "" is no file
	}{
		{
			"written beside", "mkdir d; echo a >d/a; echo b >d/b", "ls -lR . >/dev/null; cat d/a; echo x >d/x",
			"mv d/a d/c; echo new >d/a; echo n >d/n; rm d/b",
			[]string{"d/x"},
			map[string]string{"d/a": "new\n", "d/c": "a\n", "d/n": "n\n", "d/b": "", "d/x": "x\n"},
		},
		{
			"only looked at", "mkdir d; echo a >d/a", "ls -lR . >/dev/null; cat d/a; stat d/new 2>/dev/null; true",
			"mv d e; mkdir d; echo n >d/new", nil,
			map[string]string{"e/a": "a\n", "d/new": "n\n", "d/a": ""},
		},
		{
			"swapped", "mkdir one two; echo 1 >one/f; echo 2 >two/f; touch -d @1 one/f two/f", "mv one t; mv two one; mv t two",
			"true",
			[]string{"one/f", "two/f"},
			map[string]string{"one/f": "2\n", "two/f": "1\n"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree := r.tree(t)
			host := func(script string) {
				t.Helper()
				c := exec.Command("bash", "-ec", "umask 0; "+script)
				c.Dir = tree
				if out, err := c.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", script, err, out)
				}
			}
			host(tt.begin)
			id := r.session(t, r.admin, client.SessionCreate{Worktree: client.Worktree{Source: tree, Mode: client.WorktreeOverlay}}).ID
			if c := bash(t, r.admin, id, tt.session); c.IsError {
				t.Fatalf("%+v", c)
			}
			host(tt.host)
			if current.name == "runsc" { // which takes no mount into a running sandbox: afterwards
				_, err := r.admin.EndSession(t.Context(), id, client.EndOptions{Force: true})
				must(t, err)
			}
			list, err := r.admin.Changes(t.Context(), id, client.DiffQuery{Limit: 1000})
			var changed []string
			if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != client.CodeNotFound || tt.changed != nil { // it has left none
				must(t, err)
				for _, x := range list.Items {
					changed = append(changed, x.Path)
				}
			}
			if !slices.Equal(changed, tt.changed) {
				t.Errorf("changed are %q, want %q", changed, tt.changed)
			}
			if len(changed) > 0 {
				_, err = r.admin.Apply(t.Context(), id, client.ApplyRequest{})
				must(t, err)
			}
			for name, want := range tt.has {
				if b, err := os.ReadFile(filepath.Join(tree, name)); string(b) != want || (err != nil) != (want == "") {
					t.Errorf("%s has %q, %v; want %q", name, b, err, want)
				}
			}
		})
	}
}
