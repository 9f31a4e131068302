package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/toold/toold/internal/tool/run"
)

// cut is a connection that is lost.
type cut struct{ Peer }

func (cut) Prepare(context.Context, Request) (*run.Prepared, error) { return nil, ErrLost }
func (cut) Run(context.Context, Request, Sink) (*Outcome, error)    { return nil, ErrLost }
func (cut) Close() error                                            { return nil }

// nowhere follows nothing.
type nowhere struct{ Sink }

func (nowhere) Offset() int64 { return 0 }
func (nowhere) Safe() int64   { return -1 }

// TestClosedWhileWaiting: what waits for another connection ends with the last one, whether it
// began to wait before or after.
func TestClosedWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, call := range map[string]func(r *Runner) error{
		"prepare": func(r *Runner) error { _, err := r.Prepare(ctx, Request{}); return err },
		"run":     func(r *Runner) error { _, err := r.Run(ctx, Request{}, nowhere{}); return err },
	} {
		r := &Runner{}
		r.Replace(cut{})
		ended := make(chan error, 1)
		go func() { ended <- call(r) }()
		r.Close()
		if err := <-ended; !errors.Is(err, ErrOver) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var r Runner
	r.Replace(cut{})
	l, err := r.Link()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err := r.after(ctx, l); !errors.Is(err, ErrOver) {
		t.Errorf("of a connection that was closed: %v", err)
	}
}
