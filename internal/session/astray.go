package session

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree"
)

// errAsBefore: nothing of a row is to be changed.
var errAsBefore = errors.New("all is as before")

// lookAtSources sees whether the directories of the host that a session was given are at their paths, and
// nothing was mounted in them: no sandbox sees what comes there later.
// One that is not goes on to be what the session works in, though nobody may see it there: notes, an
// event and each call say so, until it is back. Of one that cannot be looked at nothing new is said.
func lookAtSources(s *Session, see func(*Session, []store.Source) []store.Source) {
	row := s.Row()
	now := see(s, row.Sources) // which may take its time: nothing is held meanwhile
	if slices.Equal(now, row.Sources) {
		return
	}
	var events []client.Event
	err := s.writeTelling(func(r *store.Session) error {
		if !slices.Equal(r.Sources, row.Sources) {
			return errAsBefore // another call has told what it saw: the next one looks again
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
func seeSources(s *Session, sources []store.Source) []store.Source {
	return seeTogether(sources, func(of store.Source) (string, error) { return see(s.ctx, &s.daemon.mounts, &of) })
}

// see says what is at the path of a source instead of it, or that something was mounted in it since.
func see(ctx context.Context, mounts *worktree.Mounts, of *store.Source) (is string, err error) {
	f, err := of.Open(ctx)
	if e, ok := errors.AsType[*worktree.AstrayError](err); ok {
		return e.Is, nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if of.Mounted != "" && worktree.MountedSince(of.Mounted, mounts.In(f)) {
		return worktree.IsMountedIn, nil
	}
	return "", nil
}

// seeTogether looks at all of them at once: file systems that hang are waited for as long as one of them.
func seeTogether(sources []store.Source, look func(store.Source) (is string, err error)) []store.Source {
	now := slices.Clone(sources)
	var looks sync.WaitGroup
	for i := range now {
		lookAt := func() {
			if is, err := look(now[i]); err == nil {
				now[i].Is = is
			}
		}
		if i == len(now)-1 {
			lookAt() // most often the only one
		} else {
			looks.Go(lookAt)
		}
	}
	looks.Wait()
	return now
}
