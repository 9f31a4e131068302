package apply

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
)

func unfinished(err error) error {
	return fault.Overloaded.Errorf("%w: %w", ErrUnfinished, err)
}

// Recovered says what Recover has found.
type Recovered struct {
	// Source is the directory that an apply was about; "" where none was under way.
	Source string
	// Applied is what the apply has written altogether, before or now; nil where it was
	// not committed, and has changed nothing.
	Applied *client.Applied
	// Left are the paths that somebody has changed meanwhile. They are left alone.
	Left []Conflict
}

// Recover finishes the job that was under way in a directory when the program ended, or
// drops what was not committed of it. It does nothing where there was none, and may be
// called again after an error: then the source is not there or cannot be written to.
func Recover(ctx context.Context, dir string) (*Recovered, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return &Recovered{}, nil
	}
	d, err := openState(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer d.close()
	return d.recover(ctx)
}

func (d *state) recover(ctx context.Context) (*Recovered, error) {
	defer d.letGo()
	return d.recoverHeld(ctx)
}

// recoverHeld is recover for one that may have the lock on the source.
func (d *state) recoverHeld(ctx context.Context) (*Recovered, error) {
	r, err := d.goOn(ctx)
	if err != nil {
		return nil, fmt.Errorf("finish what an earlier apply has left: %w", err)
	}
	d.tell(r)
	return r, nil
}

// goOn carries out the plan that there is, or drops it.
func (d *state) goOn(ctx context.Context) (*Recovered, error) {
	p, committed, err := d.plan()
	if err != nil {
		return nil, err
	}
	if p == nil {
		d.clear()
		return &Recovered{}, nil
	}
	r := &Recovered{Source: string(p.Source)}
	source, err := soon(ctx, p.open)
	if err != nil && committed {
		return nil, unfinished(err)
	}
	if err == nil {
		defer source.Close()
		if d.held == nil {
			err = d.hold(ctx, source)
		}
		if err != nil {
			return nil, err
		}
	}
	if !committed {
		return r, d.drop(ctx, p, source)
	}
	content, err := os.Open(d.path(contentFile))
	if err != nil {
		return nil, err
	}
	defer content.Close()
	w := &writer{
		ctx: ctx, plan: p, content: content, again: true, own: make(map[string]own), buf: newBuffer(ctx),
		report: &report{tasks: p.tasks, left: make(map[int]bool)},
	}
	if err := w.carryOut(d, p.Owner, source); err != nil {
		return nil, err
	}
	r.Applied, r.Left = w.report.applied(false), w.conflicts.found.Conflicts
	return r, nil
}

// drop forgets a plan of which nothing was done. What it has written to the source goes; a
// source that is not there any more has taken that with it.
func (d *state) drop(ctx context.Context, p *plan, source *os.File) error {
	if source != nil {
		w := &writer{ctx: ctx, plan: p}
		if err := d.as(ctx, p.Owner, source, w.unstage); err != nil {
			return fmt.Errorf("%w: %w", errLitter, err)
		}
	}
	d.clear()
	return nil
}

// soon gives what f gives, unless the file system that it works on does not answer.
func soon[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := f()
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: %w", beneath.ErrStuck, context.Cause(ctx))
	}
}
