package trees

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree/layers"
)

// TestMergeLater: a session of which layers can never be merged has that tried ever more rarely, until
// it has nearly as many as it may have; and where it went back, or they could be merged, at once.
func TestMergeLater(t *testing.T) {
	t.Parallel()
	row := &store.Session{}
	row.ID = "ses_1"
	x := &subject{shared: &shared{}, row: row, tree: &layers.Tree{}}
	var tried []int
	for n := range layers.MaxLayers {
		x.tree.Lower = slices.Insert(x.tree.Lower, 0, fmt.Sprint(n))
		if n+1 >= mergeAt && !tooSoon(x) {
			tried = append(tried, n+1)
			mergeLater(x, errors.New("no"))
		}
	}
	early := slices.DeleteFunc(slices.Clone(tried), func(n int) bool { return n+mergeSoonest >= layers.MaxLayers })
	if len(early) < 2 || len(early) > 8 || !slices.Contains(tried, layers.MaxLayers) {
		t.Errorf("with a bound of %d layers it was tried at %d", layers.MaxLayers, tried)
	}
	x.tree.Lower = x.tree.Lower[layers.MaxLayers-mergeAt:]
	if tooSoon(x) {
		t.Error("it has gone back, and is not merged")
	}
	mergeLater(x, errors.New("no"))
	mergeLater(x, nil)
	if tooSoon(x) {
		t.Error("they could be merged, and are no more")
	}
}
