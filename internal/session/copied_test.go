package session

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// silentDriver is one of an Engine that does not answer.
type silentDriver struct{ sandbox.Driver }

func (silentDriver) List(context.Context, string) ([]sandbox.Record, error) {
	return nil, errors.New("the Engine does not answer")
}

// TestCopiedState: a daemon whose state directory is a copy of that of another one, which is stopped,
// takes nothing of the ranges of uids of the sessions that live on, and the other one has them again.
func TestCopiedState(t *testing.T) {
	one, two, alive, inUse := twoHouses(t)
	if err := one.build().start(t, inUse); err != nil {
		t.Fatal(err)
	}
	s := one.create(alice, client.SessionCreate{})
	alive[rangeOf(one, s)] = true
	one.kill()
	if err := os.CopyFS(two.dir, os.DirFS(one.dir)); err != nil {
		t.Fatal(err)
	}
	copied := two.build()
	copied.cfg.Drivers["far"] = silentDriver{two.host} // which says nothing of sessions of others
	if err := copied.start(t, inUse); err != nil {
		t.Fatal(err)
	}
	if got, err := two.m.Get(t.Context(), alice, s.ID); err != nil || got.State != client.SessionLost || !strings.Contains(got.Reason, "is a copy") {
		t.Errorf("in the copy: %+v, %v", got, err)
	}
	if base := rangeOf(two, two.create(alice, client.SessionCreate{})); alive[base] {
		t.Errorf("the copy gave range %d to a session, in which another one's processes are", base)
	}
	if err := one.build().start(t, inUse); err != nil {
		t.Fatal(err)
	}
	if got, err := one.m.Get(t.Context(), alice, s.ID); err != nil || got.State != client.SessionReady {
		t.Errorf("in the original: %+v, %v", got, err)
	}
	clear(alive)
}
