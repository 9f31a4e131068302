package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/config"
)

func newAuditCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Check, show and export the audit log",
		Long: `The audit log records each decision about a call and the end of each call, as one
JSON object per line. The records are chained by hashes. These commands read the
files of the log. They need no daemon, but usually root.`,
		Example: `  toolctl audit verify
  toolctl audit tail --follow
  toolctl audit export --since 24h -o csv > yesterday.csv`,
	}
	c.AddCommand(newAuditVerifyCommand(a), newAuditExportCommand(a), newAuditTailCommand(a))
	return c
}

// auditLog is the log that a command line names.
type auditLog struct {
	*app
	config string // the configuration that says where the log is
	said   bool
}

func (l *auditLog) flags(c *cobra.Command) {
	c.Flags().StringVar(&l.config, "config", "", "the configuration that names the log (default that of the running daemon, else "+config.DefaultPath+")")
}

// files lists the log's files, oldest first; whole says that these are all. args may name one.
func (l *auditLog) files(args []string) (files []string, whole bool, err error) {
	if len(args) > 0 {
		files, whole, err = record.Log(args[0])
	} else {
		files, err = l.configured()
		whole = true
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: only root can read the audit log", err)
	}
	return files, whole, err
}

func (l *auditLog) configured() ([]string, error) {
	path, err := l.path()
	if err != nil {
		return nil, err
	}
	if !l.said {
		l.said = true
		l.say("the log is %s", line(path))
	}
	files, err := record.Files(path)
	if err == nil && len(files) == 0 {
		err = &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: name the log's file or directory, or the daemon's configuration with --config", err)
	}
	return files, err
}

// path is the log of the configuration that was named, else of the daemon that listens at the socket,
// else of the file that a daemon reads by default.
func (l *auditLog) path() (string, error) {
	if l.config == "" {
		ctx, cancel := context.WithTimeout(context.Background(), liveTime)
		defer cancel()
		if text, err := l.client().Config(ctx); err == nil {
			live := config.Default()
			if err := toml.Unmarshal(text, live); err == nil {
				return live.AuditPath(), nil
			}
		}
	}
	cfg, err := config.Load(l.config)
	if err != nil {
		return "", err
	}
	return cfg.AuditPath(), nil
}

// liveTime is how long a daemon may take to say where its log is.
const liveTime = 3 * time.Second

// current is the file that a daemon writes to, among those of the log.
func current(files []string) string { return files[len(files)-1] }

type auditVerifyCommand struct {
	*app
	log     auditLog
	partial bool
	expect  string
}

func newAuditVerifyCommand(a *app) *cobra.Command {
	s := &auditVerifyCommand{app: a, log: auditLog{app: a}}
	c := &cobra.Command{
		Use:   "verify [FILE | DIR]",
		Short: "Check that nothing in the audit log was changed or removed",
		Long: `Check every record of the audit log and the chain of hashes, and report the first
record that was changed, removed, reordered, repeated or truncated. Without an
argument it checks the log of the daemon that listens at the socket, else the one
that the configuration names, with its older files, and says which that is. A
directory means the log audit.jsonl in it; a file means that file alone.

Someone who can write the files can cut off the end or rewrite the whole log, and
the chain still holds. To detect that, keep the last hash that this command prints
(or the one in the daemon's own log) in another place, and pass it with --expect.
Exits with 1 when the log is broken.`,
		Example: "  toolctl audit verify\n  toolctl audit verify --expect 0f3c…\n  toolctl audit verify ./saved/audit.00000000000000000001.jsonl",
		RunE:    func(_ *cobra.Command, args []string) error { return s.run(args) },
	}
	s.log.flags(c)
	c.Flags().BoolVar(&s.partial, "partial", false, "begin with the first record that is there: older files may have been moved away")
	c.Flags().StringVar(&s.expect, "expect", "", "the hash of a record that must be there")
	return c
}

// lineSettle is how long a line without an end is given to get one: a daemon may be
// writing it.
const lineSettle = 200 * time.Millisecond

func (s *auditVerifyCommand) run(args []string) error {
	if s.expect != "" && len(s.expect) != len(record.Genesis) {
		return usagef("--expect %q is not a hash of %d digits", line(s.expect), len(record.Genesis))
	}
	progress := s.progress("checking")
	sum, err := s.verify(args)
	if err == nil && sum.Break != nil && sum.Break.Kind == record.BreakTruncated || errors.Is(err, fs.ErrNotExist) && len(args) == 0 {
		time.Sleep(lineSettle) // a daemon may have been writing a line, or beginning another file
		sum, err = s.verify(args)
	}
	progress.stop()
	if err != nil {
		return err
	}
	err = s.print(view{data: sum, names: []string{sum.Hash}, text: func(w io.Writer) { printAuditSummary(w, sum) }})
	if err == nil && sum.Break != nil {
		err = fmt.Errorf("the audit log is broken: %w", sum.Break)
	}
	return err
}

func (s *auditVerifyCommand) verify(args []string) (*record.Summary, error) {
	files, whole, err := s.log.files(args)
	if err != nil {
		return nil, err
	}
	return record.Verify(files, record.Options{Whole: whole && !s.partial, Expect: s.expect})
}

func printAuditSummary(w io.Writer, sum *record.Summary) {
	state := "ok"
	if sum.Break != nil {
		state = "broken; good up to there"
	}
	if sum.Records == 0 {
		fmt.Fprintf(w, "%s: no records in %s\n", state, plural(sum.Files, "file"))
		return
	}
	fmt.Fprintf(w, "%s: %s in %s, %d to %d\nlast hash: %s\n", state, plural(int(sum.Records), "record"), plural(sum.Files, "file"), sum.First, sum.Last, sum.Hash)
	if sum.Torn > 0 {
		fmt.Fprintf(w, "%s: the daemon or the machine died while writing, and the log says so itself\n", plural(int(sum.Torn), "torn line"))
	}
	if sum.Tampered > 0 {
		fmt.Fprintf(w, "%s of the files by others: records that toold had written may be missing, and the log says so itself\n", plural(int(sum.Tampered), "change"))
	}
	if sum.Gaps > 0 {
		fmt.Fprintf(w, "%s: the log could not be written for a time, and says so itself\n", plural(int(sum.Gaps), "gap"))
	}
}
