package trees

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
)

// TestCutOffOutdates: a checkpoint that is from before an apply which was cut off after it was decided
// on does not come back, whether that has been finished meanwhile or not: its layers would lie over
// another source. One that is made afterwards does.
func TestCutOffOutdates(t *testing.T) {
	needs.OpenAt2(t)
	for _, left := range []string{"committed", "wrote", "heard"} { // at the steps of package apply
		s, o := newOne(t)
		p := auth.Principal{Admin: true}
		before, err := s.Checkpoint(t.Context(), p, "ses_1", client.CheckpointCreate{})
		testrig.Must(t, err)
		o.change(t)
		dir := o.store.ApplyDir("ses_1")
		testrig.Must(t, os.MkdirAll(dir, 0o700))
		testrig.Must(t, os.WriteFile(filepath.Join(dir, left), nil, 0o600))
		_, err = s.Restore(t.Context(), p, "ses_1", client.RestoreRequest{Checkpoint: before.ID})
		if f, _ := errors.AsType[*fault.Error](err); f == nil || f.Kind != fault.Conflict || f.Hint == "" {
			t.Errorf("%s: it was restored: %v", left, err)
		}
		tree, err := o.store.Get("ses_1")
		if err != nil || tree.Wrote == 0 {
			t.Errorf("%s: nobody knows when the source was written to: %+v, %v", left, tree, err)
		}
		_ = os.Remove(filepath.Join(dir, "committed")) // it has been finished
		after, err := s.Checkpoint(t.Context(), p, "ses_1", client.CheckpointCreate{})
		testrig.Must(t, err)
		if _, err := s.Restore(t.Context(), p, "ses_1", client.RestoreRequest{Checkpoint: after.ID}); err != nil {
			t.Errorf("%s: one that was made afterwards: %v", left, err)
		}
	}
}
