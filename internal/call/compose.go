package call

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
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
	if r := o.Result; r != nil && (r.Quote != "" || r.Metadata["diff"] != nil) {
		o.Result = t.withoutUnreadable(r)
	}
	streamed := t.c.out.Offset() > 0
	if o.Result != nil && !streamed && !t.c.def.Streams {
		t.c.out.Write([]byte(o.Result.Output), false)
	}
	ct := t.c.out.Finish()
	if o.Result != nil && o.Exit != nil && t.c.def.Command {
		t.findFull(ct, o, &session)
	}
	meta := map[string]any{}
	row.Status, row.IsError = client.CallError, true
	if o.Result != nil {
		row.Status = client.CallCompleted
		row.Title, row.IsError = title(o.Result.Title), o.Result.IsError
		maps.Copy(meta, o.Result.Metadata)
		if len(o.Result.Attachments) > 0 {
			row.Attachments = attachments(o.Result.Attachments)
			o.Result.Attachments = nil // the other form is in the row
		}
	} else {
		maps.Copy(meta, row.Metadata) // the last progress
	}
	row.Error = o.err
	if o.Exit != nil {
		row.Usage = client.CallUsage{
			CPUMillis: o.Exit.CPUMillis, MaxMemoryBytes: o.Exit.MaxMemoryBytes, IOBytes: o.Exit.IOBytes, DurationMillis: o.Exit.DurationMillis,
		}
		if t.c.def.Command {
			maps.Copy(meta, o.Exit.Metadata())
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
	if t.c.def.Command && row.IsError && (strings.Contains(ct.Head, overflow) || strings.Contains(ct.Tail, overflow)) {
		met = true
		o.notes = append(o.notes, "("+overflow+": such a file belongs to a user who is not in this session)")
	}
	if met {
		t.Foreign.Add(1)
	}
	if t.c.translated || row.IsError {
		if n := t.hostNote(session.Worktree); n != "" {
			o.notes = append(o.notes, n)
		}
	}
	if slices.Contains(t.c.aliases, tool.CRLF) {
		o.notes = append(o.notes, "(the carriage returns at the ends of the command's lines were left out)")
	}
	if t.c.batch == nil && t.c.of == nil {
		for _, n := range remark.Astray(&session) {
			o.notes = append(o.notes, "("+n+")")
		}
	}
	blocked, list := t.c.opened.blocked()
	if delete(meta, "network"); len(list) > 0 { // only we know
		meta["network"] = list
	}
	if left := t.spending.left(); left != nil {
		meta["budget_left"] = left
	}
	notes := append(t.notes(ct, o, &session), blocked...)
	delete(meta, "notes")
	if told := append(o.howEnded(), notes...); len(told) > 0 && t.c.def.Command {
		meta["notes"] = told
	}
	row.Call.Output = t.text(ct, o, streamed, notes)
	row.Metadata = meta
	return row
}

// describe puts into the metadata what was cut and where the whole is.
func (t report) describe(ct output.Cut, meta map[string]any) {
	own, _ := meta["truncated"].(bool)
	meta["truncated"] = ct.Truncated || t.c.def.Shows != tool.ShowsNone && own
	for _, k := range []string{"output_path", "total_bytes", "output_incomplete", "checkpoint", "checkpoint_missing", "aliases"} {
		delete(meta, k) // only we know
	}
	if len(t.c.aliases) > 0 {
		meta["aliases"] = t.c.aliases
	}
	if id := t.c.checkpoint.ID; id != "" {
		meta["checkpoint"] = id
	}
	if why := t.c.checkpoint.Missing; why != "" {
		meta["checkpoint_missing"] = why
	}
	for k, n := range map[string]int64{"nul_bytes": ct.NULs, "redraws": ct.Redraws, "control_sequences": ct.Controls} {
		if n > 0 {
			meta[k] = n
		}
	}
	if !ct.Truncated {
		return
	}
	meta["total_bytes"] = t.c.out.Offset()
	meta["total_lines"] = ct.TotalLines
	if t.inSandbox() {
		meta["output_path"] = t.outputPath()
	}
	if why := ct.Stopped; why != "" {
		meta["output_incomplete"] = why
	}
}

// inSandbox reports whether the whole output is in a file that the sandbox can read.
func (t report) inSandbox() bool { return t.c.out.Kept() > 0 && !t.c.private }

// outputPath is where the whole output is, inside the sandbox.
func (t report) outputPath() string { return sandbox.OutputDir + "/" + t.c.id }

// callable are the names of the tools that the rules of a profile let be called. Nothing is looked up
// before the first is asked for.
func (t report) callable(profile string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, d := range t.judge.Rules(profile).Set().Tools {
			if !yield(d.Name) {
				return
			}
		}
	}
}

