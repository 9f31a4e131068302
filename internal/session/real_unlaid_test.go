package session

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/layers"
)

// TestRealUnlaid: a daemon that was killed in a checkpoint, and the source of whose session is away when the next one
// begins, loses nothing: the session can be read and compared, says why it is not written to, and goes on
// when the source is back.
func TestRealUnlaid(t *testing.T) {
	h := newRealHouse(t)
	m, stop, err := h.open(quiet())
	testrig.Must(t, err)
	src := source(t)
	testrig.Must(t, os.Chown(src, int(alice.UID), int(alice.GID)))
	s, err := m.Create(t.Context(), owner, client.SessionCreate{Worktree: client.Worktree{Source: src, Mode: client.WorktreeOverlay}, IdleTimeout: -1})
	testrig.Must(t, err)
	bash := func(command string) *client.Call { return realCall(t, m, s.ID, "bash", object{"command": command}) }
	if c := bash("echo one >one; cat one"); c.Output != "one\n" {
		t.Fatalf("%q, %v", c.Output, c.Error)
	}
	_, err = m.cfg.Trees.Freeze(s.ID, layers.Checkpoint{Cause: "api"}) // as if it was killed before this was laid
	testrig.Must(t, err)
	testrig.Must(t, stop())
	testrig.Must(t, os.Rename(src, src+"-gone"))

	if m, stop, err = h.open(quiet()); err != nil {
		t.Fatal(err)
	}
	v, err := m.Get(t.Context(), owner, s.ID)
	if err != nil || v.State != client.SessionReady || v.Reason != "" || !strings.Contains(strings.Join(v.Notes, "\n"), "is not finished") || !strings.Contains(strings.Join(v.Notes, "\n"), "put the directory back") {
		t.Fatalf("%+v, %v", v, err)
	}
	if c := realCall(t, m, s.ID, "read", object{"file_path": "one"}); c.IsError || c.Error != nil || !strings.Contains(c.Output, "one") {
		t.Errorf("read: %q, %v", c.Output, c.Error)
	}
	if c := bash("echo two >one"); c.Error == nil || c.Error.Code != client.CodeConflict || !strings.Contains(c.Error.Message, "nothing is there") || !strings.Contains(c.Error.Hint, "put the directory back") {
		t.Errorf("wrote: %q, %v", c.Output, c.Error)
	}
	r, err := m.trees.Diff(t.Context(), owner, s.ID, client.DiffQuery{})
	testrig.Must(t, err)
	patch, err := io.ReadAll(r)
	if testrig.Must(t, errors.Join(err, r.Close())); !strings.Contains(string(patch), "\n+one\n") {
		t.Errorf("the patch is %q", patch)
	}
	if _, err := m.trees.Checkpoint(t.Context(), owner, s.ID, client.CheckpointCreate{}); codeOfErr(err) != client.CodeConflict {
		t.Errorf("a checkpoint: %v", err)
	}

	testrig.Must(t, os.Rename(src+"-gone", src))
	if c := bash("echo two >two; cat one two"); c.Output != "one\ntwo\n" {
		t.Errorf("%q, %v", c.Output, c.Error)
	}
	if v, err = m.Get(t.Context(), owner, s.ID); err != nil || strings.Contains(strings.Join(v.Notes, "\n"), "is not finished") {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := m.trees.Apply(t.Context(), owner, s.ID, client.ApplyRequest{}); err != nil {
		t.Error(err)
	}
	if got := sourceFiles(t, src); got["one"] != "one\n" || got["two"] != "two\n" {
		t.Errorf("the source has %q", got)
	}
	if err := errors.Join(m.EndAll(context.Background()), stop()); err != nil {
		t.Error(err)
	}
}
