package call

import (
	"errors"
	"fmt"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/answer"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
)

// outcome is how a call ended: a result, or why there is none.
type outcome struct {
	agent.Outcome
	err    *client.Error
	reason run.Reason // metadata.reason where there is no exit
	held   bool       // the agent has ended the call and keeps it until it may forget it
	notes  []string   // for the last lines of the output
	left   bool       // the daemon leaves in the middle of its hooks: the next one finishes the call
	// recount: the program went well, but something of it may have been killed
	// that is not to be held against the next one.
	recount bool
}

func failed(kind fault.Kind, format string, args ...any) *outcome {
	return &outcome{err: answer.Of(kind.Errorf(format, args...))}
}

// notRun is the outcome of a call that ended before the tool was run.
func (s *site) notRun(call string, err error) *outcome {
	var re *run.Error
	switch {
	case errors.As(err, &re):
		return &outcome{err: codeOf(re)}
	case errors.Is(err, errAborted):
		o := failed(fault.Aborted, "the call was aborted before it ran")
		o.reason = run.ReasonAborted
		return o
	case errors.Is(err, ErrLeaving):
		return neverSent()
	case s.isOver(err):
		o := s.lostOutcome()
		o.err.Message += "; the call did not run"
		return o
	}
	return &outcome{err: s.clientError(call, err)}
}

// isOver reports whether err is for the end of the session.
func (s *site) isOver(err error) bool {
	return errors.Is(err, agent.ErrOver) || errors.Is(err, agent.ErrViolation) || errors.Is(err, agent.ErrLost) || s.ctx.Err() != nil
}

// lostOutcome is for calls whose session ended under them.
func (s *site) lostOutcome() *outcome {
	fate, reason := s.place.Fate()
	o := failed(fault.Over, "session %s was lost before the call ended", s.id)
	o.reason = run.ReasonLost
	if fate == client.SessionEnded {
		o.err.Message, o.reason = fmt.Sprintf("session %s was ended before the call did", s.id), run.ReasonSessionEnded
	}
	if reason != "" {
		o.err.Message += ": " + reason
	}
	o.err.Hint = "what it had printed is kept; create another session"
	return o
}

func (s *site) clientError(call string, err error) *client.Error {
	return answer.Of(s.daemon.Internal("run call "+call, err))
}

// codeOf makes an error of the sandbox's side one of the API's. Its code comes
// from the agent, so only known ones pass.
func codeOf(e *run.Error) *client.Error {
	if run.IsNoTool(e) {
		return answer.Of(fault.NoTool.Errorf("this session was made by an older toold, whose agent cannot do this").Next("create another session"))
	}
	kind := fault.Kind(e.Code)
	switch kind {
	case fault.Input, fault.BadPath, fault.NotFile, fault.Stale, fault.Aborted:
	default:
		kind = fault.Sandbox
	}
	return answer.Of(kind.Errorf("%s", plain.Cut(e.Message, MaxNote)).Next(plain.Cut(e.Hint, MaxNote)))
}

// MaxNote bounds texts of the agent's that are no output.
const MaxNote = 16 << 10

// neverSent is the outcome of a call that the daemon did not come to run.
func neverSent() *outcome {
	o := failed(fault.Aborted, "the daemon stopped before the call ran")
	o.err.Hint, o.reason = "make it again", run.ReasonAborted
	return o
}

// fitsNoMore is the outcome of a call that waited for its approval over a change of the daemon,
// whose tool takes another input now, or is no more.
func fitsNoMore() *outcome {
	o := failed(fault.Stale, "the tools have changed while the call waited: its input does not fit any more")
	o.err.Hint = "look at the tool's definition and make the call anew"
	return o
}

// endedWithDaemon is the outcome of a call that an earlier daemon ran in itself.
func endedWithDaemon() *outcome {
	o := failed(fault.Aborted, "the daemon ended while it ran the call; it is not known how far it came")
	o.err.Hint, o.reason = "look at what it would have changed before making it again", run.ReasonLost
	return o
}

// formatFailed tells the caller that its edit stands as it made it.
func (o *outcome) formatFailed(h *hook.Hook, file string, err error) {
	o.notes = append(o.notes, fmt.Sprintf("[%s was written, but hook %s]", file, err))
	if h.FailOpen {
		return
	}
	r := *o.Result
	r.IsError = true
	o.Result = &r
}

func staleError(id string) *fault.Error {
	return fault.StaleApproval.Errorf("what approval %s was asked for has changed since: a path leads elsewhere, or a file has other content", id).
		Next("look at the file again and make the call again; it will be asked for again")
}

// line puts s on a line of its own.
func line(b *strings.Builder, s string) {
	if s == "" {
		return
	}
	if t := b.String(); t != "" && !strings.HasSuffix(t, "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(s)
}

// withLine adds a line of its own to a text.
func withLine(text, s string) string {
	var b strings.Builder
	b.WriteString(text)
	line(&b, s)
	return b.String()
}