// notes are what the daemon has to say about a call, beside what its tool said.
func (t report) notes(ct output.Cut, o *outcome, session *store.Session) []string {
	notes := o.notes
	if o.Result != nil && o.Result.IsError && t.c.def.Command {
		notes = append(notes, remark.Offline(session.Network.Mode, ct.Head, ct.Tail), remark.NoTerminal(ct.Head, ct.Tail), remark.Watching(&session.Session, os.DirFS("/"), ct.Head, ct.Tail))
		if rules := t.judge.Rules(session.Profile).Stack(); rules != nil {
			notes = append(notes, remark.Taken(&session.Session, rules.Listened(), ct.Head, ct.Tail))
		}
	}
	if o.Result != nil && t.c.def.Command {
		notes = append(notes, remark.NoProgram(t.callable(session.Profile), ct.Head, ct.Tail))
	}
	if o.Exit != nil && len(o.Exit.Unseen) > 0 { // also of one that ended with 0: that of a pipe is its last command's
		notes = append(notes, remark.Unseen(o.Exit.Unseen, ct.Head, ct.Tail))
	}
	if o.Result != nil && t.c.clipped != "" {
		notes = append(notes, t.c.clipped)
	}
	if made := t.c.checkpoint; made.Missing != "" && !made.Busy {
		notes = append(notes, "(no checkpoint was made before this call, so it cannot be undone alone: "+made.Missing+")")
	}
	return slices.DeleteFunc(notes, func(n string) bool { return n == "" })
}

// howEnded is what the last lines of a command's result say of its end that its exit code does not.
func (o *outcome) howEnded() []string {
	if o.Result == nil || o.Exit == nil || o.Result.Output == "" {
		return nil
	}
	lines := strings.Split(o.Result.Output, "\n")
	if o.Exit.Reason == run.ReasonExit && lines[0] == fmt.Sprintf("exit code %d", o.Exit.Code) {
		lines = lines[1:]
	}
	return lines
}

// text is what the model reads.
func (t report) text(ct output.Cut, o *outcome, streamed bool, notes []string) string {
	var b strings.Builder
	b.WriteString(ct.Head)
	mark := ""
	if ct.Truncated {
		mark = t.marker(ct)
		line(&b, mark)
		if ct.Tail != "" {
			b.WriteByte('\n')
			b.WriteString(ct.Tail)
		}
	}
	if o.Result != nil && o.Result.Output != "" && (streamed || t.c.def.Streams) {
		line(&b, plain.Cut(o.Result.Output, MaxNote))
	}
	line(&b, t.redrawn(ct)) // of the text alone: people saw the bytes
	for _, n := range notes {
		line(&b, n)
	}
	if !strings.HasSuffix(b.String(), mark) {
		line(&b, mark) // agents that cut the answer again cut its middle
	}
	return b.String()
}

// redrawn says what of a terminal's is not shown, and where it is; "" where nothing is missing.
func (t report) redrawn(ct output.Cut) string {
	switch text := plain.NotShown(ct.Redraws, ct.Controls); {
	case text == "":
		return ""
	case t.inSandbox() && ct.Stopped == "":
		return fmt.Sprintf("(not shown: %s; %s has the output as it was printed)", text, t.outputPath())
	default:
		return fmt.Sprintf("(not shown: %s)", text)
	}
}

