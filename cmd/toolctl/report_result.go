package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
)

// jobResult is result.json, whose version is 1: fields may come, none changes what it means
// or goes. Paths are written as git writes them, quoted where they have characters that
// act, quotes, or bytes that are no UTF-8. What is bounded says how much it leaves out.
type jobResult struct {
	Version  int `json:"version"`
	ExitCode int `json:"exit_code"` // of toolctl
	// Reason is how the command ended: exit, timeout, signal, memory, pids, disk,
	// output_limit, aborted, lost or session_ended, as in metadata.reason of a call; else
	// why it did not run or its end is not known: a code of the API's errors, such as
	// denied, or interrupted, unreachable, internal.
	Reason  string         `json:"reason"`
	Error   *reportedError `json:"error,omitempty"` // where the command did not run, or toold failed
	Started time.Time      `json:"started"`
	Ended   time.Time      `json:"ended"`
	Session *resultSession `json:"session,omitempty"` // absent where none could be made
	Bill    resultBill     `json:"bill"`
	Network string         `json:"network"` // what the session could reach: "none" is its own loopback, "rules" what rules allow
	Hosts   *resultHosts   `json:"hosts,omitempty"`
	Calls   resultCalls    `json:"calls"`
	Changes resultChanges  `json:"changes"`
	Patch   resultPatch    `json:"patch"`
	Log     resultLog      `json:"log"`
	// Artifacts are absent where none were asked for.
	Artifacts *resultArtifacts `json:"artifacts,omitempty"`
	// Missing says what should be in the report and is not, and why. toolctl exits with 125
	// then, or as it did for another failure of its own.
	Missing []string `json:"missing,omitempty"`
}

// resultSession is the session, as it ended.
type resultSession struct {
	ID      string              `json:"id"`
	Name    string              `json:"name,omitempty"`
	State   client.SessionState `json:"state"` // ended or lost; ready with --keep
	Reason  string              `json:"reason,omitempty"`
	Tenant  string              `json:"tenant"`
	Profile string              `json:"profile"`
	Driver  string              `json:"driver"`
	Runtime string              `json:"runtime"`
	Image   string              `json:"image,omitempty"`
	Labels  map[string]string   `json:"labels,omitempty"`
	Source  string              `json:"source,omitempty"` // of the worktree, on the host
	Mode    client.WorktreeMode `json:"mode"`
	Notes   []string            `json:"notes,omitempty"`
}

// resultBill is the sum over all calls, also of those that the list leaves out.
type resultBill struct {
	CPUMillis      int64 `json:"cpu_ms"`
	MaxMemoryBytes int64 `json:"max_memory_bytes"` // of the call with the most
	IOBytes        int64 `json:"io_bytes"`
	CallMillis     int64 `json:"call_ms"`
	WallMillis     int64 `json:"wall_ms"`      // of toolctl: with the session's beginning and end
	OutputBytes    int64 `json:"output_bytes"` // what the calls have printed, as far as it is known
}

// resultHosts are the hosts that a session with a network reached, or wanted to, by their verdicts.
type resultHosts struct {
	Items   []client.NetworkHost `json:"items"`    // the first thousand
	LeftOut int64                `json:"left_out"` // connections
}

// resultCalls are the calls of the session until the command had ended, the oldest first,
// without those that toolctl makes itself after it.
type resultCalls struct {
	Count   int          `json:"count"`
	LeftOut int          `json:"left_out"`
	Items   []resultCall `json:"items"` // the first thousand
}

// resultCall is one call.
type resultCall struct {
	ID       string                 `json:"id"`
	Tool     string                 `json:"tool"`
	Input    string                 `json:"input"` // its command, path or JSON, on one line of at most 200 columns
	Status   client.CallStatus      `json:"status"`
	IsError  bool                   `json:"is_error"`
	Reason   string                 `json:"reason,omitempty"`    // of a command
	ExitCode *int                   `json:"exit_code,omitempty"` // of a command that exited
	Error    client.Code            `json:"error,omitempty"`     // of one that did not run, or whose result was lost
	Notes    []string               `json:"notes,omitempty"`     // why a command ended and what to do, and what else its output does not say
	Decision *client.CallPermission `json:"decision,omitempty"`  // absent where nothing was judged
	Usage    client.CallUsage       `json:"usage"`
}

