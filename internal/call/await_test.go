package call

import (
	"errors"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/stream"
)

// TestCutOffAndOver: who was cut off is told so also when the call is over by
// then: it has not had all of it.
func TestCutOffAndOver(t *testing.T) {
	large := stream.Sender{Event: func(typ string, _ any) client.Event { return client.Event{Type: typ, Data: make([]byte, 2<<20)} }}
	free := make(chan struct{})
	l := large.Follow(func(client.Event) { <-free }, false, func() *client.Call { return &client.Call{} })
	for range 3 {
		large.Tell("x", nil)
	}
	<-l.TooSlow()
	close(free)
	defer large.Unfollow(l)
	c := &Call{admission: admission{known: make(chan struct{})}, done: make(chan struct{}), ctx: t.Context()}
	close(c.known)
	close(c.done)
	for range 100 {
		if _, err := c.await(t.Context(), nil, false, l); !errors.Is(err, ErrTooSlow) {
			t.Fatalf("got %v", err)
		}
	}
}
