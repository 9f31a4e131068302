package crew_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/toold/toold/internal/crew"
)

// One at a time has the turn of a name, all get it, and who waits need not.
func TestTurns(t *testing.T) {
	var turns crew.Turns
	var work sync.WaitGroup
	at, most, all := 0, 0, 0 // guarded by the turn
	for range 50 {
		work.Go(func() {
			done, err := turns.Take(t.Context(), "x")
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			at++
			all++
			most = max(most, at)
			at--
		})
	}
	work.Wait()
	if all != 50 || most != 1 {
		t.Errorf("%d had a turn, %d at once", all, most)
	}
	done, err := turns.Take(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	other, err := turns.Take(t.Context(), "y")
	if err != nil {
		t.Fatal(err)
	}
	other()
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if _, err := turns.Take(ctx, "x"); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	done()
	if done, err := turns.Take(t.Context(), "x"); err == nil {
		done()
	} else {
		t.Error(err)
	}
}
