package layers

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestIncompleteOfCheckpoints: what is incomplete belongs to the layers: whatever became of a tree
// meanwhile, with the layers of a checkpoint that comes back, which was made before or after it.
// What directories of the source were stays known until changes are written there.
func TestIncompleteOfCheckpoints(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	s, tree := rig(t)
	began, want := *tree, map[string][]Incomplete{}
	origins := map[string]string{}
	for i := range 300 {
		write(t, s, tree, fmt.Sprint("f", i))
		var err error
		one := Incomplete{Path: fmt.Sprint("d", i%7), From: "d", Why: fmt.Sprint(i)}
		switch r.IntN(8) {
		case 0:
			_, err = s.Reset("ses_1")
		case 1:
			_, err = Forgive(s, "ses_1", []string{one.Path})
		case 2:
			_, err = s.Settle("ses_1", tree.Lower, []Incomplete{one}, nil)
		case 3:
			if n := len(tree.Lower) / 2; n > 0 {
				err = s.Merge(tree, n, fmt.Sprint("l_merged", i), []Incomplete{one}, map[string]string{one.Why: "is"})
				origins[one.Why] = "is"
			}
		case 4:
			if n := len(tree.Checkpoints); n > 0 {
				c := tree.Checkpoints[r.IntN(n)]
				tree, err = s.Restore("ses_1", c.ID)
				if err == nil && !slices.Equal(tree.Incomplete, want[c.ID]) {
					t.Fatalf("step %d: after %s came back these are incomplete: %+v, want %+v", i, c.ID, tree.Incomplete, want[c.ID])
				}
			}
		default:
			if tree, err = s.Freeze("ses_1", Checkpoint{}); errors.Is(err, ErrDeep) {
				_, err = s.Reset("ses_1")
			} else if err == nil {
				want[tree.Checkpoints[len(tree.Checkpoints)-1].ID] = slices.Clone(tree.Incomplete)
			}
		}
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		tree = must[*Tree](t)(s.Get("ses_1"))
	}
	if len(origins) == 0 || !maps.Equal(tree.Origins, origins) {
		t.Errorf("%d directories of the source are known of %d", len(tree.Origins), len(origins))
	}
	tree = must[*Tree](t)(s.Outdate("ses_1"))
	known := func(c Checkpoint) bool { return len(c.Incomplete) > 0 }
	if len(tree.Origins) > 0 || slices.ContainsFunc(tree.Checkpoints, known) {
		t.Error("written to the source: what was of no checkpoint that can come back is known")
	}
	tree = must[*Tree](t)(s.Applied("ses_1", began.Since))
	if len(tree.Origins) > 0 || len(tree.Incomplete) > 0 || slices.ContainsFunc(tree.Checkpoints, known) {
		t.Error("gone on from there: something is incomplete")
	}
}

// TestMergeLate: a merge that was begun before something else became of its tree changes nothing
// of that.
func TestMergeLate(t *testing.T) {
	lost := func(paths ...string) (all []Incomplete) {
		for _, p := range paths {
			all = append(all, Incomplete{Path: p})
		}
		return all
	}
	for name, tt := range map[string]struct {
		meanwhile func(s *Store, began *Tree) (*Tree, error)
		other     bool
		want      []Incomplete
	}{
		"nothing": {want: lost("old", "new"), meanwhile: func(s *Store, _ *Tree) (*Tree, error) { return s.Get("ses_1") }},
		"a checkpoint": {want: lost("old", "new"), meanwhile: func(s *Store, _ *Tree) (*Tree, error) {
			return s.Freeze("ses_1", Checkpoint{})
		}},
		"a discarded directory": {want: lost("new"), meanwhile: func(s *Store, _ *Tree) (*Tree, error) {
			return Forgive(s, "ses_1", []string{"old"})
		}},
		"all discarded": {other: true, meanwhile: func(s *Store, _ *Tree) (*Tree, error) { return s.Reset("ses_1") }},
		"gone back": {other: true, meanwhile: func(s *Store, began *Tree) (*Tree, error) {
			return s.Restore("ses_1", began.Checkpoints[0].ID)
		}},
		"settled": {other: true, want: lost("settled"), meanwhile: func(s *Store, began *Tree) (*Tree, error) {
			return s.Settle("ses_1", began.Lower[:1], lost("settled"), nil)
		}},
		"applied": {other: true, meanwhile: func(s *Store, began *Tree) (*Tree, error) { return s.Applied("ses_1", began.Since) }},
	} {
		t.Run(name, func(t *testing.T) {
			s, tree := rig(t)
			for i := range 3 {
				write(t, s, tree, fmt.Sprint("f", i))
				tree = must[*Tree](t)(s.Freeze("ses_1", Checkpoint{}))
			}
			tree.Incomplete = lost("old")
			if err := s.Put(tree); err != nil {
				t.Fatal(err)
			}
			now, err := tt.meanwhile(s, must[*Tree](t)(s.Get("ses_1")))
			if err != nil {
				t.Fatal(err)
			}
			write(t, s, now, "late")
			err = s.Merge(tree, 2, "l_merged", lost("old", "new"), map[string]string{"from": "is"})
			if tt.other != errors.Is(err, ErrOther) || !tt.other && err != nil {
				t.Errorf("the merge: %v", err)
			}
			now = must[*Tree](t)(s.Get("ses_1"))
			if !slices.Equal(now.Incomplete, tt.want) || tt.other != (now.MergedInto == "") || tt.other != (len(now.Origins) == 0) {
				t.Errorf("incomplete are %+v, want %+v; merged into %q, origins %v", now.Incomplete, tt.want, now.MergedInto, now.Origins)
			}
		})
	}
}
