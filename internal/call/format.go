package call

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/call/local"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// edited runs the hooks of file.edited, formatters, over the files that a call has changed.
// Each is a call that the daemon makes and runs itself. The caller is told what was changed,
// so that nobody has to read the file again.
//
// The edit has happened, so a hook that fails cannot deny it. One that fails
// closed makes the call's result an error that says so; for one that fails open
// there is a remark in it. The error is ErrLeaving: the next daemon then does all again.
func (hs hooks) edited(o *outcome, do makes) error {
	if o.Result == nil || o.Result.IsError || len(hs.c.writes) == 0 {
		return nil
	}
	hs.c.edit = maps.Clone(o.Result.Metadata)
	defer func() {
		r := *o.Result
		r.Metadata, o.Result = hs.c.edit, &r
	}()
	e := hs.event(hook.FileEdited, hs.c, hs.c.snapshot())
	for _, file := range slices.Compact(slices.Sorted(slices.Values(hs.c.writes))) {
		a := e.About()
		a.Path, a.Relative = path.Clean(file), policy.RelativeTo(e.Session.Worktree.Target, file)
		for _, h := range hs.daemon.Hooks.For(hook.FileEdited, a) {
			note, err := hs.formatted(h, file, do)
			switch {
			case errors.Is(err, ErrLeaving):
				return err
			case err != nil:
				o.formatFailed(h, shown(file), err)
			case note != "":
				o.notes = append(o.notes, note)
			}
		}
	}
	return nil
}

// formatted makes the call of one formatter over one file, and gives what it says: nothing
// where the file is as it was.
func (hs hooks) formatted(h *hook.Hook, file string, do makes) (note string, err error) {
	begun := time.Now()
	defer func() {
		if !errors.Is(err, ErrLeaving) {
			hs.daemon.Hooks.Ran(h, &hook.Answer{}, err, time.Since(begun))
		}
	}()
	if err := errand.Formats(h, file); err != nil {
		return "", err // no call says so
	}
	in := tool.Format{Call: hs.c.id, Command: h.Command, File: file, TimeoutMillis: h.Timeout.Milliseconds()}
	v, err := do(hs.c, in.Request())
	switch {
	case err != nil:
		return "", err
	case v.Error != nil:
		return "", h.Failed(v.Error.Message)
	case v.IsError:
		return "", h.Failed(v.Output)
	}
	return v.Output, nil
}

// makes is doFor.
type makes func(of *Call, r client.CallCreate) (*client.Call, error)

// doFor makes a call of the daemon's own for another one, in its slot, and gives its end. It
// may do to the same files what that one may. The error is ErrLeaving, or why there is no
// record of it.
func (st *steps) doFor(of *Call, r client.CallCreate) (*client.Call, error) {
	r.MessageID, r.Agent, r.Model = of.row.MessageID, of.row.Agent, of.row.Model
	c := newCall(st.site, r, true, false)
	c.of, c.by, c.profile = of, of.by, of.profile
	st.do(c)
	select {
	case <-c.done:
		return c.snapshot(), c.err
	default:
		return nil, ErrLeaving
	}
}

// formatter does the work of a file_format call.
func (st *steps) formatter(in *tool.Format) (*errand.Formatter, error) {
	e, err := st.place.Errand()
	if err != nil {
		return nil, err
	}
	profile, diff := st.place.Row().Profile, ""
	if c, ok := st.live.find(in.Call); ok {
		profile = c.profile
		diff, _ = c.edit["diff"].(string)
	}
	return &errand.Formatter{
		Errand: e, Call: in.Call, Diff: diff,
		MayRead: func(file string) policy.Verdict { return st.judge.MayRead(profile, file) },
		Failed: func(err error) {
			st.log.Warn("compare a file with what its formatter found", "call", in.Call, "error", err)
		},
	}, nil
}

// prepareFormat says where the file of a file_format call is now.
func (st *steps) prepareFormat(ctx context.Context, in *tool.Format) (*run.Prepared, error) {
	f, err := st.formatter(in)
	if err != nil {
		return nil, err
	}
	prep, err := f.Find(ctx, in.File)
	if err != nil && !errors.Is(err, agent.ErrOver) && ctx.Err() == nil {
		err = run.Errorf(run.CodeSandboxFailed, "could not be run in the sandbox: %s", plain.Cause(err))
	}
	return prep, err
}

// format runs a file_format call.
func (st *steps) format(ctx context.Context, in *tool.Format, _ *local.Out) (*run.Result, error) {
	f, err := st.formatter(in)
	if err != nil {
		return nil, err
	}
	h := &hook.Hook{On: hook.FileEdited, Command: in.Command, Timeout: time.Duration(in.TimeoutMillis) * time.Millisecond}
	made, err := f.Format(ctx, h, in.File, h.Timeout+overdue)
	if he, ok := errors.AsType[*hook.Error](err); ok {
		return run.Failed(in.File, "%s", he.What()), nil
	}
	if err != nil {
		return nil, err
	}
	if c, ok := st.live.find(in.Call); ok && made.Changed {
		c.formatted(in.File, h.Name(), made.Whole)
	}
	return &run.Result{Title: in.File, Output: made.Note(h, shown(in.File)), Metadata: map[string]any{"changed": made.Changed}}, nil
}