// marker says how much was left out, where the whole is, and how to look into it.
func (t report) marker(ct output.Cut) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s (%s) left out", plain.Count(ct.Lines, "line", "lines"), plain.Count(ct.Bytes, "byte", "bytes"))
	kept := t.inSandbox()
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
	for _, d := range rules.Set().Tools {
		if d.Looks {
			have = append(have, d.Name)
		}
	}
	return strings.Join(have, " or ")
}

// findFull tells that the program failed for want of room, if it did, or which place is full.
func (t report) findFull(ct output.Cut, o *outcome, session *store.Session) {
	ended, text := remark.Full(o.Exit, ct.Head, ct.Tail, session)
	switch {
	case ended != nil:
		r := *o.Result
		r.Output = text
		o.Result, o.Exit = &r, ended
	case text != "":
		o.notes = append(o.notes, text)
	}
}

// hostNote tells the model that a path is the host's, after a call that failed or had one
// replaced; "" where it has nothing to do with one.
func (t report) hostNote(w client.Worktree) string {
	source, target := remark.HostWorktree(w)
	switch {
	case source == "":
	case t.c.translated:
		return fmt.Sprintf("(%s is %s here)", source, target)
	case len(t.c.row.Input) < MaxNote && remark.Mentions(t.c.row.Input, source):
		return fmt.Sprintf("(the worktree is %s here; %s is its path on the host)", target, source)
	}
	return ""
}

// withoutUnreadable is a result that shows content of the file that it is about, as the
// session may see it: with what it quotes of it, or without all content of that file where MayRead does not
// allow it. An approver was shown that content anyway; this is for the model.
func (t report) withoutUnreadable(r *run.Result) *run.Result {
	v := *r
	v.Quote = ""
	read := t.mayReadAll(t.c.profile, filesOf(r.Metadata))
	if read.Action == policy.Allow {
		v.Output += r.Quote
		return &v
	}
	v.Output += "\n[content of the file is not shown: " + judge.NotReadable(&read) + "]"
	v.Metadata = maps.Clone(r.Metadata)
	// How many lines differ says how many of the new ones were there before, and the size whether
	// their ends are those of the old ones.
	v.Output = lineCounts.ReplaceAllString(v.Output, "")
	withoutCounts(v.Metadata)
	if files, ok := v.Metadata["files"].([]any); ok {
		files = slices.Clone(files)
		for i := range files {
			if f, ok := files[i].(map[string]any); ok {
				f = maps.Clone(f)
				withoutCounts(f)
				files[i] = f
			}
		}
		v.Metadata["files"] = files
	}
	v.Metadata["not_shown"] = judge.NotReadable(&read)
	return &v
}

// lineCounts are how results say how large a file is now and how many lines differ; older agents say
// "1 lines".
var lineCounts = regexp.MustCompile(`(: \d+ bytes?)?[,:] \d+ lines? added, \d+ removed`)

func withoutCounts(meta map[string]any) {
	for _, k := range []string{"diff", "lines_added", "lines_removed", "bytes"} {
		delete(meta, k)
	}
}

// mayReadAll is the first verdict that does not allow a session of the profile to read one of files.
func (s *site) mayReadAll(profile string, files []string) policy.Verdict {
	read := policy.Verdict{Action: policy.Deny, Rule: "default", Reason: "it is not known which file it is"}
	for _, path := range files {
		if path == "" {
			return policy.Verdict{Action: policy.Deny, Rule: "default", Reason: "it is not known which files they are"}
		}
		if read = s.judge.MayRead(profile, path); read.Action != policy.Allow {
			return read
		}
	}
	return read
}

// filesOf are the files that a result is about, as its tool names them: in "path", or in
// "paths" where there may be several. What is no path is "".
func filesOf(meta map[string]any) []string {
	var files []string
	if path, ok := meta["path"].(string); ok && path != "" {
		files = append(files, path)
	}
	list, _ := meta["paths"].([]any)
	for _, item := range list {
		path, _ := item.(string)
		files = append(files, path)
	}
	return files
}
