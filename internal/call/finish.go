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

// notRun is the outcome of a call that ended before the tool was run.
func (g *Group) notRun(c *Call, err error) *outcome {
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
	case g.isOver(err):
		o := g.lostOutcome()
		o.err.Message += "; the call did not run"
		return o
	}
	return &outcome{err: g.clientError(c, err)}
}

// ended is the outcome of a call that was given to the agent.
func (g *Group) ended(c *Call, out *agent.Outcome, err error) *outcome {
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
		g.refine(c, o)
		g.trail(c, o)
		return o
	case errors.As(err, &re):
		return &outcome{err: codeOf(re)}
	case errors.Is(err, agent.ErrUnknownCall):
		o := failed(client.CodeSessionLost, "the connection to the sandbox broke while the call began; it is not known whether it ran")
		o.err.Hint, o.reason = "look at what it would have changed before making it again", run.ReasonLost
		return o
	case g.isOver(err):
		return g.lostOutcome()
	}
	if ce, ok := errors.AsType[*client.Error](err); ok { // there was no room for the result
		return &outcome{err: ce, held: true}
	}
	c.abort(run.ReasonAborted)
	return &outcome{err: g.clientError(c, err)}
}

// isOver reports whether err is for the end of the session.
func (g *Group) isOver(err error) bool {
	return errors.Is(err, agent.ErrOver) || errors.Is(err, agent.ErrViolation) || errors.Is(err, agent.ErrLost) || g.ctx.Err() != nil
}

// lostOutcome is for calls whose session ended under them.
func (g *Group) lostOutcome() *outcome {
	fate, reason := g.place.Fate()
	o := failed(client.CodeSessionLost, "session %s was lost before the call ended", g.id)
	o.reason = run.ReasonLost
	if fate == client.SessionEnded {
		o.err.Message, o.reason = fmt.Sprintf("session %s was ended before the call did", g.id), run.ReasonSessionEnded
	}
	if reason != "" {
		o.err.Message += ": " + reason
	}
	o.err.Hint = "what it had printed is kept; create another session"
	return o
}

