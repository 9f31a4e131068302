// Package errand has an agent do the daemon's own work, beside the calls of clients: it
// reads a small file, asks what has changed, and runs a formatter. An errand has no
// record; its sender reports the result.
package errand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
)

// Conn is what an errand needs of an *agent.Conn.
type Conn interface {
	Prepare(ctx context.Context, r agent.Request) (*run.Prepared, error)
	Run(ctx context.Context, r agent.Request, s agent.Sink) (*agent.Outcome, error)
	Ack(callID string, offset int64) error
	Forget(callID string) error
	Abort(callID string, reason run.Reason) error
}

// Errand is errands over one connection.
type Errand struct {
	Conn  Conn
	NewID func() string // of a call that nobody has
}

// maxNote bounds texts of the agent's, in bytes.
const maxNote = 16 << 10

// File reads a file, if it has no more than most bytes (else ErrTooLong), as the tool user.
// check says whether it may be what it turns out to be. No bytes without an error are no
// file.
func (e *Errand) File(ctx context.Context, name string, most int, limit time.Duration, check func(*run.Target) error) ([]byte, error) {
	r := e.request(run.DownloadJob(name), int64(most)+1, limit)
	prep, err := e.Conn.Prepare(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case len(prep.Targets) == 0 && prep.Result != nil:
		return nil, errors.New(plain.Cut(prep.Result.Output, maxNote))
	case len(prep.Targets) == 0 || !prep.Targets[0].Exists:
		return nil, nil
	}
	if err := check(&prep.Targets[0]); err != nil {
		return nil, err
	}
	r.Prepared = prep
	return e.read(ctx, r, most)
}

// Make makes a file that is not there yet, as the tool user.
func (e *Errand) Make(ctx context.Context, name, content string, limit time.Duration) error {
	r := e.request(run.WriteJob(name, content), 0, limit)
	prep, err := e.Conn.Prepare(ctx, r)
	if err != nil {
		return err
	}
	if len(prep.Targets) == 0 || prep.Targets[0].Exists {
		return errors.New("there is something in its place")
	}
	r.Prepared = prep
	_, err = e.do(ctx, r, silent)
	return err
}

// ErrTooLong says that a file is longer than what is read of it.
var ErrTooLong = errors.New("it is too long")

// ErrLost: the agent has gone, or cannot be reached any more.
var ErrLost = agent.ErrLost

var errNoAnswer = errors.New("the agent gave an invalid answer")

// do runs a job to its end and gives its result. One that says that the job failed is an
// error.
func (e *Errand) do(ctx context.Context, r agent.Request, s agent.Sink) (*run.Result, error) {
	out, err := e.run(ctx, r, s)
	switch {
	case err != nil:
		return nil, err
	case out.Err != nil: // also of an agent that does not know the tool
		return nil, out.Err
	case out.Result == nil || out.Result.IsError && out.Result.Output == "":
		return nil, errNoAnswer
	case out.Result.IsError:
		return nil, &SaidError{plain.Cut(out.Result.Output, maxNote)}
	}
	return out.Result, nil
}

// SaidError is what an agent says of a job that it could begin and not do: what is in its tree
// (rights, room, names) did not let it.
type SaidError struct {
	Words string // cut and hostile
}

// Error implements error.
func (e *SaidError) Error() string { return e.Words }

// run runs a job to its end. What nobody waits for any longer is aborted.
func (e *Errand) run(ctx context.Context, r agent.Request, s agent.Sink) (*agent.Outcome, error) {
	out, err := e.Conn.Run(ctx, r, s)
	if err != nil {
		_ = e.Conn.Abort(r.CallID, run.ReasonAborted)
	}
	_ = e.Conn.Forget(r.CallID) // after a loss, whoever connects again does it
	return out, err
}

// request makes the request for a job.
func (e *Errand) request(j run.Job, most int64, limit time.Duration) agent.Request {
	return agent.Request{
		CallID: e.NewID(), Tool: j.Tool, Input: j.Input, TimeoutMillis: limit.Milliseconds(), MaxOutput: most,
	}
}

// read gives what a job prints, if that is no more than most bytes.
func (e *Errand) read(ctx context.Context, r agent.Request, most int) ([]byte, error) {
	var text bytes.Buffer
	if _, err := e.do(ctx, r, e.flow(r.CallID, &text, int64(most))); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// sink takes what a job prints. It is an agent.Sink.
type sink func(offset int64, p []byte) error

// Output implements agent.Sink.
func (s sink) Output(offset int64, _ bool, p []byte) error { return s(offset, p) }

// Metadata implements agent.Sink.
func (sink) Metadata(map[string]any) {}

// silent is for jobs that print nothing.
var silent sink = func(int64, []byte) error { return errors.New("there should be no output") }

// flow passes output of a call on as it comes: no more than most bytes (else ErrTooLong), 0 for
// any number. The agent forgets what was written.
func (e *Errand) flow(call string, to io.Writer, most int64) sink {
	return func(offset int64, p []byte) error {
		end := offset + int64(len(p))
		if most > 0 && end > most {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLong, most)
		}
		if _, err := to.Write(p); err != nil {
			return err
		}
		return e.Conn.Ack(call, end)
	}
}
