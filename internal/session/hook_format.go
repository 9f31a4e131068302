package session

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool/run"
)

// fileHolder stands for the file in the command of a hook on file.edited.
const fileHolder = "{file}"

// Bounds of what a formatter may print: all of it, and what is kept for a note.
const (
	maxFormatOutput = 1 << 20
	maxFormatNote   = 2 << 10
)

// hooksEdited runs the hooks of file.edited, formatters, over the files that a
// call has changed. They run inside the sandbox, as the tool user, and are no
// calls of their own: their effect is the change of the file, and the caller is told
// what was changed, so that nobody has to read the file again.
//
// The edit has happened, so a hook that fails cannot deny it. One that fails
// closed makes the call's result an error that says so; for one that fails open
// there is a remark in it. The error is errLeaving: the next daemon then does all again.
func (s *Session) hooksEdited(c *call, o *outcome) error {
	if o.result == nil || o.result.IsError || len(c.writes) == 0 {
		return nil
	}
	e := s.hookEventOf(hook.FileEdited, c, c.snapshot())
	for _, file := range slices.Compact(slices.Sorted(slices.Values(c.writes))) {
		a := e.About()
		a.Path, a.Relative = path.Clean(file), policy.RelativeTo(e.Session.Worktree.Target, file)
		for _, h := range s.m.hooksFor(hook.FileEdited, a) {
			made, err := s.format(c, h, file)
			switch {
			case errors.Is(err, errLeaving):
				return err
			case err != nil:
				o.formatFailed(h, shown(file), err)
			case made.changed:
				o.notes = append(o.notes, made.note(h, shown(file)))
			}
		}
	}
	return nil
}

// formatFailed tells the caller that its edit stands as it made it.
func (o *outcome) formatFailed(h *hook.Hook, file string, err error) {
	text := err.Error()
	if pe, ok := errors.AsType[*hook.Error](err); ok {
		text = pe.Note()
	}
	o.notes = append(o.notes, fmt.Sprintf("[%s was written, but hook %s]", file, text))
	if h.FailOpen {
		return
	}
	r := *o.result
	r.IsError = true
	o.result = &r
}

// format runs one formatter over one file and says what it made of it.
func (s *Session) format(c *call, h *hook.Hook, file string) (made *formatted, err error) {
	begun := time.Now()
	defer func() {
		if !errors.Is(err, errLeaving) {
			s.m.hooked(h, &hook.Answer{}, err, time.Since(begun))
		}
	}()
	line, err := formatLine(h, file)
	if err != nil {
		return nil, err
	}
	l, err := s.current()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, h.Timeout+overdue)
	defer cancel()
	before := s.look(ctx, l, c, file)
	job := run.CommandJob(line, h.Timeout)
	id := s.m.store.NewID("call_")
	out := &formatOutput{conn: l.conn, id: id}
	done, err := l.conn.Run(ctx, agent.Request{
		CallID: id, Tool: job.Tool, Input: job.Input, TimeoutMillis: h.Timeout.Milliseconds(), MaxOutput: maxFormatOutput,
	}, out)
	if err != nil {
		if cause := context.Cause(c.ctx); cause != nil {
			return nil, cause
		}
		// It may still run: nobody waits for it any longer.
		_ = l.conn.Abort(id, run.ReasonAborted)
		_ = l.conn.Forget(id)
		return nil, h.Failed("could not be run in the sandbox: " + plain.Cause(err))
	}
	_ = l.conn.Forget(id) // after a loss, relink does it
	if err := formatError(h, done, out); err != nil {
		return nil, err
	}
	made = s.compare(ctx, l, c, before)
	if cause := context.Cause(c.ctx); cause != nil {
		return nil, cause
	}
	return made, nil
}

// formatLine is the command line of a formatter: its words quoted, with the file
// in the place of {file}, or at the end. The file's path is absolute, so that no
// name can be an option.
func formatLine(h *hook.Hook, file string) (string, error) {
	fail := func(what string) (string, error) { return "", h.Failed(what) }
	switch {
	case len(h.Command) == 0:
		return fail("could not be run: no command is configured")
	case !utf8.ValidString(file) || !path.IsAbs(file):
		return fail("could not be run: the name of the file is no UTF-8")
	}
	words, placed := make([]string, 0, len(h.Command)+1), false
	for _, w := range h.Command {
		placed = placed || strings.Contains(w, fileHolder)
		words = append(words, strings.ReplaceAll(w, fileHolder, file))
	}
	if !placed {
		words = append(words, file)
	}
	for i, w := range words {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return "exec " + strings.Join(words, " ") + " </dev/null", nil
}

// formatError says why a formatter that ran did not do its work.
func formatError(h *hook.Hook, done *agent.Outcome, out *formatOutput) error {
	var what string
	exit := clampExit(done.Exit)
	switch {
	case done.Err != nil:
		what = "could not be run in the sandbox: " + plain.Cut(done.Err.Message, maxNote)
	case exit == nil:
		what = "could not be run in the sandbox"
	case exit.Reason == run.ReasonExit && exit.Code == 0:
		return nil
	case exit.Reason == run.ReasonExit:
		what = fmt.Sprintf("failed with exit code %d", exit.Code)
	default:
		what = fmt.Sprintf("was ended (%s)", exit.Reason)
	}
	e := h.Failed(what)
	e.Said = formatNote(out.text.String())
	return e
}

// contentOf stands for the content of a file; "" where that is not known.
func (s *Session) contentOf(ctx context.Context, l *link, c *call, file string) string {
	job := run.HashJob(file)
	prep, err := l.conn.Prepare(ctx, agent.Request{CallID: c.id, Tool: job.Tool, Input: job.Input})
	if err != nil || prep == nil || len(prep.Targets) != 1 {
		return ""
	}
	return prep.Targets[0].SHA256
}

// formatOutput keeps the end of what a formatter prints.
type formatOutput struct {
	conn agentConn
	id   string
	text hook.Tail
}

// Output implements agent.Sink.
func (f *formatOutput) Output(offset int64, _ bool, p []byte) error {
	_, _ = f.text.Write(p) // never fails
	return f.conn.Ack(f.id, offset+int64(len(p)))
}

// Metadata implements agent.Sink.
func (f *formatOutput) Metadata(map[string]any) {}

// formatNote is the end of what a formatter printed, as text.
func formatNote(s string) string {
	cut := len(s) > maxFormatNote
	if cut {
		s = strings.ToValidUTF8(s[len(s)-maxFormatNote:], "")
	}
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s))
	if cut && s != "" {
		s = "…" + s
	}
	return s
}