func (g *Group) clientError(c *Call, err error) *client.Error {
	if ce, ok := errors.AsType[*client.Error](g.svc.Internal("run call "+c.id, err)); ok {
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
func (g *Group) finish(c *Call, o *outcome) {
	if o.left {
		return
	}
	if o.result != nil {
		o.result = g.withoutUnreadable(c, o.result)
	}
	row := c.compose(o)
	if g.hooksResult(c, o, &row) != nil {
		return
	}
	row.Settle() // after the hooks: whatever they have made of it, it says how it ended
	c.clock.ended = time.Now()
	row.Call.Time.Ended = new(c.clock.ended.UTC().Truncate(time.Millisecond))
	c.stream.Flush(c.out.Offset())
	g.judge.Answered(&row.Call)
	g.uncount(c) // who hears of the end, and be it as an event, may make the next call
	g.telling.RLock()
	c.mu.Lock()
	c.row = row
	c.mu.Unlock()
	ran := g.announce(c, &row)
	if o.held {
		// What the agent has ended it keeps until the end is in the store, so
		// nobody has to wait for that: a daemon that dies in between leaves it to
		// the next one.
		close(c.done)
		runtime.Gosched() // those who waited for it go first
	}
	g.audit(c, &row)
	stored := g.store(c, &row)
	if stored {
		g.svc.live.Delete(c.id)
	} else {
		// No room on the disk. The result stands in memory, and with the agent:
		// whichever lasts until there is room.
		release := c.hold()
		g.svc.Work.Go(func() { defer release(); g.storeLater(c, &row, o.held) })
	}
	g.telling.RUnlock()
	if !o.held {
		close(c.done)
		runtime.Gosched()
	}
	if stored && o.held {
		g.forget(c)
	}
	g.logEnd(c, &row.Call, ran)
	if o.recount && g.open.Load() == 0 {
		g.place.Killed()
	}
}

// store writes the end of the call.
func (g *Group) store(c *Call, row *store.Call) bool {
	typ := client.EventCallCompleted
	if row.Status == client.CallError {
		typ = client.EventCallError
	}
	e := &store.Entry{}
	short := g.svc.Quota.Stored(row)
	n := c.dropInput(e, row, short) + e.FinishCall(short)
	e.AddEvent(c.event(typ, summaryOf(&row.Call)))
	for _, edit := range g.edits(c, row) {
		e.AddEvent(edit)
	}
	err := c.write(e)
	if err != nil {
		g.log.Error("store the end of a call", "call", c.id, "error", err)
		return false
	}
	g.tenant.Kept.Add(n)
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
func (g *Group) forget(c *Call) {
	g.runner.Forget(c.id) // after a loss, relink does it
}

// storeLater tries until the disk has room or the daemon leaves.
func (g *Group) storeLater(c *Call, row *store.Call, held bool) {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		select {
		case <-g.svc.Context.Done():
			return
		case <-time.After(wait):
		}
		if !g.store(c, row) {
			continue
		}
		g.svc.live.Delete(c.id)
		if held {
			g.forget(c)
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
func (g *Group) edits(c *Call, row *store.Call) []client.Event {
	if row.Status != client.CallCompleted || row.IsError {
		return nil
	}
	var all []client.Event
	for _, path := range c.writes {
		all = append(all, c.bare(client.EventFileEdited, struct {
			Path string `json:"path"`
			Tool string `json:"tool"`
		}{path, row.Tool}))
	}
	return all
}

// announce tells who listens and who counts. It returns how long the call ran.
func (g *Group) announce(c *Call, row *store.Call) time.Duration {
	v := row.Call
	c.tellStatus()
	if kept := c.out.Kept(); kept > 0 {
		g.svc.observe(func(o Observer) { o.OutputSpilled(kept) })
	}
	queued, ran := c.clock.durations(&v.Time)
	g.svc.observe(func(o Observer) { o.CallFinished(&v, queued, ran) })
	return ran
}

func (g *Group) logEnd(c *Call, v *client.Call, ran time.Duration) {
	attrs := [...]slog.Attr{
		slog.String("call", c.id),
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
	g.log.LogAttrs(context.Background(), slog.LevelInfo, "call finished", attrs[:n]...)
}

// overflow is what programs print when they change a file of an owner whom the kernel
// has no id for in the session.
const overflow = "Value too large for defined data type"

// compose makes the row of a call that has ended.
func (c *Call) compose(o *outcome) store.Call {
	c.mu.Lock()
	row := c.row
	c.mu.Unlock()
	streamed := c.out.Offset() > 0
	if o.result != nil && !streamed && !c.streams {
		c.out.Write([]byte(o.result.Output), false)
	}
	ct := c.lastOutput(o)
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
		if c.streams {
			maps.Copy(meta, o.exit.Metadata())
		}
	}
	if o.reason != "" {
		meta["reason"] = string(o.reason)
	}
	row.Output.File = c.out.Kept() > 0
	row.Output.Total = c.out.Offset()
	if !row.Output.File {
		row.Output.Inline = int64(len(ct.Head))
	}
	c.describe(ct, meta)
	met, _ := meta[run.ForeignOwner].(bool)
	if c.streams && row.IsError && (strings.Contains(ct.Head, overflow) || strings.Contains(ct.Tail, overflow)) {
		met = true
		o.notes = append(o.notes, "("+overflow+": such a file belongs to a user who is not in this session)")
	}
	if met {
		c.g.Foreign.Add(1)
	}
	if n := c.hostNote(row.IsError); n != "" {
		o.notes = append(o.notes, n)
	}
	row.Call.Output = c.text(ct, o, streamed)
	row.Metadata = meta
	return row
}

// describe puts into the metadata what was cut and where the whole is.
func (c *Call) describe(ct output.Cut, meta map[string]any) {
	own, _ := meta["truncated"].(bool)
	meta["truncated"] = ct.Truncated || c.leavesOut && own
	for _, k := range []string{"output_path", "total_bytes", "output_incomplete"} {
		delete(meta, k) // only we know
	}
	if ct.NULs > 0 {
		meta["nul_bytes"] = ct.NULs
	}
	if !ct.Truncated {
		return
	}
	meta["total_bytes"] = c.out.Offset()
	meta["total_lines"] = ct.TotalLines
	if c.out.Kept() > 0 {
		meta["output_path"] = c.outputPath()
	}
	if why := ct.Stopped; why != "" {
		meta["output_incomplete"] = why
	}
}

// outputPath is where the whole output is, inside the sandbox.
func (c *Call) outputPath() string { return sandbox.OutputDir + "/" + c.id }

// text is what the model reads.
func (c *Call) text(ct output.Cut, o *outcome, streamed bool) string {
	var b strings.Builder
	b.WriteString(ct.Head)
	if ct.Truncated {
		line(&b, c.marker(ct))
		if ct.Tail != "" {
			b.WriteByte('\n')
			b.WriteString(ct.Tail)
		}
	}
	if o.result != nil && (streamed || c.streams) {
		line(&b, plain.Cut(o.result.Output, MaxNote))
	}
	for _, n := range o.notes {
		line(&b, n)
	}
	if o.result != nil && o.result.IsError && c.streams {
		line(&b, networkHint(c.g.place.Row().Network.Mode, ct.Head, ct.Tail))
	}
	if o.result != nil {
		line(&b, c.shortened())
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
func (c *Call) marker(ct output.Cut) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d lines (%d bytes) left out", ct.Lines, ct.Bytes)
	kept := c.out.Kept() > 0
	if kept {
		fmt.Fprintf(&b, "; the whole output is in %s", c.outputPath())
	}
	if why := ct.Stopped; why != "" {
		if kept {
			fmt.Fprintf(&b, " up to byte %d", c.out.Kept())
		}
		b.WriteString("; " + why)
	}
	if kept {
		if tools := c.g.lookTools(c.profile); tools != "" {
			fmt.Fprintf(&b, "; look into it with %s on that path", tools)
		}
	}
	b.WriteByte(']')
	return b.String()
}

// lookTools names the tools of a profile that can look into a saved output.
func (g *Group) lookTools(profile string) string {
	rules := g.judge.Rules(profile)
	var have []string
	for _, d := range g.svc.Tools.Offered("", "", nil) {
		if d.Looks && !rules.Hides(judge.PermissionOf(d)) {
			have = append(have, d.Name)
		}
	}
	return strings.Join(have, " or ")
}
