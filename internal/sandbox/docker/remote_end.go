package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/state"
)

// Destroy implements sandbox.Driver. What changed in the worktree is copied back
// first. While the Engine does not answer, nothing is given up: it is an error, and
// List finds the sandbox again.
func (r *Remote) Destroy(ctx context.Context, rec sandbox.Record) error {
	_, err := r.Return(ctx, rec)
	return err
}

// Return implements sandbox.Returning.
func (r *Remote) Return(ctx context.Context, rec sandbox.Record) (notes []string, err error) {
	note, err := r.destroy(ctx, &rec)
	if err != nil {
		err = fmt.Errorf("destroy sandbox %s: %w", rec.SessionID, err)
		if note == "" && r.waits(rec.SessionID) {
			note = fmt.Sprintf("changes of the worktree are not back: they wait at the Docker Engine %s; when it answers, and there is room for them here, toolctl gc brings them", r.d.engine.host)
		}
	}
	if note != "" {
		notes = []string{note}
	}
	return notes, err
}

// waits says whether a worktree is still to be copied back.
func (r *Remote) waits(session string) bool {
	return state.IsName(session) && r.trees.Waits(r.d.place(session).Dir)
}

// destroy gives a note about what did not come back, "" when all did.
func (r *Remote) destroy(ctx context.Context, rec *sandbox.Record) (note string, err error) {
	if !state.IsName(rec.SessionID) {
		return "", errors.New("that is no session id")
	}
	done, err := r.ends.Take(ctx, rec.SessionID)
	if err != nil {
		return "", fmt.Errorf("somebody else is ending it: %w", err)
	}
	defer done()
	found, err := r.d.place(rec.SessionID).read()
	if errors.Is(err, os.ErrNotExist) {
		return "", r.d.removeLabelled(ctx, rec)
	} else if err != nil {
		return "", err
	}
	if !found.Same(&rec.ID) {
		return "", nil // gone, or another has the name by now
	}
	if err := r.kill(ctx, found.Container); err != nil {
		return "", err
	}
	// Whoever ends a sandbox has time for ending processes, not for a worktree.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), backTime, errSlow{backTime})
	defer cancel()
	if note, err = r.copyBack(ctx, found); err != nil {
		return "", err
	}
	return note, r.discard(ctx, found)
}

// discard removes a sandbox as it is.
func (r *Remote) discard(ctx context.Context, rec *record) error {
	if err := r.d.removeLabelled(ctx, &rec.Record); err != nil {
		return err
	}
	r.trees.Forget(r.d.place(rec.SessionID).Dir)
	return r.d.place(rec.SessionID).Remove()
}

// kill ends all processes of a container.
func (r *Remote) kill(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	err := r.running(ctx, id)
	if errors.Is(err, sandbox.ErrGone) {
		return nil
	} else if err != nil {
		return err
	}
	return r.d.engine.do(ctx, workTime, "kill container "+id, func(ctx context.Context) error {
		err := r.d.engine.c.ContainerKill(ctx, id, "SIGKILL")
		if cerrdefs.IsConflict(err) { // it has ended meanwhile
			return nil
		}
		return err
	})
}

// copyBack brings what has changed. The note says what did not come back.
func (r *Remote) copyBack(ctx context.Context, rec *record) (note string, err error) {
	if rec.Container == "" {
		return "", nil
	}
	return r.trees.Return(ctx, r.d.place(rec.SessionID).Dir, func(target string, save func(io.Reader) error) error {
		err := r.d.engine.do(ctx, backTime, "copy from container "+rec.Container, func(ctx context.Context) error {
			body, _, err := r.d.engine.c.CopyFromContainer(ctx, rec.Container, target)
			if err != nil {
				return err
			}
			defer body.Close()
			return save(body)
		})
		if errors.Is(err, errNotFound) {
			err = fmt.Errorf("%w: %w", sandbox.ErrGone, err)
		}
		return err
	})
}
