package main

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
)

type auditExportCommand struct {
	*app
	log            auditLog
	since, session string
	format         string
}

func newAuditExportCommand(a *app) *cobra.Command {
	s := &auditExportCommand{app: a, log: auditLog{app: a}, format: exportJSON}
	c := &cobra.Command{
		Use:   "export [FILE | DIR]",
		Short: "Write records of the audit log as JSON lines or CSV",
		Long: `Write the records of the audit log, oldest first: with -o json as the lines of the
log, with -o csv as a table for spreadsheets. A line that is not a valid record
ends the export with an error. The chain of hashes is not checked; use "toolctl
audit verify" for that. With --tenant only records of that tenant are written.`,
		Example: `  toolctl audit export --since 24h > records.jsonl
  toolctl audit export --session ses_0123 -o csv > session.csv`,
		RunE: func(_ *cobra.Command, args []string) error { return s.run(args) },
	}
	s.log.flags(c)
	f := c.Flags()
	f.StringVar(&s.since, "since", "", `only records since then: a `+"`duration`"+` ago ("24h", "7d") or a time ("2026-01-31", "2026-01-31T12:00:00Z")`)
	f.StringVar(&s.session, "session", "", "only records of the session with this id")
	f.VarP(choice[string]{&s.format, exportFormats, "format"}, "output", "o", "json or csv")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(exportFormats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// The values of export's own -o.
const (
	exportJSON = "json"
	exportCSV  = "csv"
)

var exportFormats = []string{exportJSON, exportCSV}

func (s *auditExportCommand) run(args []string) error {
	since, err := moment(s.since, time.Now())
	if err != nil {
		return usagef("--since %w", err)
	}
	files, _, err := s.log.files(args)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.stdout)
	write, exported := exportLine(out), 0
	if s.format == exportCSV {
		write = exportRow(out)
	}
	err = record.Read(files, func(l record.Line) error {
		r, err := auditRecord(l)
		if err != nil || r == nil {
			return err
		}
		if r.Time.Before(since) || s.session != "" && r.Session != s.session || s.tenant != "" && r.Tenant != s.tenant {
			return nil
		}
		exported++
		return write(l.Text, r)
	})
	if err == nil && exported == 0 {
		s.say("no record of the log is like that; toolctl audit tail shows the last ones")
	}
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	return err
}

// auditRecord reads a line of the log; nil for one that is being written.
func auditRecord(l record.Line) (*record.Record, error) {
	if !l.Whole {
		return nil, nil
	}
	r, err := record.Decode(l.Text)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w; see \"toolctl audit verify\"", l.File, l.Number, err)
	}
	return r, nil
}

// moment reads a time, or how long ago it was; "" is the beginning of all.
func moment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly, time.DateTime} {
		if t, err := time.ParseInLocation(form, s, time.Local); err == nil {
			return t, nil
		}
	}
	d, err := client.ParseDuration(s)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("%q is neither a time nor a duration: %w", s, err)
	case d < 0:
		return time.Time{}, fmt.Errorf("%s: it must not be negative", s)
	}
	return now.Add(-time.Duration(d)), nil
}

// exportLine writes records as they are in the log: ASCII, one line each.
func exportLine(w *bufio.Writer) func([]byte, *record.Record) error {
	return func(text []byte, _ *record.Record) error {
		_, _ = w.Write(text) // the error stays for the next one
		return w.WriteByte('\n')
	}
}

// auditColumns are the columns of an export as CSV.
var auditColumns = []string{
	"seq", "time", "kind", "tenant", "uid", "pid", "session", "call", "tool", "input_hash", "verdict", "rule", "approver", "approval",
	"reason", "status", "code", "agent_cpu_ms", "agent_max_memory_bytes", "agent_io_bytes", "agent_duration_ms", "output_hash", "hash",
}

func exportRow(out io.Writer) func([]byte, *record.Record) error {
	w := csv.NewWriter(out)
	first := true
	return func(_ []byte, r *record.Record) error {
		if first {
			first = false
			_ = w.Write(auditColumns) // its error is that of Flush
		}
		_ = w.Write(auditRow(r))
		w.Flush()
		return w.Error()
	}
}

func auditRow(r *record.Record) []string {
	row := []string{
		strconv.FormatUint(r.Seq, 10), r.Time.Format(time.RFC3339Nano), string(r.Kind), r.Tenant, "", "", r.Session, r.Call, auditTool(r), r.InputHash,
		r.Verdict, r.Rule, r.Approver, r.Approval, r.Reason, r.Status, r.Code, "", "", "", "", r.OutputHash, r.Hash,
	}
	if r.Peer != nil {
		row[4], row[5] = strconv.FormatUint(uint64(r.Peer.UID), 10), strconv.FormatInt(int64(r.Peer.PID), 10)
	}
	if a := r.AgentReported; a != nil {
		for i, n := range []int64{a.Bill.CPUMillis, a.Bill.MaxMemoryBytes, a.Bill.IOBytes, a.Bill.DurationMillis} {
			row[17+i] = strconv.FormatInt(n, 10)
		}
	}
	for i := range row {
		row[i] = csvCell(row[i])
	}
	return row
}

// csvCell makes a text harmless for spreadsheets, which run what begins like a
// formula, and puts it on one line.
func csvCell(s string) string {
	s = line(s)
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}
