package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

const runLong = `Run one command in a new session, and end the session.

The command's words reach the sandbox exactly as they are given here; for a
shell line, run a shell: -- bash -c 'a | b'. With -i the command reads the standard
input of toolctl; without -i it has no input, and toolctl exits with 125 if there
was some. Its output is shown while it runs. Then standard error shows what it
changed in a git worktree (git status, run inside the sandbox), unless -q is given.
A warning is shown, even with -q, when it changed files that programs of the host
run or obey on sight: those of git, editors, direnv and CI.

With --mode overlay the worktree is not written. The command's changes are kept beside
it, are shown when it ends, and one key applies them, shows them, saves them as a patch
or drops them. --apply, --discard and --patch say that beforehand; --apply --merge merges
files that have changed in the source too. The daemon keeps
changes with which nothing was done for some time (toolctl diff, apply, discard); a
private one cannot, so it wants to know beforehand where no terminal is. What a patch
cannot have is saved whole beside it, in FILE.files: files that somebody has changed in
the source meanwhile, and those of more than 512 MiB, up to 1 GiB together. If something
could be saved nowhere, toolctl names it and exits with 125.

With --report DIR a CI job gets one directory, however the command ends: result.json
(how it ended, what it used, every call, what has changed), junit.xml (a case for each
call), log.txt (the output, both ends of a long one), changes.patch (--mode overlay, with
changes.patch.files/ for what it cannot have) and artifacts/ (what --artifact names). DIR is new or empty, and not in a worktree that the
command may write. result.json comes last. If a part is missing, result.json says which,
and toolctl exits with 125.

With -o json or -o yaml, standard output gets one document at the end: the exit
code, the call, the session, the git status of the worktree, or the error. The
command's output is in the call, and on standard error while it runs, unless -q is
given.

If no daemon listens and none was named with --socket or TOOLD_SOCKET, a private
one runs for as long as the command. When one of its rules says "ask", toolctl asks
at the terminal; without a terminal the call is denied, unless --yes is given. The
private daemon reads /etc/toold/config.toml, if that exists, and settings in TOOLD_
variables (TOOLD_LIMITS_MEMORY=8GiB, TOOLD_SANDBOX_RUNTIME=runsc); --limit and
--mount may use all that the host has.

toolctl exits with the command's code: 124 after a timeout, 125 when toold itself
failed, 126 when the command was denied, 128+n when signal n ended it. Ctrl-C
stops the command and ends the session; a second one does not wait.`

const runExample = `  toolctl run -- echo hello
  toolctl run --worktree . -- go test ./...
  echo 'make test' | toolctl run --worktree . -i -- bash
  toolctl run --worktree . --mode ro -- bash -c 'grep -r TODO . | wc -l'
  toolctl run --worktree . --mode overlay --patch fix.patch -- make fix
  toolctl run --worktree . --report /tmp/r --artifact 'out/**' -- make test
  toolctl run --limit memory=256MiB --timeout 10s -- python3 job.py
  toolctl run -q -o json --worktree . --label job=42 -- make | jq .exit_code`

// endTimeout bounds ending a session: aborting its calls takes 3 s, and a worktree that
// was copied elsewhere has four minutes to come back.
const endTimeout = 5 * time.Minute

type runCommand struct {
	*app
	session sessionFlags
	command bashFlags
	tree    treeEnd
	name    string
	labels  []string
	quiet   bool
	keep    bool
	yes     bool
	pass    bool    // standard input
	patched bool    // the file of --patch has the changes
	beside  *beside // what a patch lacks, once it was saved
	report  runReport
	ci      ciReport
}

// runReport is what -o json prints of a run; its JSON names are stable.
type runReport struct {
	ExitCode int             `json:"exit_code"` // of toolctl
	Error    *reportedError  `json:"error,omitempty"`
	Call     *client.Call    `json:"call,omitempty"`
	Session  *client.Session `json:"session,omitempty"` // as it ended, where it did
	// Changes are what git says of the worktree.
	Changes string `json:"changes,omitempty"`
	// Diff is what has changed in a worktree whose changes are kept beside the source, its
	// first thousand paths; Applied what of it was written there.
	Diff    *client.Changes `json:"diff,omitempty"`
	Applied *client.Applied `json:"applied,omitempty"`
}

