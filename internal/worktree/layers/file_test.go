package layers

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestFile: a tree comes out of its file as it went in, whatever layers its checkpoints
// have, and a thousand checkpoints that lie over one another take little. A file of an
// earlier toold, which has all layers of each, is read too: what is incomplete of the tree may be
// of each of its checkpoints.
func TestFile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		tree := &Tree{Session: "ses_1", Since: 7, Upper: "layer_u", Lower: []string{"layer_l"}}
		var layers []string
		var lost []Incomplete
		for i := range r.IntN(20) {
			switch r.IntN(6) {
			case 0:
				lost = append(slices.Clone(lost), Incomplete{Path: fmt.Sprint("p", i), Why: "gone", Gone: i%2 == 0})
			case 1:
				lost = nil
			}
			switch r.IntN(6) {
			case 0: // merged, or gone back
				layers = layers[r.IntN(len(layers)+1):]
			case 1:
				layers = append(slices.Clone(layers[:r.IntN(len(layers)+1)]), "layer_m")
			default:
				layers = slices.Insert(slices.Clone(layers), 0, fmt.Sprint("layer_", i))
			}
			if len(layers) == 0 {
				layers = nil
			}
			tree.Checkpoints = append(tree.Checkpoints, Checkpoint{ID: fmt.Sprint("cp_", i), Undone: r.IntN(2) == 0, Layers: layers, Incomplete: lost})
		}
		tree.Incomplete = lost
		earlier := *tree
		earlier.Checkpoints = slices.Clone(tree.Checkpoints)
		for i := range earlier.Checkpoints {
			earlier.Checkpoints[i].Incomplete = lost
		}
		for form, v := range map[string]struct {
			in   any
			want *Tree
		}{"now": {tree, tree}, "earlier": {(*plainTree)(tree), &earlier}} {
			data, err := json.Marshal(v.in)
			var got Tree
			if err == nil {
				err = json.Unmarshal(data, &got)
			}
			if err != nil || !reflect.DeepEqual(&got, v.want) {
				t.Fatalf("round %d, %s: %v\ngot %+v\nof  %s\nwant %+v", round, form, err, got, data, v.want)
			}
		}
	}
	tree := &Tree{Session: "ses_1"}
	var layers []string
	for i := range 1000 {
		layers = slices.Insert(slices.Clone(layers), 0, fmt.Sprintf("disk_0123456789abcdefghij.layer_0123456789abcdef%04d", i))
		if len(layers) > MaxLayers {
			layers = append(layers[:MaxLayers/2], fmt.Sprint("layer_merged_", i))
		}
		tree.Checkpoints = append(tree.Checkpoints, Checkpoint{ID: fmt.Sprint("cp_", i), Layers: layers})
	}
	if data, err := json.Marshal(tree); err != nil || len(data) > 300<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	for _, bad := range []string{`{"checkpoints":[{"id":"a","below":1}]}`, `{"checkpoints":[{"id":"a","layers":["x"]},{"id":"b","below":-1}]}`} {
		if err := json.Unmarshal([]byte(bad), new(Tree)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestRead: who is given a tree may change it, and nobody else has it then.
func TestRead(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		begin := &Tree{Session: "ses_1", UID: uint32(i), Lower: []string{"a", "b"}, Checkpoints: []Checkpoint{{ID: "cp_1", Layers: []string{"a"}}}}
		if err := s.Begin(begin); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := s.Get("ses_1")
			if err != nil || got.UID != uint32(i) || got.Lower[0] != "a" || got.Checkpoints[0].Undone || len(got.Checkpoints[0].Layers) != 1 {
				t.Fatalf("%d: got %+v, %v", i, got, err)
			}
			got.UID, got.Lower[0] = 99, "changed"
			got.Checkpoints[0].Undone, got.Checkpoints[0].Layers = true, nil
		}
	}
}
