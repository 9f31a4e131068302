package call

import (
	"errors"
	"path"
	"slices"
	"time"

	"github.com/toold/toold/internal/call/errand"

	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/policy"
)

// edited runs the hooks of file.edited, formatters, over the files that a
// call has changed. They run inside the sandbox, as the tool user, and are no
// calls of their own: their effect is the change of the file, and the caller is told
// what was changed, so that nobody has to read the file again.
//
// The edit has happened, so a hook that fails cannot deny it. One that fails
// closed makes the call's result an error that says so; for one that fails open
// there is a remark in it. The error is ErrLeaving: the next daemon then does all again.
func (hs hooks) edited(o *outcome) error {
	if o.result == nil || o.result.IsError || len(hs.c.writes) == 0 {
		return nil
	}
	e := hs.event(hook.FileEdited, hs.c, hs.c.snapshot())
	for _, file := range slices.Compact(slices.Sorted(slices.Values(hs.c.writes))) {
		a := e.About()
		a.Path, a.Relative = path.Clean(file), policy.RelativeTo(e.Session.Worktree.Target, file)
		for _, h := range hs.daemon.Hooks.For(hook.FileEdited, a) {
			made, err := hs.format(h, file)
			switch {
			case errors.Is(err, ErrLeaving):
				return err
			case err != nil:
				o.formatFailed(h, shown(file), err)
			case made.Changed:
				o.notes = append(o.notes, made.Note(h, shown(file)))
			}
		}
	}
	return nil
}

// format runs one formatter over one file and says what it made of it.
func (hs hooks) format(h *hook.Hook, file string) (made *errand.Formatted, err error) {
	begun := time.Now()
	defer func() {
		if !errors.Is(err, ErrLeaving) {
			hs.daemon.Hooks.Ran(h, &hook.Answer{}, err, time.Since(begun))
		}
	}()
	e, err := hs.place.Errand()
	if err != nil {
		return nil, err
	}
	f := errand.Formatter{
		Errand: e, Call: hs.c.id,
		MayRead: func(file string) policy.Verdict { return hs.judge.MayRead(hs.c.profile, file) },
		Failed: func(err error) {
			hs.log.Warn("compare a file with what its formatter found", "call", hs.c.id, "error", err)
		},
	}
	return f.Format(hs.c.ctx, h, file, h.Timeout+overdue)
}