// reportedError is an answer of the daemon's, or what went wrong without one.
type reportedError client.Error

func newRunCommand(a *app) *cobra.Command {
	r := &runCommand{app: a}
	c := &cobra.Command{
		Use:     "run [flags] -- COMMAND [ARGUMENT...]",
		Short:   "Run one command in a new session",
		Long:    runLong,
		Example: runExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("no command: write it after --, as in \"toolctl run -- echo hello\"")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return r.run(c.Context(), args) },
	}
	c.Flags().SetInterspersed(false) // everything after the first word is the command's
	r.session.register(a, c)
	r.command.register(c)
	r.tree.register(c)
	r.ci.register(c)
	c.Flags().BoolVarP(&r.pass, "stdin", "i", false, "give standard input to the command: text, up to 1 MiB")
	c.Flags().BoolVar(&r.yes, "yes", false, "answer yes when a rule asks, if you may")
	c.Flags().BoolVar(&r.keep, "keep", false, "leave the session running")
	c.Flags().StringVar(&r.name, "name", "", "name of the session")
	c.Flags().StringArrayVar(&r.labels, "label", nil, "label `K=V` of the session (repeatable)")
	c.Flags().BoolVarP(&r.quiet, "quiet", "q", false, "show only the command's output, warnings and errors")
	return c
}

func (r *runCommand) run(ctx context.Context, argv []string) error {
	session, call, err := r.requests(argv)
	if err != nil {
		return err
	}
	err = r.finishReport(ctx, argv, r.perform(ctx, session, call))
	if r.format == formatTable {
		return err
	}
	if perr := r.printReport(err); perr != nil {
		return commandFailure(perr)
	}
	return err
}

func (r *runCommand) perform(ctx context.Context, session client.SessionCreate, call client.CallCreate) error {
	var err error
	if call.Input, err = r.given(ctx, r.pass, call.Input); err != nil {
		return commandFailure(err)
	}
	c, stop, err := r.connect(ctx)
	if err != nil {
		return commandFailure(err)
	}
	defer stop()
	return r.inSession(ctx, c, session, call)
}

// printReport prints how it ended, also where nothing has run.
func (r *runCommand) printReport(err error) error {
	r.report.ExitCode, r.report.Error = exitCode(err), errorOf(err)
	return r.print(view{data: r.report})
}

// progress is silent with -q.
func (r *runCommand) progress(what string) *progress {
	if r.quiet {
		return newProgress(what)
	}
	return r.app.progress(what)
}

// follower shows the command's output: where standard output has the report, on
// standard error.
func (r *runCommand) follower(c *client.Client) *follower {
	switch {
	case r.format == formatTable:
		return r.ci.tee(r.outputs(c))
	case r.quiet && r.ci.wanted():
		nowhere := sandboxOut(io.Discard, false)
		return r.ci.tee(&follower{client: c, stdout: nowhere, stderr: nowhere})
	case r.quiet:
		return &follower{client: c, onEvent: func(client.Event) error { return nil }}
	}
	all := sandboxOut(r.stderr, r.errTTY)
	return r.ci.tee(&follower{client: c, stdout: all, stderr: all})
}

// requests turns the flags and the command into what the API takes.
func (r *runCommand) requests(argv []string) (client.SessionCreate, client.CallCreate, error) {
	if r.format == formatName {
		return client.SessionCreate{}, client.CallCreate{}, usagef("run prints what the command prints, or how it ended with -o json or -o yaml: leave -o name out")
	}
	session, err := r.session.request(r.app, r.tree.given())
	if err == nil {
		err = r.tree.check(session.Worktree.Mode)
	}
	if err != nil {
		return session, client.CallCreate{}, err
	}
	if session.Labels, err = parseLabels(r.labels); err != nil {
		return session, client.CallCreate{}, err
	}
	session.Name = r.name
	if !r.keep {
		session.LeasePID = os.Getpid()
	}
	call, err := r.command.call(r.app, argv)
	if err == nil {
		err = r.tree.open()
	}
	if err == nil {
		err = r.ci.open(session.Worktree)
	}
	return session, call, err
}

