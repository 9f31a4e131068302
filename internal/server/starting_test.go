package server

import (
	"context"
	"io"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
)

// notYet are the trees of a daemon that does not know its sessions yet.
type notYet struct{}

func (notYet) err() error {
	return fault.Overloaded.Errorf("the daemon is still starting").Next("try again")
}

func (n notYet) Diff(context.Context, auth.Principal, string, client.DiffQuery) (io.ReadCloser, error) {
	return nil, n.err()
}

func (n notYet) Changes(context.Context, auth.Principal, string, client.DiffQuery) (*client.Changes, error) {
	return nil, n.err()
}

func (n notYet) Apply(context.Context, auth.Principal, string, client.ApplyRequest) (*client.Applied, error) {
	return nil, n.err()
}

func (n notYet) Discard(context.Context, auth.Principal, string, client.DiscardRequest) (*client.Discarded, error) {
	return nil, n.err()
}

func (n notYet) Checkpoint(context.Context, auth.Principal, string, client.CheckpointCreate) (*client.Checkpoint, error) {
	return nil, n.err()
}

func (n notYet) Checkpoints(context.Context, auth.Principal, string) (client.List[client.Checkpoint], error) {
	return client.List[client.Checkpoint]{}, n.err()
}

func (n notYet) DropCheckpoint(context.Context, auth.Principal, string, string) error { return n.err() }

func (n notYet) Restore(context.Context, auth.Principal, string, client.RestoreRequest) (*client.Restored, error) {
	return nil, n.err()
}

func (n notYet) Fork(context.Context, auth.Principal, string, client.ForkRequest) (*client.Session, error) {
	return nil, n.err()
}

// TestTreesWhileStarting: whatever is asked about a worktree while a daemon starts is answered with 503
// and when to come again.
func TestTreesWhileStarting(t *testing.T) {
	d := start(t, func(c *Config) { c.API.Trees = notYet{} })
	s := d.session(t, client.Options{}, client.SessionCreate{})
	for _, q := range []struct{ method, path, body, accept string }{
		{"GET", "/diff", "", "*/*"},
		{"GET", "/diff", "", "application/json"},
		{"POST", "/apply", "{}", ""},
		{"POST", "/discard", "{}", ""},
		{"POST", "/checkpoints", "{}", ""},
		{"GET", "/checkpoints", "", ""},
		{"DELETE", "/checkpoints/cp_1", "", ""},
		{"POST", "/restore", `{"undo":1}`, ""},
		{"POST", "/fork", "{}", ""},
	} {
		var headers []string
		if q.accept != "" {
			headers = []string{"Accept", q.accept}
		}
		resp, body := d.do(t, q.method, "/v1/sessions/"+s.ID+q.path, q.body, headers...)
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%s %s, %s: %d, Retry-After %q\n%s", q.method, q.path, q.accept, resp.StatusCode, resp.Header.Get("Retry-After"), body)
		}
	}
}
