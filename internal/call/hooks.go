package call

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// hooks are those of one call.
type hooks struct {
	*site
	c *Call
}

// before does step 7, the hooks of call.before, one after the other. With
// replaced, a hook wants another input: it was parsed like any other and is to
// be judged from the beginning, where all hooks see it again. With denied, the
// call must not run and that is its outcome.
func (hs hooks) before(inv *tool.Invocation) (replaced *tool.Invocation, denied *outcome) {
	e := hs.event(hook.CallBefore, hs.c, hs.c.snapshot())
	e.Call.Input = inv.JSON
	hooks := hs.daemon.Hooks.For(hook.CallBefore, e.About())
	if len(hooks) > 0 {
		// They hear of the call, and may do something for it.
		if err := hs.c.flush(); err != nil {
			return nil, hs.notRun(hs.c.id, err)
		}
	}
	for _, h := range hooks {
		a, err := hs.daemon.Hooks.Run(hs.c.ctx, h, e)
		if hs.c.ctx.Err() != nil {
			return nil, hs.notRun(hs.c.id, context.Cause(hs.c.ctx))
		}
		var next *tool.Invocation
		if err == nil && a.Input != nil {
			next, err = hs.replacement(h, inv, a)
		}
		switch {
		case err != nil && h.FailOpen:
			hs.c.hookNotes = append(hs.c.hookNotes, fmt.Sprintf("[hook %s; the call went on without it]", err))
		case err != nil:
			return nil, hs.deniedByHook(inv, h, err.Error(), "its hook must work before calls can run; the daemon's log says more")
		case a.Deny:
			return nil, hs.deniedByHook(inv, h, a.Reason, "do it in another way, or leave it out")
		case next != nil:
			return next, nil
		}
	}
	return nil, nil
}

// replacement parses the input that a hook gave; nil when it is the one that it
// was shown.
func (hs hooks) replacement(h *hook.Hook, inv *tool.Invocation, a *hook.Answer) (*tool.Invocation, error) {
	next, err := hs.daemon.Tools.ParseHidden(inv.Tool.Name, a.Input)
	if err != nil {
		what := "an input that " + inv.Tool.Name + " does not take"
		if ce, ok := errors.AsType[*client.Error](err); ok {
			what += ": " + ce.Message
		}
		return nil, h.Failed("gave " + what)
	}
	row := hs.place.Row()
	hs.c.translated = Translate(&row, next) || hs.c.translated
	if bytes.Equal(next.JSON, inv.JSON) {
		return nil, nil
	}
	return next, nil
}

// deniedByHook is the outcome of a call that a hook denied, or that was denied
// because a hook failed; it is told like any other decision.
func (hs hooks) deniedByHook(inv *tool.Invocation, h *hook.Hook, why, hint string) *outcome {
	by := "hook " + h.Name()
	v := policy.Verdict{Action: policy.Deny, Rule: by, Reason: why}
	hs.c.judged(v, hs.c.approved)
	// It is denied whether or not that can be written.
	if err := hs.decided(&judge.Decision{
		Time: time.Now().UTC(), Principal: hs.c.by, Session: hs.id, Call: hs.c.id, Tool: inv.Tool.Name, Profile: hs.c.profile,
		InputHash: sha256.Sum256(inv.JSON), Input: inv.JSON, Verdict: v, Approver: by, Typed: hs.c.row.Typed,
	}); err != nil {
		hs.log.Error("write a decision", "call", hs.c.id, "error", err)
	}
	o := failed(fault.Denied, "denied: %s by %s", inv.Tool.Name, by)
	if why != "" {
		o.err.Message += ": " + why
	}
	o.err.Hint = hint
	return o
}

// after does step 10 as far as the sandbox is needed for it: the hooks of
// file.edited. Those of call.after come with the end of the call, when it is
// known what its record is going to say (see result).
func (hs hooks) after(o *outcome, do makes) {
	o.left = errors.Is(hs.edited(o, do), ErrLeaving)
}

// result runs the hooks of call.after, for a call that has a result or was
// given to the sandbox; row is what its record is going to say. Each hook sees
// what the one before has made of the output. The error is ErrLeaving: the call
// is then the next daemon's to finish.
func (hs hooks) result(o *outcome, row *store.Call) error {
	if row.Time.Started == nil && o.Result == nil {
		return nil
	}
	for _, n := range hs.c.hookNotes {
		row.Call.Output = withLine(row.Call.Output, n)
	}
	e := hs.event(hook.CallAfter, hs.c, &row.Call)
	for _, h := range hs.daemon.Hooks.For(hook.CallAfter, e.About()) {
		e.Result = &hook.Result{
			Status: row.Status, Title: row.Title, Output: row.Call.Output, IsError: row.IsError, Error: row.Error,
			Metadata: row.Metadata, Usage: row.Usage,
		}
		a, err := hs.daemon.Hooks.Run(hs.c.ctx, h, e)
		switch {
		case errors.Is(err, ErrLeaving):
			return err
		case err != nil && h.FailOpen:
			row.Call.Output = withLine(row.Call.Output, fmt.Sprintf("[hook %s]", err))
		case err != nil:
			withhold(row, err)
		case a.Output != nil:
			replaceOutput(row, *a.Output)
		}
	}
	return nil
}

// replaceOutput puts another text into the place of what the caller reads. The
// whole output of a call, where it is in a file, stays as it was; one that was
// so short that the record alone had it is gone.
func replaceOutput(row *store.Call, text string) {
	row.Call.Output, row.Output.Inline = text, 0
}

// shownWithheld are the metadata that stay when a result is withheld: none of
// them has anything that the tool has read.
var shownWithheld = []string{"reason", "exit_code", "signal", "duration_ms"}

// withhold takes the result away from the caller: a hook that had to see it
// first has failed.
func withhold(row *store.Call, err error) {
	replaceOutput(row, fmt.Sprintf("[the call ran, but its result is withheld: hook %s; the daemon's log says more]", err))
	row.Title, row.IsError, row.Attachments = "", true, nil
	kept := make(map[string]any)
	for _, k := range shownWithheld {
		if v, ok := row.Metadata[k]; ok {
			kept[k] = v
		}
	}
	row.Metadata = kept
}

// event makes the event of a call.
func (hs hooks) event(on string, c *Call, row *client.Call) *hook.Event {
	in := hs.place.Row()
	e := hook.NewEvent(on, &in.Session, in.OwnerUID)
	e.Call = &hook.Call{
		ID: row.ID, Key: row.Key, Tool: row.Tool, Input: row.Input, MessageID: row.MessageID, Agent: row.Agent, Model: row.Model,
		Extra: row.Extra, Permission: row.Permission,
	}
	if c.profile != "" {
		e.Session.Profile = c.profile // what it was judged by
	}
	return e
}