// connect finds the daemon, or starts a private one.
func (r *runCommand) connect(ctx context.Context) (c *client.Client, stop func(), err error) {
	c, stop, err = r.reach(ctx, func() error {
		switch {
		case r.session.image != "":
			return fmt.Errorf("no toold listens at %s, and only a daemon has images: start one, then run: toolctl image pull %s", r.socketPath(), r.session.image)
		case r.session.mode == string(client.WorktreeOverlay) && !r.decides() && !r.ci.wanted():
			return usagef("no toold listens at %s, and one that ends with the command keeps no changes: add --apply, --discard, --patch FILE or --report DIR", r.socketPath())
		}
		return nil
	})
	if r.private && r.keep {
		r.say("--keep has no effect: the session ends with the private daemon")
		r.keep = false
	}
	return c, stop, err
}

func (r *runCommand) inSession(ctx context.Context, c *client.Client, req client.SessionCreate, call client.CallCreate) error {
	if r.private {
		fromHost(req.Caches, r.session.caches, r.getenv) // a daemon that ends with the command keeps nothing of its own
	}
	s, err := r.session.create(ctx, r.app, c, req, !r.private || r.decides() || r.ci.wanted())
	if err != nil {
		return commandFailure(err)
	}
	r.report.Session = s
	if !r.quiet {
		tellNotes(r.app, s, r.private)
	}
	if err := r.tree.check(s.Worktree.Mode); err != nil {
		r.end(ctx, c, s)
		return err
	}
	err = r.call(ctx, c, s, call)
	r.ci.fetchTree(ctx, c, s, r.nameOf(s))
	if s.Worktree.Mode == client.WorktreeOverlay {
		err = r.settle(ctx, c, s, err)
	}
	r.end(ctx, c, s)
	return commandFailure(err)
}

// call runs the command, and tells what it has changed in the source itself.
func (r *runCommand) call(ctx context.Context, c *client.Client, s *client.Session, call client.CallCreate) error {
	longest := longestCall(s).Milliseconds()
	if call.TimeoutMillis == 0 {
		call.TimeoutMillis = longest // not the default of a call by an agent, which is short
	}
	f := r.follower(c)
	k := &asker{app: r.app, client: c, giveUp: "Ctrl-C aborts the call", yes: r.yes}
	defer k.stop()
	f.approval = k.event
	final, err := f.run(ctx, s.ID, call)
	r.ci.fetchCalls(ctx, c, s, final)
	if err != nil {
		return err
	}
	r.report.Call = final
	sayRemarks(r.app, final)
	err = r.notGiven(ctx, r.pass, commandResult(ctx, final))
	apart := s.Worktree.Mode == client.WorktreeOverlay
	if r.session.worktree != "" && !apart && interruption(ctx) == nil && (!r.quiet || r.format != formatTable || r.ci.wanted()) {
		r.report.Changes = changes(ctx, c, s.ID, min(longest, 20_000))
	}
	if !r.quiet {
		showChanges(r.app, r.report.Changes)
	}
	return err
}

// end ends the session also when ctx has ended.
func (r *runCommand) end(ctx context.Context, c *client.Client, s *client.Session) {
	if r.keep && r.quiet {
		return
	}
	if r.keep {
		r.say("session %s stays; end it with \"toolctl session rm %s\"", line(s.ID), line(s.ID))
		return
	}
	progress := r.progress("ending the session")
	defer progress.stop()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	ended, err := c.EndSession(end, s.ID, client.EndOptions{Force: interruption(ctx) != nil})
	if err != nil {
		r.say("end session %s: %s", line(s.ID), lines(err.Error()))
		return
	}
	r.report.Session = ended
	sayNew(r.app, s, ended)
	warnSensitive(r.app, ended)
}
