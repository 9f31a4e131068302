package session

import (
	"cmp"
	"context"
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
)

// stored reads the row of a session, live or not, by its id. While the daemon starts, anything
// else may be the name of a session that it has not taken over yet.
func (dm *daemon) stored(ctx context.Context, p auth.Principal, id string) (*store.Session, error) {
	if !store.ValidID("ses_", id) {
		if dm.shows.Load() != nil {
			return dm.named(ctx, p, id)
		}
		return nil, cmp.Or(dm.started(), noSession(id))
	}
	row, err := dm.store.Session(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, noSession(id)
	case err != nil:
		return nil, dm.internal("read session "+id, err)
	case !p.Sees(row.Tenant, row.ID):
		return nil, noSession(id)
	}
	return row, nil
}

// named reads the row of a session by the name that it has on record. Only where none is taken
// over (Manager.Show): else those that are know their names.
func (dm *daemon) named(ctx context.Context, p auth.Principal, name string) (*store.Session, error) {
	rows, err := dm.store.Sessions(ctx, store.SessionFilter{Live: true, Tenant: p.Tenant})
	if err != nil {
		return nil, dm.internal("read the session "+shown(name), err)
	}
	for _, row := range rows {
		if row.Name == name && name != "" && p.Sees(row.Tenant, row.ID) {
			return row, nil
		}
	}
	return nil, noSession(name)
}

func noSession(id string) error {
	return fault.NotFound.Errorf("there is no session %q", shown(id)).
		Next("toolctl session list shows your sessions")
}

// shown is what a message may quote of something that a client sent.
func shown(s string) string { return plain.Cut(s, 80) }

// internal is what an answer says of err: what those who asked can do something about,
// and of a failure of our own, which is logged, the reference alone.
func (dm *daemon) internal(what string, err error) error {
	var f *fault.Error
	var ce *client.Error
	switch {
	case errors.As(err, &ce):
		return ce
	case errors.As(err, &f):
		return f
	case errors.Is(err, store.ErrFull):
		return fault.Overloaded.Errorf("the disk that holds the daemon's state is full or cannot be written; nothing was begun").
			Next("free space on the host, then try again")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Aborted.Errorf("%s: the request ended before it finished", what)
	}
	ref := dm.store.NewID("err_")
	dm.log.Error("internal error", "reference", ref, "doing", what, "error", err)
	return fault.Internal.Errorf("internal error %s", ref).Next("the daemon's log has the cause under this reference")
}
