package main

import (
	"context"
	"fmt"

	"github.com/toold/toold/client"
)

// createSession makes a session. Where it waits for a place (--queue), it says which
// one in the queue it has.
func (a *app) createSession(ctx context.Context, c *client.Client, r client.SessionCreate) (*client.Session, error) {
	progress := a.progress("creating a session")
	defer progress.stop()
	if r.Queue == 0 {
		return c.CreateSession(ctx, r)
	}
	return c.CreateQueued(ctx, r, func(q client.SessionQueued) {
		text := fmt.Sprintf("no session is free (max_sessions): waiting, position %d", q.Position)
		if progress.set(text); !a.errTTY {
			a.say("%s", text)
		}
	})
}
