package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/plain"
)

type auditTailCommand struct {
	*app
	log    auditLog
	follow bool
	lines  int
	flow   *flow // of what is no table; nil before the first
}

func newAuditTailCommand(a *app) *cobra.Command {
	s := &auditTailCommand{app: a, log: auditLog{app: a}}
	c := &cobra.Command{
		Use:   "tail [FILE | DIR]",
		Short: "Show the last records of the audit log",
		Long: `Show the last records of the audit log, and with --follow new ones until Ctrl-C.
When the daemon begins a new file, the command follows it. With -o json each
record is printed as its line in the log.`,
		Example: "  toolctl audit tail\n  toolctl audit tail --follow -n 0\n  toolctl audit tail -o json | jq -c 'select(.verdict == \"deny\")'",
		RunE:    func(c *cobra.Command, args []string) error { return s.run(c.Context(), args) },
	}
	s.log.flags(c)
	c.Flags().BoolVarP(&s.follow, "follow", "f", false, "show new records until Ctrl-C")
	c.Flags().IntVarP(&s.lines, "lines", "n", 10, "how many of the last records")
	return c
}

// maxTail bounds -n: the lines are held in memory.
const maxTail = 100_000

func (s *auditTailCommand) run(ctx context.Context, args []string) error {
	if s.lines < 0 || s.lines > maxTail {
		return usagef("-n is %d; give 0 to %d", s.lines, maxTail)
	}
	files, _, err := s.log.files(args)
	if err != nil {
		return err
	}
	f, err := os.Open(current(files))
	if err != nil {
		return err
	}
	t := &logFollower{name: current(files), f: f, r: record.NewReader(current(files), f)}
	defer func() { _ = t.f.Close() }()
	last, err := t.last(s.lines)
	if err == nil {
		last, err = olderLines(files[:len(files)-1], last, s.lines)
	}
	if err != nil {
		return err
	}
	if len(last) == 0 && s.lines > 0 {
		s.say("the log %s has no records yet", line(current(files)))
	}
	show := s.show
	if s.outTTY && s.format == formatTable {
		if err := s.table(true, last...); err != nil {
			return err
		}
		show, last = func(l record.Line) error { return s.table(false, l) }, nil
	}
	for _, l := range last {
		if err := show(l); err != nil {
			return err
		}
	}
	if !s.follow {
		return nil
	}
	err = t.follow(ctx, show)
	if interruption(ctx) != nil {
		return nil // Ctrl-C is how --follow ends
	}
	return err
}

// olderLines puts the last lines of older files before those that there are,
// until there are n.
func olderLines(files []string, have []record.Line, n int) ([]record.Line, error) {
	for i := len(files) - 1; i >= 0 && len(have) < n; i-- {
		f, err := os.Open(files[i])
		if err != nil {
			return nil, err
		}
		t := &logFollower{name: files[i], f: f, r: record.NewReader(files[i], f)}
		older, err := t.last(n - len(have))
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		have = append(older, have...)
	}
	return have, nil
}

// logFollower reads the file that is written to, and what comes after it.
type logFollower struct {
	name string // of the file that is written to
	f    *os.File
	r    *record.Reader
}

// last reads to the end and gives the last n lines.
func (t *logFollower) last(n int) ([]record.Line, error) {
	var lines []record.Line
	err := t.rest(func(l record.Line) error {
		l.Text = bytes.Clone(l.Text)
		if lines = append(lines, l); len(lines) > 2*n+100 {
			lines = append(lines[:0], lines[len(lines)-n:]...)
		}
		return nil
	})
	return lines[max(0, len(lines)-n):], err
}

// rest reads whole lines up to the end.
func (t *logFollower) rest(fn func(record.Line) error) error {
	return t.r.Rest(func(l record.Line) error {
		if !l.Whole {
			return nil
		}
		return fn(l)
	})
}

// followEvery is how often a log is looked at for new records.
const followEvery = 250 * time.Millisecond

// follow gives the lines that come until ctx ends.
func (t *logFollower) follow(ctx context.Context, fn func(record.Line) error) error {
	for {
		// First whether the file was put aside, then its rest: nothing is written
		// to it after that.
		next, err := t.next()
		if err != nil {
			return err
		}
		if err := t.rest(fn); err != nil {
			if next != nil {
				_ = next.Close()
			}
			return err
		}
		if next != nil {
			_ = t.f.Close()
			t.f, t.r = next, record.NewReader(next.Name(), next)
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(followEvery):
		}
	}
}

