package call

import (
	"fmt"
	"maps"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// report makes of the outcome of a call what its record says.
type report struct {
	*site
	c *Call
}

// overflow is what programs print when they change a file of an owner whom the kernel
// has no id for in the session.
const overflow = "Value too large for defined data type"

// compose makes the row of a call that has ended.
func (t report) compose(o *outcome) store.Call {
	t.c.mu.Lock()
	row := t.c.row
	t.c.mu.Unlock()
	session := t.place.Row()
	streamed := t.c.out.Offset() > 0
	if o.result != nil && !streamed && !t.c.def.Streams {
		t.c.out.Write([]byte(o.result.Output), false)
	}
	ct := t.c.out.Finish()
	t.findFull(ct, o, &session.Session)
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
		row.Usage = client.CallUsage{
			CPUMillis: o.exit.CPUMillis, MaxMemoryBytes: o.exit.MaxMemoryBytes, IOBytes: o.exit.IOBytes, DurationMillis: o.exit.DurationMillis,
		}
		if t.c.def.Streams {
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
	if t.c.def.Streams && row.IsError && (strings.Contains(ct.Head, overflow) || strings.Contains(ct.Tail, overflow)) {
		met = true
		o.notes = append(o.notes, "("+overflow+": such a file belongs to a user who is not in this session)")
	}
	if met {
		t.Foreign.Add(1)
	}
	if n := t.hostNote(session.Worktree, row.IsError); n != "" {
		o.notes = append(o.notes, n)
	}
	row.Call.Output = t.text(ct, o, streamed, session.Network.Mode)
	row.Metadata = meta
	return row
}

// describe puts into the metadata what was cut and where the whole is.
func (t report) describe(ct output.Cut, meta map[string]any) {
	own, _ := meta["truncated"].(bool)
	meta["truncated"] = ct.Truncated || t.c.def.Shows != tool.ShowsNone && own
	for _, k := range []string{"output_path", "total_bytes", "output_incomplete", "checkpoint"} {
		delete(meta, k) // only we know
	}
	if t.c.checkpoint != "" {
		meta["checkpoint"] = t.c.checkpoint
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
func (t report) outputPath() string { return sandbox.OutputDir + "/" + t.c.id }

// text is what the model reads.
func (t report) text(ct output.Cut, o *outcome, streamed bool, network string) string {
	var b strings.Builder
	b.WriteString(ct.Head)
	if ct.Truncated {
		line(&b, t.marker(ct))
		if ct.Tail != "" {
			b.WriteByte('\n')
			b.WriteString(ct.Tail)
		}
	}
	if o.result != nil && (streamed || t.c.def.Streams) {
		line(&b, plain.Cut(o.result.Output, MaxNote))
	}
	for _, n := range o.notes {
		line(&b, n)
	}
	if o.result != nil && o.result.IsError && t.c.def.Streams {
		line(&b, remark.Offline(network, ct.Head, ct.Tail))
	}
	if o.result != nil {
		line(&b, t.c.shortened())
	}
	return b.String()
}

// marker says how much was left out, where the whole is, and how to look into it.
func (t report) marker(ct output.Cut) string {
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
func (t report) lookTools(profile string) string {
	rules := t.judge.Rules(profile)
	var have []string
	for _, d := range t.daemon.Tools.Offered("", "", nil) {
		if d.Looks && !rules.Hides(judge.PermissionOf(d)) {
			have = append(have, d.Name)
		}
	}
	return strings.Join(have, " or ")
}

// findFull tells that the program failed for want of room, if it did.
func (t report) findFull(ct output.Cut, o *outcome, session *client.Session) {
	if o.exit == nil || !t.c.def.Streams || o.result == nil {
		return
	}
	ended, text := remark.Full(o.exit, ct.Head, ct.Tail, session)
	switch {
	case ended != nil:
		r := *o.result
		r.Output = text
		o.result, o.exit = &r, ended
	case text != "":
		o.notes = append(o.notes, text)
	}
}

// hostNote tells the model that a path is the host's; "" where the call has nothing to
// do with one.
func (t report) hostNote(w client.Worktree, failed bool) string {
	source, target := remark.HostWorktree(w)
	switch {
	case source == "":
	case t.c.translated:
		return fmt.Sprintf("(%s is %s here)", source, target)
	case failed && len(t.c.row.Input) < MaxNote && remark.Mentions(t.c.row.Input, source):
		return fmt.Sprintf("(the worktree is %s here; %s is its path on the host)", target, source)
	}
	return ""
}

// withoutUnreadable is a result as the session may see it: with what it quotes of the
// file that it is about, or without all content of that file where MayRead does not
// allow it. An approver was shown that content anyway; this is for the model.
func (t report) withoutUnreadable(r *run.Result) *run.Result {
	_, diff := r.Metadata["diff"]
	if r.Quote == "" && !diff {
		return r
	}
	v := *r
	v.Quote = ""
	read := policy.Verdict{Action: policy.Deny, Rule: "default", Reason: "it is not known which file it is"}
	if path, ok := r.Metadata["path"].(string); ok && path != "" {
		read = t.judge.MayRead(t.c.profile, path)
	}
	if read.Action == policy.Allow {
		v.Output += r.Quote
		return &v
	}
	v.Output += "\n[content of the file is not shown: " + judge.NotReadable(&read) + "]"
	v.Metadata = maps.Clone(r.Metadata)
	delete(v.Metadata, "diff")
	v.Metadata["not_shown"] = judge.NotReadable(&read)
	return &v
}
