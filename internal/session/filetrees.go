package session

import (
	"context"
	"io"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool/run"
)

// Pack implements server.Files. The tar goes to the client as the tool writes it, and waits
// for it: it has no place on the way.
func (f *Files) Pack(ctx context.Context, p auth.Principal, sessionID, path string, most int64) (io.ReadCloser, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	out, in := io.Pipe()
	t := &packed{PipeReader: out, cancel: cancel, done: make(chan struct{})}
	pipe := &call.Pipe{To: in, Most: most}
	go func() {
		defer close(t.done)
		job := run.PackJob(path, most)
		c, err := f.calls.Call(ctx, p, sessionID, client.CallCreate{Tool: job.Tool, Input: job.Input}, call.Options{Hidden: true, AbortOnDisconnect: true, Pipe: pipe})
		in.CloseWithError(endOf(c, err)) // nil is io.EOF
	}()
	if err := t.begin(); err != nil {
		_ = t.Close()
		return nil, "", err
	}
	return t, pipe.ID, nil
}

// endOf is how a call that packs has ended.
func endOf(c *client.Call, err error) error {
	switch {
	case err != nil:
		return err
	case c.Error != nil:
		return c.Error
	case c.IsError:
		return fault.BadPath.Errorf("%s", c.Output)
	case c.Status != client.CallCompleted:
		return fault.Aborted.Errorf("the call that packs was aborted")
	}
	return nil
}

// packed is a tar as it comes. Close ends the call that makes it.
type packed struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
	first  []byte // what begin has read
}

// begin waits for the first bytes, so that a call that cannot run is an answer of its own.
func (t *packed) begin() error {
	buf := make([]byte, 512)
	n, err := t.PipeReader.Read(buf)
	t.first = buf[:n]
	return err
}

// Read implements io.Reader.
func (t *packed) Read(p []byte) (int, error) {
	if len(t.first) > 0 {
		n := copy(p, t.first)
		t.first = t.first[n:]
		return n, nil
	}
	return t.PipeReader.Read(p)
}

// Close implements io.Closer.
func (t *packed) Close() error {
	t.cancel()
	err := t.PipeReader.Close()
	<-t.done
	return err
}

// Unpack implements server.Files. body is closed when the call ends; a Read that waits
// must return then.
func (f *Files) Unpack(ctx context.Context, p auth.Principal, sessionID, path string, most int64, body io.ReadCloser) (*client.Call, error) {
	defer func() { _ = body.Close() }()
	job := run.UnpackJob(path, most)
	return f.calls.Call(ctx, p, sessionID, client.CallCreate{Tool: job.Tool, Input: job.Input},
		call.Options{Hidden: true, AbortOnDisconnect: true, Pipe: &call.Pipe{Body: body}})
}