// next opens the file that has taken the place of the present one; nil when none
// has.
func (t *logFollower) next() (*os.File, error) {
	mine, err := t.f.Stat()
	if err != nil {
		return nil, err
	}
	if fi, err := os.Stat(t.name); err == nil && os.SameFile(fi, mine) {
		return nil, nil
	}
	for {
		name, err := t.after(mine)
		if name == "" || err != nil {
			return nil, err
		}
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was put aside meanwhile, too
		}
		if err != nil {
			return nil, err
		}
		// Or another has its name by now: then there is one between the two.
		opened, err := f.Stat()
		if err == nil {
			name, err = t.after(mine)
		}
		if fi, serr := os.Stat(name); err == nil && serr == nil && os.SameFile(fi, opened) {
			return f, nil
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// after names the file of the log that follows this one; "" when it is not there yet.
func (t *logFollower) after(mine os.FileInfo) (string, error) {
	files, err := record.Files(t.name)
	if err != nil {
		return "", err
	}
	for i, name := range files {
		if fi, err := os.Stat(name); err == nil && os.SameFile(fi, mine) {
			return append(files, "")[i+1], nil
		}
	}
	return "", fmt.Errorf("%s was removed", line(t.name))
}

// show prints one record.
func (s *auditTailCommand) show(l record.Line) error {
	r, err := auditRecord(l)
	if err != nil {
		return err
	}
	if s.format == formatJSON {
		_, err = fmt.Fprintf(s.stdout, "%s\n", l.Text)
		return err
	}
	return s.printNext(view{data: r, names: []string{fmt.Sprint(r.Seq)}, text: func(w io.Writer) {
		if s.flow == nil {
			s.flow = newFlow(s.app, 0, 8, 9)
		}
		fields, behind := auditText(r)
		s.flow.write(w, fields, behind...)
	}})
}

// auditTool is what was done: the tool of a call, or the operation on something else.
func auditTool(r *record.Record) string {
	switch {
	case r.Worktree != nil:
		return r.Worktree.Operation
	case r.Cache != nil:
		return r.Cache.Operation + " " + r.Cache.Name
	case r.Admin != nil:
		return r.Admin.Operation
	}
	return r.Tool
}

// table prints records for a terminal, a row each; head: with the names of its columns.
func (s *auditTailCommand) table(head bool, lines ...record.Line) error {
	records := make([]*record.Record, len(lines))
	layout := time.TimeOnly
	for i, l := range lines {
		r, err := auditRecord(l)
		if err != nil {
			return err
		}
		records[i] = r
		if r.Time.Local().Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
			layout = time.Stamp
		}
	}
	if len(records) == 0 {
		return nil
	}
	sessions := make([]string, len(records)) // no column of their own: most terminals have no room for one
	for i, r := range records {
		sessions[i] = r.Session
	}
	if s.columns() < 120 {
		sessions = shortIDs(sessions)
	}
	t := s.newTable("", "TIME", "RESULT", "WHAT", "CALL", "MORE")
	t.ids, t.wraps = []int{3}, true
	if !head {
		t.rows, t.headers = nil, 0
	}
	for i, r := range records {
		f := auditFields(r)
		more := slices.DeleteFunc(slices.Concat(f.who, []string{sessions[i]}, f.why), func(s string) bool { return s == "" })
		t.row(r.Time.Local().Format(layout), cmp.Or(f.result, string(r.Kind)), f.what, r.Call, strings.Join(more, " "))
	}
	return s.print(view{text: t.write})
}

// auditShown is what of a record is shown to people, beside its time, session and call.
type auditShown struct {
	result, what string
	who, why     []string
}

func auditFields(r *record.Record) auditShown {
	switch {
	case r.Tampered != nil:
		return auditShown{why: []string{fmt.Sprintf("%s, after record %d", r.Tampered.What, r.Tampered.LastRecord)}}
	case r.Torn != nil:
		return auditShown{why: []string{"the log ended with " + plain.Count(r.Torn.Bytes, "byte", "bytes") + " of a record"}}
	case r.Gap != nil:
		return auditShown{why: []string{fmt.Sprintf("not written since %s: %d refused, %d lost: %s", r.Gap.Since.Local().Format(time.DateTime), r.Gap.Refused, r.Gap.Lost, r.Gap.Error)}}
	}
	f := auditShown{result: r.Verdict, what: auditTool(r), who: []string{r.Tenant}}
	if r.Kind == record.KindFinished {
		f.result = r.Status
		if r.AgentReported != nil && r.AgentReported.IsError {
			f.result = "failed"
		}
		if r.Code != "" {
			f.result = r.Code
		}
	}
	if r.Peer != nil {
		f.who = append(f.who, fmt.Sprintf("uid=%d", r.Peer.UID))
	}
	for _, of := range []struct{ name, value string }{{"rule", r.Rule}, {"by", r.Approver}, {"reason", r.Reason}} {
		if of.value != "" {
			f.why = append(f.why, of.name+"="+of.value)
		}
	}
	return f
}

// auditText is a record as a line of a flow.
func auditText(r *record.Record) (fields, behind []string) {
	f := auditFields(r)
	fields = []string{r.Time.Local().Format(time.DateTime), string(r.Kind)}
	if f.who != nil {
		fields, behind = append(fields, f.result), slices.Concat([]string{f.what}, f.who, []string{r.Session, r.Call})
	}
	return fields, append(behind, f.why...)
}
