package server

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// Trees compares, applies and drops what sessions have changed in worktrees whose
// changes are kept beside the source, and brings them back to checkpoints, which are
// named or have ids. Holders of a session's token never reach it. It checks the paths
// and names of a request itself. What conflicts is a fault.Conflict that has the paths
// as its places.
type Trees interface {
	// Diff gives a patch, made while it is read; it ends with ctx, and then, as where it
	// fails, in an error and not in io.EOF.
	Diff(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (io.ReadCloser, error)
	// Changes gives at most q.Limit of them. Next is text without control characters.
	Changes(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (*client.Changes, error)
	Apply(ctx context.Context, p auth.Principal, id string, r client.ApplyRequest) (*client.Applied, error)
	Discard(ctx context.Context, p auth.Principal, id string, r client.DiscardRequest) (*client.Discarded, error)
	Checkpoint(ctx context.Context, p auth.Principal, id string, r client.CheckpointCreate) (*client.Checkpoint, error)
	Checkpoints(ctx context.Context, p auth.Principal, id string) (client.List[client.Checkpoint], error)
	DropCheckpoint(ctx context.Context, p auth.Principal, id, checkpoint string) error
	Restore(ctx context.Context, p auth.Principal, id string, r client.RestoreRequest) (*client.Restored, error)
	Fork(ctx context.Context, p auth.Principal, id string, r client.ForkRequest) (*client.Session, error)
}

// treeRoutes are the handlers of routes about what sessions have changed.
type treeRoutes struct{ *Server }

// diff gives the patch, or with Accept: application/json one page of a list. Both read
// the whole tree, so both count as streams.
func (s treeRoutes) diff(x *exchange, r *request) error {
	q := client.DiffQuery{Paths: r.query["path"], Exclude: r.query["exclude"], NoIgnored: r.flag("no_ignored"), Against: r.query.Get("against")}
	list := accepts(r.Request, "application/json")
	switch {
	case list:
		var err error
		if q.After, q.Limit, err = r.pageOf(maxChanges); err != nil {
			return err
		}
	case r.query.Has("after") || r.query.Has("limit"):
		return invalid("a patch has no pages", "leave after and limit out, or send Accept: application/json for a list")
	}
	if list {
		return s.changes(x, r, q)
	}
	body, err := s.cfg.API.Trees.Diff(r.Context(), r.who, r.id, q)
	if err != nil {
		return err
	}
	defer body.Close()
	x.Header().Set("Trailer", strings.Join([]string{
		client.HeaderLeftOut, client.HeaderUnreadable, client.HeaderExcluded, client.HeaderIgnored, client.HeaderConverted, client.HeaderStale, client.HeaderSourceChanged, client.HeaderIncomplete, client.HeaderSourceAstray, client.HeaderEarlier,
	}, ", "))
	if err := s.sendBytes(x, r, body, -1); err != nil {
		return err
	}
	if m, ok := body.(interface {
		Missing() (leftOut, unreadable int)
	}); ok {
		leftOut, unreadable := m.Missing()
		x.Header().Set(client.HeaderLeftOut, strconv.Itoa(leftOut))
		x.Header().Set(client.HeaderUnreadable, strconv.Itoa(unreadable))
	}
	if m, ok := body.(interface {
		Omitted() (excluded, ignored int)
	}); ok {
		excluded, ignored := m.Omitted()
		x.Header().Set(client.HeaderExcluded, strconv.Itoa(excluded))
		x.Header().Set(client.HeaderIgnored, strconv.Itoa(ignored))
	}
	if m, ok := body.(interface {
		Stale() int
		SourceChanged() int
	}); ok {
		x.Header().Set(client.HeaderStale, strconv.Itoa(m.Stale()))
		x.Header().Set(client.HeaderSourceChanged, strconv.Itoa(m.SourceChanged()))
	}
	if m, ok := body.(interface{ Incomplete() int }); ok {
		x.Header().Set(client.HeaderIncomplete, strconv.Itoa(m.Incomplete()))
	}
	if m, ok := body.(interface{ Converted() int }); ok {
		x.Header().Set(client.HeaderConverted, strconv.Itoa(m.Converted()))
	}
	if m, ok := body.(interface {
		SourceAstray() string
		Earlier() string
	}); ok {
		x.Header().Set(client.HeaderSourceAstray, m.SourceAstray())
		x.Header().Set(client.HeaderEarlier, m.Earlier())
	}
	return nil
}

func (s treeRoutes) changes(x *exchange, r *request, q client.DiffQuery) error {
	list, err := s.cfg.API.Trees.Changes(r.Context(), r.who, r.id, q)
	if err == nil && list.Items == nil {
		list.Items = []client.Change{}
	}
	return x.answer(list, err)
}

func (s treeRoutes) checkpoints(x *exchange, r *request) error {
	return x.answer(page(s.cfg.API.Trees.Checkpoints(r.Context(), r.who, r.id)))
}

func (s treeRoutes) dropCheckpoint(x *exchange, r *request) error {
	return x.done(s.cfg.API.Trees.DropCheckpoint(r.Context(), r.who, r.id, r.PathValue("checkpoint")))
}
