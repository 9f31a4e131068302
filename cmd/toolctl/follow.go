package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/toold/toold/client"
)

// abortGrace is how long the result of an aborted call is waited for: the
// daemon gives the command 3 s between SIGTERM and SIGKILL.
const abortGrace = 10 * time.Second

// follower runs a call and shows its output while it runs.
type follower struct {
	client *client.Client
	// stdout and stderr take the command's output; they may be the same.
	stdout, stderr flushWriter
	// split asks for the two streams apart. Their order against each other is
	// then lost, so it is for outputs that go to different places.
	split bool
	// onEvent, when set, is told of every event instead of the output being
	// written.
	onEvent func(client.Event) error
	// approval, when set, is told that the call waits for somebody to allow it,
	// and what came of that. ctx ends with the command.
	approval func(ctx context.Context, e client.Event)
	// detach leaves the call running when the context ends.
	detach bool

	next  map[string]int64 // offset of the next byte of output, by stream
	wrote bool             // there was output
}

// outputs makes a follower for this process's own streams.
func (a *app) outputs(c *client.Client) *follower {
	out := sandboxOut(a.stdout, a.outTTY)
	if sameFile(a.stdout, a.stderr) {
		return &follower{client: c, stdout: out, stderr: out}
	}
	return &follower{client: c, stdout: out, stderr: sandboxOut(a.stderr, a.errTTY), split: true}
}

// sameFile reports whether both writers lead to one place, such as a terminal.
func sameFile(a, b io.Writer) bool {
	if c, ok := a.(*checkedWriter); ok {
		a = c.to
	}
	fa, ok := a.(*os.File)
	fb, ok2 := b.(*os.File)
	if !ok || !ok2 {
		return false
	}
	ia, err := fa.Stat()
	ib, err2 := fb.Stat()
	return err == nil && err2 == nil && os.SameFile(ia, ib)
}

// run makes the call and returns it finished. When ctx ends, the call is
// aborted and its end awaited; the result is then returned as any other.
func (f *follower) run(ctx context.Context, session string, r client.CallCreate) (*client.Call, error) {
	if r.Key == "" {
		r.Key = rand.Text() // a broken connection may be taken up without a second run
	}
	f.next = make(map[string]int64)
	stream, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	aborter := newAborter(ctx, f.client, cancel, f.detach)
	defer aborter.stop()

	var final *client.Call
	var unwritten error
	for e, err := range f.client.StreamCall(stream, session, r, client.CallOptions{Split: f.split}) {
		if err != nil {
			return nil, err
		}
		aborter.started(e.Call)
		if f.approval != nil && (e.Type == client.EventApprovalAsked || e.Type == client.EventApprovalReplied) {
			f.approval(ctx, e)
		}
		if final, unwritten = f.take(stream, e); unwritten != nil {
			break
		}
	}
	if unwritten != nil {
		// Nobody reads what the command prints. The stream is closed by now: the
		// daemon does not have to wait for us before it can hear of the abort.
		aborter.now()
		return nil, unwritten
	}
	if err := f.flush(); err != nil {
		return nil, err
	}
	if final == nil {
		return nil, fmt.Errorf("the daemon ended the stream before the call: %w", client.ErrDisconnected)
	}
	return final, nil
}

// take handles one event; it returns the call when that is its last.
func (f *follower) take(ctx context.Context, e client.Event) (*client.Call, error) {
	if f.onEvent != nil {
		if err := f.onEvent(e); err != nil {
			return nil, err
		}
	} else if e.Type == "output" {
		return nil, f.output(ctx, e)
	}
	if e.Type != string(client.CallCompleted) && e.Type != string(client.CallError) {
		return nil, nil
	}
	final := new(client.Call)
	if err := json.Unmarshal(e.Data, final); err != nil {
		return nil, fmt.Errorf("result of call %s: %w", e.Call, err)
	}
	return final, nil
}

// output writes the bytes of one event, and before them those that the stream
// left out: it is live, and a reader that was too slow gets the rest from what
// the daemon has saved.
func (f *follower) output(ctx context.Context, e client.Event) error {
	var o client.Output
	if err := json.Unmarshal(e.Data, &o); err != nil {
		return fmt.Errorf("output of call %s: %w", e.Call, err)
	}
	w := f.stdout
	if o.Stream == "stderr" {
		w = f.stderr
	}
	if gap := o.Offset - f.next[o.Stream]; gap > 0 {
		q := client.OutputQuery{Offset: f.next[o.Stream], Stream: o.Stream}
		if err := copyOutput(ctx, f.client, w, e.Call, q, gap); err != nil {
			return err
		}
	}
	p := o.Bytes()
	f.wrote = true
	f.next[o.Stream] = o.Offset + int64(len(p))
	if _, err := w.Write(p); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func copyOutput(ctx context.Context, c *client.Client, w io.Writer, call string, q client.OutputQuery, n int64) error {
	r, err := c.CallOutput(ctx, call, q)
	if err != nil {
		return fmt.Errorf("read output of %s: %w", call, err)
	}
	defer r.Close()
	if _, err := io.CopyN(w, r, n); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read output of %s: %w", call, err)
	}
	return nil
}

func (f *follower) flush() error {
	if f.stdout == nil {
		return nil
	}
	if err := f.stdout.Flush(); err != nil {
		return err
	}
	if f.stderr != f.stdout {
		return f.stderr.Flush()
	}
	return nil
}

// aborter aborts a call when a context ends.
type aborter struct {
	client *client.Client
	cancel context.CancelCauseFunc // ends the stream when the abort has no effect
	detach bool
	done   chan struct{}
	wait   sync.WaitGroup

	known chan struct{} // closed when id is set
	id    string
}

func newAborter(ctx context.Context, c *client.Client, cancel context.CancelCauseFunc, detach bool) *aborter {
	a := &aborter{client: c, cancel: cancel, detach: detach, done: make(chan struct{}), known: make(chan struct{})}
	a.wait.Go(func() { a.watch(ctx) })
	return a
}

// started tells the call's id; it is called from one goroutine.
func (a *aborter) started(id string) {
	if a.id == "" && id != "" {
		a.id = id
		close(a.known)
	}
}

// watch aborts the call when ctx ends, and gives up waiting for its end after
// abortGrace.
func (a *aborter) watch(ctx context.Context) {
	select {
	case <-a.done:
		return
	case <-ctx.Done():
	}
	if !a.detach {
		grace, cancel := context.WithTimeout(context.Background(), abortGrace)
		defer cancel()
		select {
		case <-a.known:
			a.now()
		case <-a.done:
		case <-grace.Done(): // not accepted in all this time
		}
		select {
		case <-a.done:
			return
		case <-grace.Done():
		}
	}
	a.cancel(context.Cause(ctx))
}

// now asks the daemon to stop the call, if there is one. That it could not is
// not reported: the call's own end, or the lack of one, is.
func (a *aborter) now() {
	select {
	case <-a.known:
		ctx, cancel := context.WithTimeout(context.Background(), abortGrace)
		defer cancel()
		_, _ = a.client.AbortCall(ctx, a.id)
	default:
	}
}

func (a *aborter) stop() {
	close(a.done)
	a.wait.Wait()
}
