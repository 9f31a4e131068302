package session

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// TestRealMovedSaved: what a person does in a directory that the session has moved is in the way of
// that, by its name; leaving out either name leaves out both; and force loses nothing of it that it
// does not name.
func TestRealMovedSaved(t *testing.T) {
	a := newApplyRig(t)
	top := a.src
	for _, tt := range []struct{ name, host, file, named string }{
		{"in place", "echo mine >>pkg/f", "f", "pkg/f"},
		{"by a rename", "echo mine >pkg/.f; mv pkg/.f pkg/f", "f", "pkg/f"},
		{"below", "echo mine >pkg/sub/.g; mv pkg/sub/.g pkg/sub/g", "sub/g", "pkg/sub/g"},
		{"new", "echo mine >pkg/new", "new", "seven"},
	} {
		for _, then := range []string{"live", "end"} {
			t.Run(tt.name+", "+then, func(t *testing.T) {
				a.src = top + "/" + tt.name + then
				a.must(errors.Join(os.MkdirAll(a.src, 0o755), os.Chown(a.src, int(alice.UID), int(alice.GID))))
				a.host(".", "mkdir -p pkg/sub; echo f >pkg/f; echo g >pkg/sub/g; echo a >a; echo h >pkg/h")
				id := a.session("")
				a.bash(id, "mv pkg seven; echo b >a; echo new >b")
				a.await(func() bool { // what is kept of it after the call
					tree, err := a.m.cfg.Trees.Get(id)
					a.must(err)
					return tree.Origins["pkg"] != ""
				})
				if then == "end" {
					a.end(id)
				}
				a.host(".", tt.host)
				before := a.files()
				refused := func(r client.ApplyRequest, word string) {
					t.Helper()
					for _, r.DryRun = range []bool{true, false} {
						_, err := a.m.trees.Apply(t.Context(), owner, id, r)
						f, ok := errors.AsType[*fault.Error](err)
						if !ok || f.Kind != fault.Conflict || f.Hint == "" || !slices.ContainsFunc(f.Places, func(p fault.Place) bool { return strings.Contains(p.Path+p.Message, word) }) {
							t.Errorf("%+v: got %v, which does not name %s", r, err, word)
						}
						if after := a.files(); !slices.Equal(before, after) {
							t.Errorf("%+v: the source had %q and has %q", r, before, after)
						}
					}
				}
				refused(client.ApplyRequest{}, tt.named)
				for _, exclude := range []string{"seven", "pkg", "/seven", "pkg/"} {
					v, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{DryRun: true, Exclude: []string{exclude}})
					if err != nil || !slices.Equal(v.Written, []string{"a", "b"}) || v.RemovedCount > 0 {
						t.Errorf("without %s: got %+v, %v", exclude, v, err)
					}
				}
				would, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Force: true, DryRun: true})
				a.must(err)
				did, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Force: true})
				a.must(err)
				if would.DryRun = false; !reflect.DeepEqual(would, did) {
					t.Errorf("force did %+v, and would have %+v", did, would)
				}
				after := a.files()
				told := slices.Concat(did.Overwritten, did.Kept)
				if !slices.Contains(told, "pkg/"+tt.file) {
					t.Errorf("force does not name pkg/%s: %+v", tt.file, did)
				}
				if !slices.ContainsFunc(after, func(f string) bool { return strings.HasSuffix(f, "mine\n") }) {
					t.Errorf("force lost what a person saved: %q", after)
				}
				if then == "live" {
					a.end(id)
				}
			})
		}
	}
}