// resultChanges is what has changed in the worktree. In mode overlay that are Files and
// Paths; in others GitStatus, where it is a git worktree.
type resultChanges struct {
	Files      int `json:"files"`
	Added      int `json:"added"` // lines
	Removed    int `json:"removed"`
	Unreadable int `json:"unreadable"` // whose content could not be compared
	// Stale: a change takes back what somebody else did in the source.
	Stale bool `json:"stale,omitempty"`
	// Incomplete are directories that were moved, and that the source has lost files of.
	Incomplete []client.Incomplete `json:"incomplete,omitempty"`
	Paths      []resultPath        `json:"paths,omitempty"`
	LeftOut    int                 `json:"left_out"` // of paths, or of the lines of git
	GitStatus  []string            `json:"git_status,omitempty"`
	// Applied is what of it was written to the source, with the lists of the API's answer.
	Applied *client.Applied `json:"applied,omitempty"`
	// Sensitive are files that programs of the host run or obey on sight, and were changed.
	Sensitive *client.SensitiveChanges `json:"sensitive,omitempty"`
}

// resultPath is a path that has changed.
type resultPath struct {
	Path   string              `json:"path"`
	Status client.ChangeStatus `json:"status"`
	Stale  bool                `json:"stale,omitempty"`
}

// resultPatch is changes.patch, which git apply takes.
type resultPatch struct {
	File   string `json:"file,omitempty"`
	Bytes  int64  `json:"bytes"`
	Absent string `json:"absent,omitempty"` // why there is none
	// LeftOut counts changes that a patch cannot say, Unreadable those that could not be compared.
	LeftOut    int `json:"left_out,omitempty"`
	Unreadable int `json:"unreadable,omitempty"`
	// Beside is a directory with the files that the patch lacks, whole, as the session has them.
	Beside      string `json:"beside,omitempty"`
	BesideFiles int    `json:"beside_files,omitempty"`
	BesideBytes int64  `json:"beside_bytes,omitempty"`
}

