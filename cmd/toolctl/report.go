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
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

// ciReport is the directory that run --report leaves for a CI job. What it needs of the
// session is fetched before that ends, and its own files are written when it has, each by a
// rename, result.json last: a directory without that is no report. Nothing of the tree is
// run or obeyed for it, and nothing is followed.
type ciReport struct {
	dir      string // "" = none is wanted; once it is open an absolute path
	patterns []string

	log    boundedLog
	show   func(c *client.Call) // puts a call into the log; nil where that is the command's output
	result jobResult
	cases  []junitCase
	names  map[string]int // how many cases had a name
	opened bool
	beside *beside // what changes.patch lacks; nil for nothing
	source string  // of the worktree
	failed int     // toolctl exits with it where the report is not whole; 0 = exitRunFailed
}

// Bounds of a report.
const (
	maxReportCalls = 1000
	maxReportPatch = 1 << 30 // bytes; a patch that is cut is none
)

func (p *ciReport) register(c *cobra.Command) {
	c.Flags().StringVar(&p.dir, "report", "", "leave a report for CI in this `directory`, which is made, or is empty: result.json, junit.xml, log.txt, summary.md, changes.patch, artifacts")
	c.Flags().StringArrayVar(&p.patterns, "artifact", nil, "with --report: copy the files of the worktree that this `pattern` matches, such as 'reports/**' (repeatable)")
	_ = c.MarkFlagDirname("report")
}

func (p *ciReport) wanted() bool { return p.dir != "" }

// open makes the directory, before anything runs. Errors are of usage.
func (p *ciReport) open(w client.Worktree) error {
	if !p.wanted() {
		if len(p.patterns) > 0 {
			return usagef("--artifact needs a --report DIR to put the files in")
		}
		return nil
	}
	if err := checkPatterns(p.patterns); err != nil {
		return err
	}
	p.result = jobResult{Version: 1, Started: time.Now().UTC(), Network: "none"}
	p.result.Log.File, p.names = "log.txt", make(map[string]int)
	p.result.Patch.Absent = "there was no session"
	abs, err := filepath.Abs(p.dir)
	if err != nil {
		return usagef("--report: %w", err)
	}
	p.dir = abs
	if err := p.apart(w); err != nil {
		return err
	}
	if err := os.Mkdir(p.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return usagef("--report: %w", err)
	}
	there, err := os.ReadDir(p.dir)
	switch {
	case err != nil:
		return usagef("--report: %w", err)
	case len(there) > 0:
		return usagef("--report %s is not empty: name a new directory, so that no file of an earlier job is taken for one of this", line(p.dir))
	}
	if err := writable(p.dir); err != nil {
		return usagef("--report: %w", err)
	}
	p.opened = true
	return nil
}

// apart refuses a directory that the session may write.
func (p *ciReport) apart(w client.Worktree) error {
	if p.wanted() && w.Source != "" && w.Mode != client.WorktreeRO && below(p.dir, w.Source) {
		return usagef("--report %s is in the worktree, which the command may write: name a directory that is not, and move it when toolctl has ended", line(p.dir))
	}
	return nil
}

// below reports whether a path is in a directory, by whatever names: a directory on the
// way up from where it leads is the same one.
func below(name, dir string) bool {
	top, err := os.Stat(dir)
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	} else if parent, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil {
		name = filepath.Join(parent, filepath.Base(name))
	}
	for {
		if info, err := os.Stat(name); err == nil && os.SameFile(info, top) {
			return true
		}
		up := filepath.Dir(name)
		if up == name {
			return false
		}
		name = up
	}
}

// miss notes what the report should have and has not.
func (p *ciReport) miss(what string, err error) {
	p.result.Missing = append(p.result.Missing, what+": "+lines(err.Error()))
}

// tee has what a command prints in the log as well.
func (p *ciReport) tee(f *follower) *follower {
	if !p.wanted() {
		return f
	}
	out := &teed{f.stdout, &p.log}
	if f.stderr == f.stdout {
		f.stdout, f.stderr = out, out
	} else {
		f.stdout, f.stderr = out, &teed{f.stderr, &p.log}
	}
	return f
}

