package call

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"time"
	"unicode"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

// outcome is how a call ended: a result, or why there is none.
type outcome struct {
	result *run.Result
	exit   *run.Exit
	err    *client.Error
	reason run.Reason // metadata.reason where there is no exit
	held   bool       // the agent has ended the call and keeps it until it may forget it
	notes  []string   // for the last lines of the output
	left   bool       // the daemon leaves in the middle of its hooks: the next one finishes the call
	// recount: the program went well, but something of it may have been killed
	// that is not to be held against the next one.
	recount bool
}

func failed(code client.Code, format string, args ...any) *outcome {
	return &outcome{err: &client.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// tail is the end of a call, however it came: from its outcome to its record.
type tail struct {
	g *Group
	c *Call
}

func (g *Group) tail(c *Call) tail { return tail{g, c} }

// notRun is the outcome of a call that ended before the tool was run.
func (t tail) notRun(err error) *outcome {
	var re *run.Error
	switch {
	case errors.As(err, &re):
		return &outcome{err: codeOf(re)}
	case errors.Is(err, errAborted):
		o := failed(client.CodeAborted, "the call was aborted before it ran")
		o.reason = run.ReasonAborted
		return o
	case errors.Is(err, ErrLeaving):
		o := failed(client.CodeAborted, "the daemon stopped before the call ran")
		o.err.Hint, o.reason = "make it again", run.ReasonAborted
		return o
	case t.isOver(err):
		o := t.lostOutcome()
		o.err.Message += "; the call did not run"
		return o
	}
	return &outcome{err: t.clientError(err)}
}

// refuse ends a call before the tool was run.
func (t tail) refuse(err error) { t.finish(t.notRun(err)) }

// ended is the outcome of a call that was given to the agent.
func (t tail) ended(out *agent.Outcome, err error) *outcome {
	var re *run.Error
	switch {
	case err == nil && out.Err != nil:
		return &outcome{err: codeOf(out.Err), held: true}
	case err == nil && out.Prepared != nil:
		return notJudged()
	case err == nil && out.Result == nil:
		o := failed(client.CodeSandboxFailed, "the agent gave no result")
		o.held = true
		return o
	case err == nil:
		o := &outcome{result: out.Result, exit: agent.Plausible(out.Exit), held: true}
		t.refine(o)
		t.trail(o)
		return o
	case errors.As(err, &re):
		return &outcome{err: codeOf(re)}
	case errors.Is(err, agent.ErrUnknownCall):
		o := failed(client.CodeSessionLost, "the connection to the sandbox broke while the call began; it is not known whether it ran")
		o.err.Hint, o.reason = "look at what it would have changed before making it again", run.ReasonLost
		return o
	case t.isOver(err):
		return t.lostOutcome()
	}
	if ce, ok := errors.AsType[*client.Error](err); ok { // there was no room for the result
		return &outcome{err: ce, held: true}
	}
	t.c.abort(run.ReasonAborted)
	return &outcome{err: t.clientError(err)}
}

// isOver reports whether err is for the end of the session.
func (t tail) isOver(err error) bool {
	return errors.Is(err, agent.ErrOver) || errors.Is(err, agent.ErrViolation) || errors.Is(err, agent.ErrLost) || t.g.ctx.Err() != nil
}

// lostOutcome is for calls whose session ended under them.
func (t tail) lostOutcome() *outcome {
	fate, reason := t.g.place.Fate()
	o := failed(client.CodeSessionLost, "session %s was lost before the call ended", t.g.id)
	o.reason = run.ReasonLost
	if fate == client.SessionEnded {
		o.err.Message, o.reason = fmt.Sprintf("session %s was ended before the call did", t.g.id), run.ReasonSessionEnded
	}
	if reason != "" {
		o.err.Message += ": " + reason
	}
	o.err.Hint = "what it had printed is kept; create another session"
	return o
}

func (t tail) clientError(err error) *client.Error {
	if ce, ok := errors.AsType[*client.Error](t.g.svc.Internal("run call "+t.c.id, err)); ok {
		return ce
	}
	return &client.Error{Code: client.CodeInternal, Message: "internal error"}
}

// codeOf makes an error of the sandbox's side one of the API's. Its code comes
// from the agent, so only known ones pass.
func codeOf(e *run.Error) *client.Error {
	code := client.Code(e.Code)
	if run.LacksStdin(e) {
		return &client.Error{
			Code:    client.CodeSandboxFailed,
			Message: "this session was made by an older toold, whose agent cannot give a command standard input; nothing was run",
			Hint:    "leave stdin out, or make a new session",
		}
	}
	switch e.Code {
	case run.CodeInvalidInput, run.CodeInvalidPath, run.CodeNotRegularFile, run.CodeStale, run.CodeAborted, run.CodeSandboxFailed:
	default:
		code = client.CodeSandboxFailed
	}
	return &client.Error{Code: code, Message: plain.Cut(e.Message, MaxNote), Hint: plain.Cut(e.Hint, MaxNote)}
}

// title is a title on one line.
func title(s string) string {
	const most = 512
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > most {
		s = s[:plain.RuneStart([]byte(s), most)] + "…"
	}
	return s
}

// MaxNote bounds texts of the agent's that are no output.
const MaxNote = 16 << 10

// finish does steps 9 and 11: it puts together what the call's record says, and
// stores it. Only then may the agent forget the call. What nobody waits for comes
// after the end is known.
func (t tail) finish(o *outcome) {
	if o.left {
		return
	}
	if o.result != nil {
		o.result = t.withoutUnreadable(o.result)
	}
	row := t.compose(o)
	if t.g.hooks(t.c).result(o, &row) != nil {
		return
	}
	row.Settle() // after the hooks: whatever they have made of it, it says how it ended
	t.c.clock.ended = time.Now()
	row.Call.Time.Ended = new(t.c.clock.ended.UTC().Truncate(time.Millisecond))
	t.c.stream.Flush(t.c.out.Offset())
	t.g.judge.Answered(&row.Call)
	t.g.uncount(t.c) // who hears of the end, and be it as an event, may make the next call
	t.g.telling.RLock()
	t.c.mu.Lock()
	t.c.row = row
	t.c.mu.Unlock()
	ran := t.announce(&row)
	if o.held {
		// What the agent has ended it keeps until the end is in the store, so
		// nobody has to wait for that: a daemon that dies in between leaves it to
		// the next one.
		close(t.c.done)
		runtime.Gosched() // those who waited for it go first
	}
	t.audit(&row)
	stored := t.store(&row)
	if stored {
		t.g.svc.live.Delete(t.c.id)
	} else {
		// No room on the disk. The result stands in memory, and with the agent:
		// whichever lasts until there is room.
		release := t.c.hold()
		t.g.svc.Work.Go(func() { defer release(); t.storeLater(&row, o.held) })
	}
	t.g.telling.RUnlock()
	if !o.held {
		close(t.c.done)
		runtime.Gosched()
	}
	if stored && o.held {
		t.forget()
	}
	t.logEnd(&row.Call, ran)
	if o.recount && t.g.open.Load() == 0 {
		t.g.place.Killed()
	}
}

// store writes the end of the call.
func (t tail) store(row *store.Call) bool {
	typ := client.EventCallCompleted
	if row.Status == client.CallError {
		typ = client.EventCallError
	}
	e := &store.Entry{}
	short := t.g.svc.Quota.Stored(row)
	n := t.c.dropInput(e, row, short) + e.FinishCall(short)
	e.AddEvent(t.c.event(typ, summaryOf(&row.Call)))
	for _, edit := range t.edits(row) {
		e.AddEvent(edit)
	}
	err := t.c.write(e)
	if err != nil {
		t.g.log.Error("store the end of a call", "call", t.c.id, "error", err)
		return false
	}
	t.g.tenant.Kept.Add(n)
	return true
}

// dropInput has the record of a call lose its input, if short has none. It returns
// by how much the record grows.
func (c *Call) dropInput(e *store.Entry, row, short *store.Call) int64 {
	if row.InputNotKept != nil || short.InputNotKept == nil {
		return 0
	}
	if c.unsaved == nil {
		return e.DropInput(short) - int64(len(row.Input))
	}
	_, before := c.first(row)
	first, after := c.first(short)
	c.unsaved = first
	return after - before
}

// forget has the agent drop a call whose end is in the store.
func (t tail) forget() {
	t.g.runner.Forget(t.c.id) // after a loss, relink does it
}

// storeLater tries until the disk has room or the daemon leaves.
func (t tail) storeLater(row *store.Call, held bool) {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		select {
		case <-t.g.svc.Context.Done():
			return
		case <-time.After(wait):
		}
		if !t.store(row) {
			continue
		}
		t.g.svc.live.Delete(t.c.id)
		if held {
			t.forget()
		}
		return
	}
}

// callSummary is what events say about the end of a call.
type callSummary struct {
	Status  client.CallStatus `json:"status"`
	Title   string            `json:"title,omitempty"`
	IsError bool              `json:"is_error,omitempty"`
	Code    client.Code       `json:"code,omitempty"`
	Reason  any               `json:"reason,omitempty"`
}

func summaryOf(c *client.Call) callSummary {
	v := callSummary{Status: c.Status, Title: c.Title, IsError: c.IsError, Reason: c.Metadata["reason"]}
	if c.Error != nil {
		v.Code = c.Error.Code
	}
	return v
}

// edits are the events of files that the call has changed.
func (t tail) edits(row *store.Call) []client.Event {
	if row.Status != client.CallCompleted || row.IsError {
		return nil
	}
	var all []client.Event
	for _, path := range t.c.writes {
		all = append(all, t.c.bare(client.EventFileEdited, struct {
			Path string `json:"path"`
			Tool string `json:"tool"`
		}{path, row.Tool}))
	}
	return all
}

// announce tells who listens and who counts. It returns how long the call ran.
func (t tail) announce(row *store.Call) time.Duration {
	v := row.Call
	t.c.tellStatus()
	if kept := t.c.out.Kept(); kept > 0 {
		t.g.svc.observe(func(o Observer) { o.OutputSpilled(kept) })
	}
	queued, ran := t.c.clock.durations(&v.Time)
	t.g.svc.observe(func(o Observer) { o.CallFinished(&v, queued, ran) })
	return ran
}

func (t tail) logEnd(v *client.Call, ran time.Duration) {
	attrs := [...]slog.Attr{
		slog.String("call", t.c.id),
		slog.String("tool", v.Tool),
		slog.String("status", string(v.Status)),
		slog.Bool("is_error", v.IsError),
		slog.Float64("duration_ms", float64(ran.Microseconds())/1000),
		{},
		{},
		{},
	}
	n := len(attrs) - 3
	for _, name := range []string{"reason", "exit_code"} {
		if v, ok := v.Metadata[name]; ok {
			attrs[n] = slog.Any(name, v)
			n++
		}
	}
	if v.Error != nil {
		attrs[n] = slog.String("code", string(v.Error.Code))
		n++
	}
	t.g.log.LogAttrs(context.Background(), slog.LevelInfo, "call finished", attrs[:n]...)
}

// overflow is what programs print when they change a file of an owner whom the kernel
// has no id for in the session.
const overflow = "Value too large for defined data type"

// compose makes the row of a call that has ended.
func (t tail) compose(o *outcome) store.Call {
	t.c.mu.Lock()
	row := t.c.row
	t.c.mu.Unlock()
	streamed := t.c.out.Offset() > 0
	if o.result != nil && !streamed && !t.c.streams {
		t.c.out.Write([]byte(o.result.Output), false)
	}
	ct := t.lastOutput(o)
	meta := map[string]any{}
	row.Status, row.IsError = client.CallError, true
	if o.result != nil {
		row.Status = client.CallCompleted
		row.Title, row.IsError = title(o.result.Title), o.result.IsError
		maps.Copy(meta, o.result.Metadata)
		row.Attachments = attachments(o.result.Attachments)
		o.result.Attachments = nil // the other form is in the row
	} else {
		maps.Copy(meta, row.Metadata) // the last progress
	}
	row.Error = o.err
	if o.exit != nil {
		row.Usage = usageOf(o.exit)
		if t.c.streams {
			maps.Copy(meta, o.exit.Metadata())
		}
	}
	if o.reason != "" {
		meta["reason"] = string(o.reason)
	}
	row.Output.File = t.c.out.Kept() > 0
	row.Output.Total = t.c.out.Offset()
	if !row.Output.File {
		row.Output.Inline = int64(len(ct.Head))
	}
	t.describe(ct, meta)
	met, _ := meta[run.ForeignOwner].(bool)
	if t.c.streams && row.IsError && (strings.Contains(ct.Head, overflow) || strings.Contains(ct.Tail, overflow)) {
		met = true
		o.notes = append(o.notes, "("+overflow+": such a file belongs to a user who is not in this session)")
	}
	if met {
		t.g.Foreign.Add(1)
	}
	if n := t.hostNote(row.IsError); n != "" {
		o.notes = append(o.notes, n)
	}
	row.Call.Output = t.text(ct, o, streamed)
	row.Metadata = meta
	return row
}

// describe puts into the metadata what was cut and where the whole is.
func (t tail) describe(ct output.Cut, meta map[string]any) {
	own, _ := meta["truncated"].(bool)
	meta["truncated"] = ct.Truncated || t.c.leavesOut && own
	for _, k := range []string{"output_path", "total_bytes", "output_incomplete"} {
		delete(meta, k) // only we know
	}
	if ct.NULs > 0 {
		meta["nul_bytes"] = ct.NULs
	}
	if !ct.Truncated {
		return
	}
	meta["total_bytes"] = t.c.out.Offset()
	meta["total_lines"] = ct.TotalLines
	if t.c.out.Kept() > 0 {
		meta["output_path"] = t.outputPath()
	}
	if why := ct.Stopped; why != "" {
		meta["output_incomplete"] = why
	}
}

// outputPath is where the whole output is, inside the sandbox.
func (t tail) outputPath() string { return sandbox.OutputDir + "/" + t.c.id }

// text is what the model reads.
func (t tail) text(ct output.Cut, o *outcome, streamed bool) string {
	var b strings.Builder
	b.WriteString(ct.Head)
	if ct.Truncated {
		line(&b, t.marker(ct))
		if ct.Tail != "" {
			b.WriteByte('\n')
			b.WriteString(ct.Tail)
		}
	}
	if o.result != nil && (streamed || t.c.streams) {
		line(&b, plain.Cut(o.result.Output, MaxNote))
	}
	for _, n := range o.notes {
		line(&b, n)
	}
	if o.result != nil && o.result.IsError && t.c.streams {
		line(&b, networkHint(t.g.place.Row().Network.Mode, ct.Head, ct.Tail))
	}
	if o.result != nil {
		line(&b, t.c.shortened())
	}
	return b.String()
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

// marker says how much was left out, where the whole is, and how to look into it.
func (t tail) marker(ct output.Cut) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d lines (%d bytes) left out", ct.Lines, ct.Bytes)
	kept := t.c.out.Kept() > 0
	if kept {
		fmt.Fprintf(&b, "; the whole output is in %s", t.outputPath())
	}
	if why := ct.Stopped; why != "" {
		if kept {
			fmt.Fprintf(&b, " up to byte %d", t.c.out.Kept())
		}
		b.WriteString("; " + why)
	}
	if kept {
		if tools := t.lookTools(t.c.profile); tools != "" {
			fmt.Fprintf(&b, "; look into it with %s on that path", tools)
		}
	}
	b.WriteByte(']')
	return b.String()
}

// lookTools names the tools of a profile that can look into a saved output.
func (t tail) lookTools(profile string) string {
	rules := t.g.judge.Rules(profile)
	var have []string
	for _, d := range t.g.svc.Tools.Offered("", "", nil) {
		if d.Looks && !rules.Hides(judge.PermissionOf(d)) {
			have = append(have, d.Name)
		}
	}
	return strings.Join(have, " or ")
}
