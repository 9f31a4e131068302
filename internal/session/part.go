package session

import (
	"context"
	"errors"
	"os"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// part is one of the things that begin and end with a session. To add one: a type that
// embeds nothing and has those methods that it needs, and a place in partsOf.
type part interface {
	// claim checks what a request names for the part and holds it in the plan, which lets go
	// of it. Nothing is made yet: the store has no session.
	claim(ctx context.Context, pl *plan) error
	// open makes the part of a session that the store has. After an error the session ends,
	// with all of its parts.
	open(ctx context.Context, s *Session, pl *plan) error
	// adopt takes the part over from an earlier daemon. An error says why the session cannot
	// go on; it ends, with all of its parts.
	adopt(ctx context.Context, s *Session) error
	// close is called once, also for a part of which there is nothing. left is what of the
	// parts behind it could not be removed, nil for nothing, and err what of this one. notes are
	// for the session's.
	close(s *Session, e ending, left error) (notes []string, err error)
	// leftovers are what sessions that are over have left. What was found before an error
	// counts.
	leftovers(ctx context.Context) ([]leftover, error)
}

// leftover is one thing that is left of a session that is over.
type leftover struct {
	client.Garbage              // Error: why it is there, if that is known
	remove         func() error // an error says why it stays
}

// leftIn are what sessions that are over have left in a directory, by their ids: live gives those
// that are not. remove removes what one has.
func leftIn(live func(id string) *Session, dir, kind string, remove func(id string) error) (all []leftover, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		id := e.Name()
		if live(id) != nil {
			continue
		}
		all = append(all, leftover{client.Garbage{Kind: kind, Name: id, Session: id}, func() error {
			if err := remove(id); err != nil {
				return errors.New(plain.Cause(err))
			}
			return nil
		}})
	}
	return all, err
}

// nothing is what a part does that has nothing to do.
type nothing struct{}

func (nothing) claim(context.Context, *plan) error                        { return nil }
func (nothing) open(context.Context, *Session, *plan) error               { return nil }
func (nothing) adopt(context.Context, *Session) error                     { return nil }
func (nothing) close(*Session, ending, error) (notes []string, err error) { return nil, nil }
func (nothing) leftovers(context.Context) ([]leftover, error)             { return nil, nil }
