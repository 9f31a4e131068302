package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
)

// uploadPrefix names the files of uploads in the sandbox.
const uploadPrefix = "put_"

// uploadDir is where uploads are until they may be written. No sandbox has it.
func (dm *daemon) uploadDir() string { return filepath.Join(filepath.Dir(dm.cfg.OutputDir), "uploads") }

// emptyUploads makes the directory, without what a daemon that was killed has left in it.
func (dm *daemon) emptyUploads() error {
	if err := os.RemoveAll(dm.uploadDir()); err != nil {
		return err
	}
	return os.MkdirAll(dm.uploadDir(), 0o700)
}

// Files takes files to the sandboxes and from them.
type Files struct{ *roster }

// Upload implements server.Files. Uploads and downloads are calls like any other of hidden tools:
// recorded, judged, and run as the tool user. When all bytes are there and the call may run, they come into
// the session's output directory, which the sandbox sees read-only, and file_put copies them to their place.
func (f *Files) Upload(ctx context.Context, p auth.Principal, sessionID, path string, mode uint32, body io.Reader) (*client.Call, error) {
	if err := f.Accepting(); err != nil {
		return nil, err
	}
	s, err := f.notOver(ctx, p, sessionID)
	if err != nil {
		return nil, err
	}
	name := f.store.NewID(uploadPrefix)
	apart, file := filepath.Join(f.uploadDir(), name), filepath.Join(s.outDir, name)
	size, err := f.receive(s, apart, body)
	defer func() {
		_, _ = os.Remove(apart), os.Remove(file)
		s.calls.Spilled.Add(-size)
	}()
	if err != nil {
		return nil, f.internal("take an upload", err)
	}
	job := run.UploadJob(sandbox.OutputDir+"/"+name, path, mode)
	// The file must stay until the call has ended, whoever still waits for it.
	c, err := f.calls.Call(context.WithoutCancel(ctx), p, s.id, client.CallCreate{Tool: job.Tool, Input: job.Input}, call.Options{
		Hidden: true, Lay: func() error { return os.Rename(apart, file) },
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// receive saves what is uploaded, within the caps of the session's outputs.
func (f *Files) receive(s *Session, file string, body io.Reader) (size int64, err error) {
	set := f.settings.Load()
	size, err = output.Save(output.Config{Limits: set.Truncate, Path: file, Used: &s.calls.Spilled, Room: f.uploadRoom}, body)
	if why, ok := errors.AsType[output.Stopped](err); ok {
		err = fault.Quota.Errorf("the upload was not taken: %s", string(why)).
			Next("upload less, or raise truncate.spill_file and truncate.spill_session")
	} else if errors.Is(err, output.ErrBroken) {
		err = fault.Aborted.Errorf("the upload broke off: nothing was written")
	}
	return size, err
}

// uploadRoom refuses what the host has no room for, before and while it arrives, in the words that the
// call would be refused with.
func (f *Files) uploadRoom() error {
	return cmp.Or(f.disk.admits(), f.memory.admits(), f.diskRoom(0), f.keepRoom())
}

// Download implements server.Files. The file is saved as the output of a call first: its
// size is known then, and a slow reader keeps nothing in the sandbox waiting.
func (f *Files) Download(ctx context.Context, p auth.Principal, sessionID, path string) (io.ReadCloser, int64, error) {
	who := p
	who.Session = "" // this call is their own
	job := run.DownloadJob(path)
	c, err := f.calls.Call(ctx, p, sessionID, client.CallCreate{Tool: job.Tool, Input: job.Input}, call.Options{Hidden: true, AbortOnDisconnect: true})
	if err != nil {
		return nil, 0, err
	}
	drop := func() { f.calls.DropOutput(context.WithoutCancel(ctx), who, c) }
	out, size, err := f.given(ctx, who, path, c)
	if err != nil {
		drop()
		return nil, 0, err
	}
	return &downloaded{out, drop}, size, nil
}

// given is what the call of a download gave.
func (f *Files) given(ctx context.Context, who auth.Principal, path string, c *client.Call) (io.ReadCloser, int64, error) {
	switch {
	case c.Error != nil:
		return nil, 0, c.Error
	case c.IsError:
		return nil, 0, fault.BadPath.Errorf("%s", c.Output)
	case c.Metadata["output_incomplete"] != nil:
		return nil, 0, fault.Quota.Errorf("%q is too large: %v", shown(path), c.Metadata["output_incomplete"]).
			Next("download it in parts (split), or raise truncate.spill_file and truncate.spill_session")
	}
	return f.calls.Output(ctx, who, c.ID, client.OutputQuery{})
}

// downloaded is the content of a file; drop removes what was saved of it where agents may not have it.
type downloaded struct {
	io.ReadCloser
	drop func()
}

// Close implements io.Closer.
func (d *downloaded) Close() error {
	err := d.ReadCloser.Close()
	d.drop()
	return err
}
