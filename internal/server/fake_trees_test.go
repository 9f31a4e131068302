package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
)

// fakeCheckpoint is a checkpoint of every session, and fakePatch the patch of each.
const (
	fakeCheckpoint = "cp_1"
	fakeCache      = "go"
	fakePatch      = "diff --git a/x b/x\n+\x1b]0;title\a\xff\r\n"
)

// Diff gives fakePatch; of the path "endless" bytes without end, of "silent" nothing
// until ctx ends, and of "broken" a patch that fails in the middle.
func (f *fakeAPI) Diff(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (io.ReadCloser, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	f.note(p, q)
	var r io.Reader = strings.NewReader(fakePatch)
	switch strings.Join(q.Paths, "") {
	case "endless":
		r = zeros{}
	case "silent":
		r = silence{ctx}
	case "broken":
		r = io.MultiReader(r, silence{f.over()})
	}
	f.count(&f.waiting, 1)
	return closing{r, func() { f.count(&f.waiting, -1) }}, nil
}

// over is a context that has ended.
func (f *fakeAPI) over() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("the agent is gone"))
	return ctx
}

// silence gives nothing until its context ends.
type silence struct{ ctx context.Context }

func (s silence) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, context.Cause(s.ctx) }

type closing struct {
	io.Reader
	close func()
}

func (c closing) Close() error { c.close(); return nil }

func (closing) Missing() (leftOut, unreadable int) { return 3, 2 }

func (closing) Omitted() (excluded, ignored int) { return 4, 5 }

func (closing) Converted() int { return 6 }

func (f *fakeAPI) Changes(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (*client.Changes, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	f.note(p, q)
	if q.After == "last" {
		return &client.Changes{Files: 1}, nil
	}
	one := client.Change{Path: "x\ufffd", Bytes: []byte("x\xff"), Status: client.ChangeAdded, Kind: "file", Mode: "0644", Size: 3, Added: 1}
	return &client.Changes{Items: []client.Change{one}, Next: "last", Files: 1, Added: 1}, nil
}

// Apply conflicts with the path "there".
func (f *fakeAPI) Apply(ctx context.Context, p auth.Principal, id string, r client.ApplyRequest) (*client.Applied, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	f.note(p, r)
	if strings.Join(r.Paths, "") == "there" {
		return nil, fault.Conflict.Errorf("1 file has changed in the source").Next("look").At([]fault.Place{{Path: "there/x", Message: "it has another size"}})
	}
	return &client.Applied{Written: []string{"x"}, WrittenCount: 1, DryRun: r.DryRun}, nil
}

func (f *fakeAPI) Discard(ctx context.Context, p auth.Principal, id string, r client.DiscardRequest) (*client.Discarded, error) {
	_, err := f.Get(ctx, p, id)
	f.note(p, r)
	return &client.Discarded{Count: 3}, err
}

func (f *fakeAPI) Checkpoint(ctx context.Context, p auth.Principal, id string, r client.CheckpointCreate) (*client.Checkpoint, error) {
	_, err := f.Get(ctx, p, id)
	f.note(p, r)
	return &client.Checkpoint{ID: fakeCheckpoint, Session: id, Name: r.Name, Created: time.Now().UTC(), Cause: "request"}, err
}

func (f *fakeAPI) Checkpoints(ctx context.Context, p auth.Principal, id string) (client.List[client.Checkpoint], error) {
	_, err := f.Get(ctx, p, id)
	return client.List[client.Checkpoint]{}, err
}

func (f *fakeAPI) DropCheckpoint(ctx context.Context, p auth.Principal, id, checkpoint string) error {
	_, err := f.Get(ctx, p, id)
	f.note(p, checkpoint)
	return err
}

func (f *fakeAPI) Restore(ctx context.Context, p auth.Principal, id string, r client.RestoreRequest) (*client.Restored, error) {
	c, err := f.Checkpoint(ctx, p, id, client.CheckpointCreate{Name: r.Checkpoint})
	f.note(p, r)
	return &client.Restored{Checkpoint: *c, Before: *c}, err
}

func (f *fakeAPI) Fork(ctx context.Context, p auth.Principal, id string, r client.ForkRequest) (*client.Session, error) {
	s, err := f.Get(ctx, p, id)
	f.note(p, r)
	return s, err
}

func (f *fakeAPI) Network(ctx context.Context, p auth.Principal, id string) (*client.SessionNetwork, error) {
	_, err := f.Get(ctx, p, id)
	return &client.SessionNetwork{Mode: client.NetworkRules, Hosts: []client.NetworkHost{}}, err
}

func (f *fakeAPI) ListCaches(_ context.Context, p auth.Principal) (client.List[client.Cache], error) {
	f.note(p, "caches")
	return client.List[client.Cache]{Items: []client.Cache{{Name: fakeCache, Tenant: p.Tenant, Mode: client.CacheCow}}}, nil
}

func (f *fakeAPI) RemoveCache(_ context.Context, p auth.Principal, name string) error {
	f.note(p, name)
	return nil
}

func (f *fakeAPI) PromoteCache(ctx context.Context, p auth.Principal, id, name string) (*client.Cache, error) {
	_, err := f.Get(ctx, p, id)
	f.note(p, name)
	return &client.Cache{Name: name, Tenant: p.Tenant, Mode: client.CacheCow, Session: id}, err
}