// teed writes to the log what it writes elsewhere.
type teed struct {
	flushWriter

	log *boundedLog
}

// Write implements io.Writer. What cannot be shown is in the log all the same.
func (t *teed) Write(b []byte) (int, error) {
	_, _ = t.log.Write(b) // it cannot fail
	return t.flushWriter.Write(b)
}

// fetchCalls takes down the calls that there are when the command has ended. final is that
// of the command, nil where its end is not known.
func (p *ciReport) fetchCalls(ctx context.Context, c *client.Client, s *client.Session, final *client.Call) {
	if !p.wanted() {
		return
	}
	ctx, cancel := stillGoing(ctx)
	defer cancel()
	seen := false
	for q := (client.CallQuery{Limit: 100}); ; {
		page, err := c.ListCalls(ctx, s.ID, q)
		if err != nil {
			p.miss("calls", err)
			break
		}
		for i := range page.Items {
			x := &page.Items[i]
			if final != nil && x.ID == final.ID {
				x, seen = final, true // a record may be a moment late
			}
			p.addCall(x)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if final != nil && !seen {
		p.addCall(final)
	}
}

// stillGoing is for work that is done also after an interruption, in bounded time.
func stillGoing(ctx context.Context) (context.Context, context.CancelFunc) {
	if interruption(ctx) == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
}

// fetchTree fetches what is in the worktree, while the changes are still apart from the
// source. name is what other commands call the session, "" where none can ask for it.
func (p *ciReport) fetchTree(ctx context.Context, c *client.Client, s *client.Session, name string) {
	if !p.wanted() {
		return
	}
	ctx, cancel := stillGoing(ctx)
	defer cancel()
	p.result.Patch.Absent = ""
	awaitOver(ctx, c, s.ID)
	if s.Network.Mode == client.NetworkRules {
		n, err := c.SessionNetwork(ctx, s.ID)
		if err != nil {
			p.miss("hosts", err)
		} else {
			p.result.Hosts = &resultHosts{Items: n.Hosts[:min(len(n.Hosts), maxReportCalls)], LeftOut: n.LeftOut}
			for _, h := range n.Hosts[len(p.result.Hosts.Items):] {
				p.result.Hosts.LeftOut += h.Count
			}
		}
	}
	if s.Worktree.Mode != client.WorktreeOverlay {
		p.result.Patch.Absent = "in the mode " + string(s.Worktree.Mode) + " no changes are apart from the worktree"
	} else if err := p.fetchPatch(ctx, c, s, name); err != nil {
		p.result.Patch.Absent = "it could not be fetched"
		p.miss("changes.patch", err)
	}
	if len(p.patterns) > 0 {
		p.fetchArtifacts(ctx, c, s.ID)
	}
}

// awaitOver waits for the end of a session that is just ending, for its budget or by somebody
// else: its changes can be read again then.
func awaitOver(ctx context.Context, c *client.Client, session string) {
	for {
		s, err := c.GetSession(ctx, session)
		if err != nil || s.State != client.SessionEnding {
			return // whoever reads says what is wrong
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

func (p *ciReport) fetchPatch(ctx context.Context, c *client.Client, s *client.Session, name string) error {
	r, err := patchOf(ctx, c, s.ID)
	if err != nil {
		return err
	}
	defer r.Close()
	in := &io.LimitedReader{R: r, N: maxReportPatch + 1}
	file := filepath.Join(p.dir, "changes.patch")
	if err := replaceFile(file, tooLong{in}); err != nil {
		return err
	}
	p.result.Patch = resultPatch{File: "changes.patch", Bytes: maxReportPatch + 1 - in.N}
	p.result.Changes.Stale = p.result.Changes.Stale || r.Stale() > 0
	p.result.Patch.LeftOut, p.result.Patch.Unreadable = r.Missing()
	if err := badPatch("it", name, r); err != nil {
		p.miss("changes.patch", err)
	}
	if whole(r) {
		return nil
	}
	p.source = s.Worktree.Source
	if p.beside, err = saveBeside(ctx, c, s.ID, r, file); err != nil {
		p.miss("changes.patch", err)
	} else if b := p.beside; b.dir != "" {
		p.result.Patch.Beside, p.result.Patch.BesideFiles, p.result.Patch.BesideBytes = filepath.Base(b.dir), len(b.saved), b.bytes
	}
	return nil
}

// tooLong fails where a reader gives all that it may.
type tooLong struct{ *io.LimitedReader }

func (t tooLong) Read(b []byte) (int, error) {
	n, err := t.LimitedReader.Read(b)
	if t.N == 0 {
		return n, fmt.Errorf("it has more than %s", bytesShort(maxReportPatch))
	}
	return n, err
}

// finishReport writes the files, and gives what toolctl ends with: err, unless the report
// is not whole.
func (r *runCommand) finishReport(ctx context.Context, argv []string, err error) error {
	p := &r.ci
	if !p.opened {
		return err
	}
	if a := p.result.Artifacts; a != nil && len(a.Unmatched) > 0 && !r.quiet {
		r.say("no file matches --artifact %s", line(strings.Join(a.Unmatched, ", ")))
	}
	if p.beside != nil {
		p.beside.say(r.app, p.source)
	}
	if lost := p.beside.failure(r.report.Applied); lost != nil {
		p.miss("changes.patch", lost)
	}
	err = r.missed(ctx, err)
	r.sumUp(err)
	if len(p.cases) == 0 && argv != nil {
		p.cases = []junitCase{neverRan(shellQuote(argv), &p.result)}
	}
	for _, f := range []struct {
		name  string
		write func(w io.Writer) error
	}{
		{p.result.Log.File, p.log.writeTo},
		{"summary.md", func(w io.Writer) error { return writeSummary(w, &p.result) }},
		{"junit.xml", func(w io.Writer) error { return writeJUnit(w, p.cases, p.result.Started) }},
		{"result.json", func(w io.Writer) error { return printJSON(w, &p.result) }},
	} {
		var b bytes.Buffer
		werr := f.write(&b)
		if werr == nil {
			werr = replaceFile(filepath.Join(p.dir, f.name), &b)
		}
		if werr != nil {
			if err != nil {
				r.complain(err)
			}
			return &exitError{cmp.Or(p.failed, exitRunFailed), fmt.Errorf("--report: write %s: %w", f.name, werr)}
		}
	}
	return err
}

// missed says what the report lacks, which is a failure of toolctl's own where there was
// none.
func (r *runCommand) missed(ctx context.Context, err error) error {
	if len(r.ci.result.Missing) == 0 {
		return err
	}
	r.say("the report in %s is not whole: %s", line(r.ci.dir), strings.Join(r.ci.result.Missing, "; "))
	if stopped := interruption(ctx); stopped != nil {
		return stopped
	}
	if code := exitCode(err); code == exitRunDenied || code == exitRunFailed || err != nil && r.ci.failed != 0 {
		return err
	}
	return exit(cmp.Or(r.ci.failed, exitRunFailed))
}

// takeDown takes down a session of agents, as far as it has come. Errors are of usage, or of the
// directory.
func (r *runCommand) takeDown(ctx context.Context, c *client.Client, s *client.Session) error {
	p := &r.ci
	if !p.wanted() {
		return nil
	}
	if !p.opened { // else that was done before there was a session
		if err := p.open(s.Worktree); err != nil {
			return err
		}
	}
	r.report.Session, p.failed = s, exitFailed
	logs := &sessionLogsCommand{app: &app{format: formatTable}}
	p.show = func(c *client.Call) { logs.log(&p.log, []client.Call{*c}) }
	p.fetchCalls(ctx, c, s, nil)
	p.fetchTree(ctx, c, s, r.nameOf(s))
	if s.Worktree.Mode != client.WorktreeOverlay {
		return nil
	}
	ctx, cancel := stillGoing(ctx)
	defer cancel()
	list, err := changesOf(ctx, c, s.ID)
	if err != nil {
		p.miss("changes", fmt.Errorf("list them: %w", err))
	}
	r.report.Diff = list
	return nil
}
