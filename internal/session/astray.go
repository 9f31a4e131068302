package session

import (
	"context"
	"errors"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/store"
)

// errAsBefore: nothing of a row is to be changed.
var errAsBefore = errors.New("all is as before")

// lookAtSources sees whether the directories of the host that a session was given are at their paths.
// One that is not goes on to be what the session works in, though nobody may see it there: notes, an
// event and each call say so, until it is back. Of one that cannot be looked at nothing new is said.
func lookAtSources(s *Session) {
	row := s.Row()
	if slices.Equal(seeSources(s.ctx, row.Sources), row.Sources) {
		return
	}
	var events []client.Event
	err := s.writeTelling(func(r *store.Session) error {
		now := seeSources(s.ctx, r.Sources)
		if slices.Equal(now, r.Sources) {
			return errAsBefore // another call has seen it too
		}
		notes := remark.Astray(r)
		r.Notes = slices.DeleteFunc(slices.Clone(r.Notes), func(n string) bool { return slices.Contains(notes, n) })
		for i, v := range now {
			if v.Is != r.Sources[i].Is {
				s.log.Info("a directory of a session has moved on the host, or is back", "path", v.Path, "is", v.Is)
				events = append(events, s.event(client.EventWorktreeSource, &client.SourceSeen{Path: v.Path, Target: v.Target, Is: v.Is}))
			}
		}
		r.Sources = now
		r.Notes = append(r.Notes, remark.Astray(r)...)
		return nil
	}, func(*store.Session) []client.Event { return events })
	if err != nil && !errors.Is(err, errAsBefore) {
		s.log.Error("say that a directory of a session has moved on the host", "error", err)
	}
}

// seeSources are the sources with what is at their paths now.
func seeSources(ctx context.Context, sources []store.Source) []store.Source {
	now := slices.Clone(sources)
	for i := range now {
		if is, err := now[i].Astray(ctx); err == nil {
			now[i].Is = is
		}
	}
	return now
}