// resultLog is log.txt: what the command has printed, with every byte as it came.
type resultLog struct {
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`    // that were printed
	LeftOut int64  `json:"left_out"` // in the middle
}

// resultArtifacts are the files below artifacts/.
type resultArtifacts struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Unmatched are patterns that no file has.
	Unmatched []string `json:"unmatched,omitempty"`
	// Links that match are left out: a reader of artifacts may follow them.
	Links int `json:"links_left_out"`
	// LeftOut counts files that match and are more than a report takes.
	LeftOut int `json:"left_out"`
	// Unread counts what could not be read in the directories that the patterns name: by the
	// rules, by its mode, or as it is no file.
	Unread int `json:"unread"`
	// Failed counts files that could not be written here.
	Failed int `json:"failed"`
}

// maxInputShort is how much of an input a report shows, in columns.
const maxInputShort = 200

// addCall takes a call down.
func (p *ciReport) addCall(c *client.Call) {
	b := &p.result.Bill
	b.CPUMillis += c.Usage.CPUMillis
	b.MaxMemoryBytes = max(b.MaxMemoryBytes, c.Usage.MaxMemoryBytes)
	b.IOBytes += c.Usage.IOBytes
	b.CallMillis += c.Usage.DurationMillis
	if n, ok := c.Metadata["total_bytes"].(float64); ok {
		b.OutputBytes += int64(n)
	}
	if p.show != nil {
		p.show(c)
	}
	p.result.Calls.Count++
	if len(p.result.Calls.Items) == maxReportCalls {
		p.result.Calls.LeftOut++
		return
	}
	x := resultCallOf(c)
	p.result.Calls.Items = append(p.result.Calls.Items, x)
	p.cases = append(p.cases, p.caseOf(c, &x))
}

func resultCallOf(c *client.Call) resultCall {
	x := resultCall{
		ID: c.ID, Tool: c.Tool, Input: shownInput(c), Status: c.Status, IsError: c.IsError,
		Notes: remarks(c), Decision: c.Permission, Usage: c.Usage,
	}
	if c.Error != nil {
		x.Error = c.Error.Code
	}
	e := endingOf(c)
	x.Reason = e.reason
	if e.code >= 0 {
		x.ExitCode = &e.code
	}
	return x
}

func shownInput(c *client.Call) string {
	text := inputShort(c.Input)
	if c.InputNotKept != nil {
		text = c.InputNotKept.String()
	}
	return clipped(line(text[:min(len(text), 4*maxInputShort)]), maxInputShort)
}

// sumUp fills in how all ended. err is what toolctl ends with.
func (r *runCommand) sumUp(err error) {
	p := &r.ci.result
	p.Ended = time.Now().UTC()
	p.Bill.WallMillis = p.Ended.Sub(p.Started).Milliseconds()
	p.ExitCode, p.Error = exitCode(err), errorOf(err)
	p.Reason = r.reasonOf(err)
	p.Log.Bytes, p.Log.LeftOut = r.ci.log.bytes, r.ci.log.leftOut()
	p.Bill.OutputBytes = max(p.Bill.OutputBytes, p.Log.Bytes)
	if p.Calls.Items == nil {
		p.Calls.Items = []resultCall{}
	}
	if s := r.report.Session; s != nil {
		p.Network, p.Session = s.Network.Mode, resultSessionOf(s)
		p.Changes.Sensitive = s.Worktree.Sensitive
	}
	p.Changes.Applied = r.report.Applied
	if d := r.report.Diff; d != nil {
		p.Changes.diff(d)
	} else if text := r.report.Changes; text != "" {
		p.Changes.GitStatus, p.Changes.LeftOut = firstLines(lines(text))
	}
}

func resultSessionOf(s *client.Session) *resultSession {
	return &resultSession{
		ID: s.ID, Name: s.Name, State: s.State, Reason: s.Reason, Tenant: s.Tenant, Profile: s.Profile, Driver: s.Driver, Runtime: s.Runtime,
		Image: s.Image, Labels: s.Labels, Source: s.Worktree.Source, Mode: s.Worktree.Mode, Notes: s.Notes,
	}
}

// reasonOf is how the command ended, or why it did not.
func (r *runCommand) reasonOf(err error) string {
	stopped := (*interruptedError)(nil)
	switch c := r.report.Call; {
	case c != nil && c.Error != nil:
		return string(c.Error.Code)
	case c != nil && endingOf(c).reason != "":
		return endingOf(c).reason
	case errors.As(err, &stopped):
		return "interrupted"
	case isUnreachable(err):
		return "unreachable"
	case err == nil && c == nil && r.report.Session != nil: // of agents, which have no one command
		return string(r.report.Session.State)
	}
	if answered, ok := errors.AsType[*client.Error](err); ok {
		return string(answered.Code)
	}
	return string(client.CodeInternal)
}

func (x *resultChanges) diff(d *client.Changes) {
	x.Files, x.Added, x.Removed, x.Unreadable = d.Files, d.Added, d.Removed, d.Unreadable
	x.Stale = x.Stale || d.Stale > 0
	x.Incomplete = d.Incomplete
	for i := range d.Items {
		x.Paths = append(x.Paths, resultPath{changeName(&d.Items[i]), d.Items[i].Status, d.Items[i].Stale})
	}
	x.LeftOut = max(0, d.Files-len(d.Items))
}

// firstLines are the lines of a text that a report has, and how many it leaves out.
func firstLines(text string) (first []string, leftOut int) {
	all := strings.Split(text, "\n")
	first = slices.Clip(all[:min(len(all), maxPatchFiles)])
	return first, len(all) - len(first)
}

// errorOf is err as documents have it: nil where the exit code says all.
func errorOf(err error) *reportedError {
	if said := (*exitError)(nil); err == nil || errors.As(err, &said) && said.err == nil {
		return nil
	}
	if answered, ok := errors.AsType[*client.Error](err); ok {
		return (*reportedError)(answered)
	}
	return &reportedError{Code: client.CodeInternal, Message: cmp.Or(err.Error(), "failed")}
}

// maxSummary bounds each list of a summary: it is for the page of a job.
const maxSummary = 30

// writeSummary writes summary.md: result.json for people, in Markdown. All that comes from the
// sandbox is in code spans that it cannot end.
func writeSummary(w io.Writer, p *jobResult) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### toolctl: exit code %d, %s\n\n", p.ExitCode, code(p.Reason))
	if p.Error != nil {
		fmt.Fprintf(&b, "- %s\n", code(p.Error.Message))
	}
	if s := p.Session; s != nil {
		fmt.Fprintf(&b, "- session %s, mode %s, network %s", code(s.ID), code(string(s.Mode)), code(p.Network))
		if s.Reason != "" {
			fmt.Fprintf(&b, ": %s", code(s.Reason))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "- %s, cpu %s, memory %s at most, %s in all\n", plural(p.Calls.Count, "call"), seconds(p.Bill.CPUMillis), bytesShort(p.Bill.MaxMemoryBytes), seconds(p.Bill.WallMillis))
	switch c := &p.Changes; {
	case p.Patch.File != "" && c.Files == 0:
		b.WriteString("- nothing changed\n")
	case p.Patch.File != "":
		fmt.Fprintf(&b, "- %s changed, %s added, %d removed: %s, %s\n", plural(c.Files, "file"), plural(c.Added, "line"), c.Removed, code(p.Patch.File), bytesShort(p.Patch.Bytes))
	}
	if p.Patch.Beside != "" {
		fmt.Fprintf(&b, "- %s that the patch lacks, whole: %s, %s\n", plural(p.Patch.BesideFiles, "file"), code(p.Patch.Beside), bytesShort(p.Patch.BesideBytes))
	}
	list := func(head string, items []string, more int) {
		if len(items) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n#### %s\n\n", head)
		shown := items[:min(len(items), maxSummary)]
		for _, i := range shown {
			fmt.Fprintf(&b, "- %s\n", i)
		}
		if more += len(items) - len(shown); more > 0 {
			fmt.Fprintf(&b, "- and %d more\n", more)
		}
	}
	list("Not in this report", codes(p.Missing), 0)
	list("Calls that failed", p.failedCalls(), p.Calls.LeftOut)
	if s := p.Changes.Sensitive; s != nil {
		list("Programs of the host run or obey these on sight", codes(s.Changed), s.More)
	}
	var paths []string
	for _, c := range p.Changes.Paths {
		paths = append(paths, code(statusLetters[c.Status]+" "+c.Path))
	}
	list("Changed", paths, p.Changes.LeftOut)
	list("Changed", codes(p.Changes.GitStatus), 0)
	if p.Hosts != nil {
		reached, denied := p.Hosts.lines()
		list("Denied connections", denied, int(p.Hosts.LeftOut))
		list("Reached", reached, 0)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// failedCalls has a line for each call that failed: what it was, and why.
func (p *jobResult) failedCalls() []string {
	var all []string
	for i := range p.Calls.Items {
		c := &p.Calls.Items[i]
		why := c.Reason
		switch {
		case c.Error != "":
			why = string(c.Error)
		case len(c.Notes) > 0:
			why = c.Notes[0]
		case c.ExitCode != nil:
			why = fmt.Sprintf("exit code %d", *c.ExitCode)
		}
		if c.IsError || c.Error != "" {
			all = append(all, code(c.Tool+" "+c.Input)+": "+code(why))
		}
	}
	return all
}

// lines has one for each host that was reached, and that was denied.
func (h *resultHosts) lines() (reached, denied []string) {
	for i := range h.Items {
		x := &h.Items[i]
		text := fmt.Sprintf("%s, %s", code(x.To), plural(int(x.Count), "time"))
		switch {
		case x.Verdict != "allow":
			denied = append(denied, text+" by "+code(x.Rule))
		case x.Count > x.Failed:
			reached = append(reached, text)
		}
	}
	return reached, denied
}

// code is hostile text as a code span of Markdown, which no byte of it ends.
func code(text string) string {
	text = clipped(line(strings.ReplaceAll(text, "`", "'")), maxInputShort)
	if strings.TrimSpace(text) == "" {
		return "(empty)"
	}
	return "`" + text + "`"
}

func codes(texts []string) []string {
	all := make([]string, len(texts))
	for i, t := range texts {
		all[i] = code(t)
	}
	return all
}
