package crew_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toold/toold/internal/crew"
)

// TestClose: nobody begins any more, those at work are waited for, and those that are waited
// for in vain are named.
func TestClose(t *testing.T) {
	t.Parallel()
	var c crew.Crew
	end := make(chan struct{})
	for i := range 12 {
		c.Go(fmt.Sprintf("work %02d", i/2*2), func() { <-end })
	}
	for i := range 12 {
		c.Go(fmt.Sprintf("more %02d", i), func() { <-end })
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	err := c.Close(ctx)
	if !errors.Is(err, enough) || !strings.Contains(err.Error(), "more 00, more 01, ") || !strings.Contains(err.Error(), " and 8 more") {
		t.Errorf("got %v", err)
	}
	if c.Go("late", func() {}) {
		t.Error("one more has begun")
	}
	close(end)
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Errorf("nobody is at work: %v", err)
	}
}
