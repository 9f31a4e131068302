package call

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
)

// Output implements server.Calls.
func (s *Service) Output(ctx context.Context, p auth.Principal, callID string, o client.OutputQuery) (io.ReadCloser, int64, error) {
	if o.Offset < 0 {
		return nil, 0, fault.Invalid.Errorf("offset is %d; give 0 or more", o.Offset)
	}
	if o.Stream != "" && o.Stream != "stdout" && o.Stream != "stderr" {
		return nil, 0, fault.Invalid.Errorf("stream %q: use stdout or stderr, or leave it out", shown(o.Stream))
	}
	row, c, err := s.lookupKnown(ctx, p, callID)
	if err != nil {
		return nil, 0, err
	}
	now := (&twin{c, row}).call()
	if why := s.Unseen(ctx, p, now); why != "" {
		return nil, 0, errUnseen(now.ID, why)
	}
	if c != nil && o.Stream == "" {
		return c.out.Reader(ctx, o.Offset, o.Follow), c.out.Available(), nil
	}
	if c != nil {
		if o.Follow {
			return nil, 0, fault.Invalid.Errorf("one stream of a running call cannot be followed; follow the whole output, or wait for the end")
		}
		v := c.snapshot()
		row = &store.Call{Call: *v, Output: store.Output{File: !v.Finished() || c.out.Kept() > 0, Total: c.out.Offset()}}
	}
	return s.savedOutput(row, o)
}

// savedOutput serves the output of a call that is over.
func (s *Service) savedOutput(row *store.Call, o client.OutputQuery) (io.ReadCloser, int64, error) {
	file := s.savedPath(row)
	if o.Stream != "" && row.Output.Total == 0 && !row.Output.File {
		return io.NopCloser(strings.NewReader("")), 0, nil // neither stream had anything
	}
	if o.Stream != "" {
		r, err := output.OpenStream(file, o.Stream == "stderr", o.Offset)
		if err != nil {
			return nil, 0, s.savedError(row.ID, err)
		}
		return r, row.Output.Total, nil
	}
	if !row.Output.File && row.Output.Inline != row.Output.Total { // cut, or not as it was
		return nil, 0, errNotKept(row.ID)
	}
	if !row.Output.File {
		whole := row.Call.Output[:min(int64(len(row.Call.Output)), row.Output.Inline)]
		return io.NopCloser(strings.NewReader(whole[min(o.Offset, int64(len(whole))):])), int64(len(whole)), nil
	}
	f, size, err := output.OpenSaved(file, o.Offset)
	if err != nil {
		return nil, 0, s.savedError(row.ID, err)
	}
	return f, size, nil
}

// savedPath is the file of the output of a call.
func (s *Service) savedPath(row *store.Call) string {
	return filepath.Join(s.OutputDir, row.SessionID, row.ID)
}

func errNotKept(call string) error {
	return fault.NotFound.Errorf("the whole output of call %s is not kept, or no longer", call).
		Next("what the call shows of it is in its record")
}

// savedError is an error of package output as one of the API.
func (s *Service) savedError(call string, err error) error {
	switch {
	case errors.Is(err, output.ErrNotKept):
		return errNotKept(call)
	case errors.Is(err, output.ErrNoStreams):
		return fault.Invalid.Errorf("the output of call %s was not kept as two streams", call).
			Next("ask for it without stream=, or make the call with streams=split")
	}
	return s.Internal("read output", err)
}
