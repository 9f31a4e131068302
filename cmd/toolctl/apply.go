package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

const applyLong = `Write the changes of a session to its source, the directory that its worktree was
made of. Paths are relative to the worktree, and stand for all that is below them.

If a file has changed in the source since the session began, nothing is written,
and the files are named: the first on stderr, and all, up to 1000, as violations of
-o json. --force overwrites them, and says which those were: look
first with --force --dry-run. It removes nothing that came into the source since the
session began, and never replaces a directory of such files.

--merge merges changed files by lines, and refuses those where both sides have
changed the same lines. It needs each file as it was when the session began. toold
keeps that of the files that a call wrote, at its end, and what the apply of another
session replaces: up to 4 MiB each. With --dry-run it says what it would merge.

Files that programs of the host run or obey on sight (those of git, editors, direnv
and CI) are left out and named. Look at them, then add --include-sensitive.

A session that is over keeps what was not applied. One that goes on has the files of
the source, and what was merged.`

type applyCommand struct {
	*app
	req client.ApplyRequest
}

func newApplyCommand(a *app) *cobra.Command {
	s := &applyCommand{app: a}
	c := &cobra.Command{
		Use:   "apply SESSION [PATH...]",
		Short: "Write what a session has changed to its source",
		Long:  applyLong,
		Example: `  toolctl apply review --dry-run
  toolctl apply review
  toolctl apply review src --exclude '*.log'
  toolctl apply review --include-sensitive .github`,
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return s.run(c.Context(), args) },
	}
	f := c.Flags()
	f.BoolVar(&s.req.DryRun, "dry-run", false, "show what would be written, and write nothing")
	f.BoolVar(&s.req.Force, "force", false, "overwrite what has changed in the source")
	f.BoolVar(&s.req.Merge, "merge", false, "merge with what has changed in the source, by whomever, file by file")
	f.StringArrayVar(&s.req.Exclude, "exclude", nil, "leave out what this `pattern`, as in .gitignore, matches (repeatable)")
	f.BoolVar(&s.req.IncludeSensitive, "include-sensitive", false, "also write files that programs of the host run or obey on sight")
	return c
}

func (s *applyCommand) run(ctx context.Context, args []string) error {
	if s.req.Force && s.req.Merge {
		return usagef("--force overwrites what has changed in the source, --merge keeps it: leave one of them out")
	}
	var err error
	if s.req.Paths, err = treePaths(args[1:]); err != nil {
		return err
	}
	c := s.client()
	progress := s.progress("applying")
	var done *client.Applied
	var asked string
	err = s.withSession(ctx, c, args[0], func(session string) (err error) {
		asked = session
		done, err = c.Apply(ctx, session, s.req)
		return err
	})
	progress.stop()
	if err == nil {
		sayEarlier(s.app, done.Earlier)
	}
	finished := err == nil && done.Earlier != "" && len(s.req.Paths) == 0 // which is why nothing differs
	if err == nil && !finished && done.WrittenCount+done.RemovedCount+done.SensitiveCount+done.SkippedCount+done.KeptCount+len(s.req.Exclude) == 0 {
		err = s.nothingAt(ctx, c, asked, s.req.Paths)
	}
	if errors.Is(err, client.ErrDisconnected) {
		return &cutOffError{err, "apply again when toold runs: what was cut off is finished or taken back first, and said"}
	}
	if err != nil {
		return s.refused(err)
	}
	names := append(append([]string{}, done.Written...), done.Removed...)
	if err := s.print(view{data: done, names: names, text: func(w io.Writer) { writeApplied(w, done) }}); err != nil {
		return err
	}
	sayApplied(s.app, args[0], done)
	return nil
}

// refused is err, whose answer names all that is in the way. Programs read it where they read what was written.
func (s *applyCommand) refused(err error) error {
	answer, ok := errors.AsType[*client.Error](err)
	if !ok || len(answer.Violations) == 0 || s.format != formatJSON && s.format != formatYAML {
		return err
	}
	return errors.Join(err, s.print(view{data: answer}))
}

// writeApplied lists what was written, with the sum as its last line.
func writeApplied(w io.Writer, done *client.Applied) {
	for _, list := range []struct {
		what  string
		paths []string
	}{{"written", done.Written}, {"merged ", done.Merged}, {"removed", done.Removed}} {
		for _, p := range list.paths {
			fmt.Fprintf(w, "%s  %s\n", list.what, line(p))
		}
	}
	fmt.Fprintln(w, appliedSum(done))
}

func appliedSum(done *client.Applied) string {
	if done.WrittenCount+done.RemovedCount == 0 {
		return "nothing to write to the source"
	}
	verb := "written to the source"
	if done.DryRun {
		verb = "would be " + verb
	}
	text := plural(done.WrittenCount, "path") + " " + verb
	if done.RemovedCount > 0 {
		text += fmt.Sprintf(", %d removed there", done.RemovedCount)
	}
	return text
}

// maxNamed is how many paths a warning names.
const maxNamed = 20

// sayApplied says what was left out, and what to look at. What is named here decides
// whether somebody looks, so it is said with every output format. Commands are shown for
// the session, "" for none.
func sayApplied(a *app, session string, done *client.Applied) {
	if done.SensitiveCount > 0 {
		a.say("left out: programs of the host run or obey these on sight; look at them first")
		sayPaths(a, done.Sensitive, done.SensitiveCount)
		if session != "" {
			a.say("  toolctl diff %s %s", line(session), namedPaths(done.Sensitive))
			a.say("  toolctl apply %s --include-sensitive %s", line(session), namedPaths(done.Sensitive))
		}
	}
	sayBuild(a, done.Build)
	if done.OverwrittenCount > 0 {
		what := "overwritten: somebody had changed these in the source since the session began"
		if done.DryRun {
			what = "would be overwritten: somebody has changed these in the source since the session began"
		}
		a.say("%s", what)
		sayPaths(a, done.Overwritten, done.OverwrittenCount)
	}
	if done.KeptCount > 0 {
		a.say("not removed: these came into the source since the session began; remove them yourself if they are to go")
		sayPaths(a, done.Kept, done.KeptCount)
	}
	if done.SkippedCount > 0 {
		a.say("left out: these cannot be copied to the source")
		sayPaths(a, skippedNames(done), done.SkippedCount)
	}
	if done.AttributesLeft > 0 {
		a.say("left out: extended attributes (user.*) of %s: the source's file system does not take them, or they are too large", plural(done.AttributesLeft, "file"))
	}
}

// skippedNames are the paths that were left out, each with what it is.
func skippedNames(done *client.Applied) (names []string) {
	for _, p := range done.Skipped {
		switch kind := done.SkippedKinds[p]; kind {
		case "":
		case "source_special":
			p += " (a FIFO, socket or device of the source, or with one in it)"
		default:
			p += " (" + kind + ")"
		}
		names = append(names, p)
	}
	return names
}

func sayBuild(a *app, paths []string) {
	if len(paths) > 0 {
		a.say("look at these before you build; their commands run then")
		sayPaths(a, paths, len(paths))
	}
}

func sayPaths(a *app, paths []string, count int) {
	shown := paths[:min(len(paths), maxNamed)]
	for _, p := range shown {
		a.say("  %s", line(p))
	}
	if more := count - len(shown); more > 0 {
		a.say("  and %d more", more)
	}
}

// namedPaths are paths as words of a command, where they are few and plain.
func namedPaths(paths []string) string {
	if len(paths) > 3 || strings.ContainsAny(strings.Join(paths, ""), `"\`) {
		return "PATH..."
	}
	return line(shellQuote(paths))
}
