package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

const diffLong = `Show what a session has changed in a worktree of mode "overlay", whose changes are
kept beside the source: as a patch that "git apply" takes, or with --stat,
--name-status, -o json or -o yaml as a list. Paths are relative to the worktree, and
stand for all that is below them.

--exclude leaves out what a pattern matches, --no-ignored what the .gitignore files of the
worktree ignore: those that the session has, and for files that were there before it also
those that it began with. A .gitignore file itself is never left out for that. How many
changes were left out is said on stderr, and in -o json.

"git apply" refuses a patch with files that .gitattributes gives a filter (as for Git LFS),
another working-tree-encoding or ident: leave them out (--exclude), or use "toolctl apply".

A change is told against what the session began with. Where somebody has changed the
source meanwhile and that is not known any more, the change is named and left out of
the patch, and toolctl exits with 125.

On a terminal the patch has colours and goes through $PAGER (default: less), and
characters that act on terminals are spelled out. A file or a pipe gets exactly the
patch.`

// maxPathQuery is how long all paths may be together, in bytes of a URL: what the daemon
// takes of a header, less some room.
const maxPathQuery = 12 << 10

type diffCommand struct {
	*app
	against          string
	exclude          []string
	stat, nameStatus bool
	noIgnored        bool
}

func newDiffCommand(a *app) *cobra.Command {
	d := &diffCommand{app: a}
	c := &cobra.Command{
		Use:   "diff SESSION [PATH...]",
		Short: "Show what a session has changed",
		Long:  diffLong,
		Example: `  toolctl diff review
  toolctl diff review --stat src
  toolctl diff review > review.patch
  toolctl diff review --no-ignored --exclude '*.log'
  toolctl diff review --against before-tests --name-status`,
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return d.run(c.Context(), args) },
	}
	f := c.Flags()
	f.BoolVar(&d.stat, "stat", false, "show how many lines have changed in each file")
	f.BoolVar(&d.nameStatus, "name-status", false, "show a letter for each path: A added, M modified, D deleted, T of another type")
	f.StringArrayVar(&d.exclude, "exclude", nil, "leave out what this `pattern`, as in .gitignore, matches (repeatable)")
	f.BoolVar(&d.noIgnored, "no-ignored", false, "leave out what the .gitignore files of the worktree ignore")
	f.StringVar(&d.against, "against", "", "compare with this `checkpoint` (default: what the session began with)")
	_ = c.RegisterFlagCompletionFunc("against", always(a.checkpoints))
	return c
}

func (d *diffCommand) run(ctx context.Context, args []string) error {
	paths, err := treePaths(args[1:])
	switch {
	case err != nil:
	case d.stat && d.nameStatus:
		err = usagef("--stat and --name-status are two forms of the list: leave one of them out")
	case len(url.Values{"path": paths, "exclude": d.exclude}.Encode()) > maxPathQuery && len(d.exclude) > 0:
		err = usagef("%s and %s are too many for one question: name directories that they are in", plural(len(paths), "path"), plural(len(d.exclude), "pattern"))
	case len(url.Values{"path": paths}.Encode()) > maxPathQuery:
		err = usagef("%s are too many for one question: name directories that they are in", plural(len(paths), "path"))
	}
	if err != nil {
		return err
	}
	return d.look(ctx, args[0], func(c *client.Client, session string) error {
		return withCheckpoint(ctx, c, session, d.against, func(checkpoint string) error {
			q := client.DiffQuery{Paths: paths, Exclude: d.exclude, NoIgnored: d.noIgnored, Against: checkpoint}
			if d.format == formatTable && !d.stat && !d.nameStatus {
				return d.patch(ctx, c, session, q)
			}
			return d.list(ctx, c, session, q)
		})
	})
}

// treePaths are the paths that a user gave, as they are or as lists quote them, in the form that the API
// has them: none for everything.
func treePaths(args []string) ([]string, error) {
	var paths []string
	for _, arg := range args {
		p := path.Clean(plain.Unquote(arg))
		switch {
		case arg == "" || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../"):
			return nil, usagef("%q is not a path in the worktree: write it relative to the worktree, as \"toolctl diff SESSION --name-status\" does", line(arg))
		case p == ".":
			return nil, nil
		case !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) || p[0] == '"':
			p = strconv.Quote(p) // as the daemon takes what JSON cannot say
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// patch shows a patch, or writes it as it is where no terminal is.
func (a *app) patch(ctx context.Context, c *client.Client, session string, q client.DiffQuery) error {
	r, err := c.Diff(ctx, session, q)
	if err != nil {
		return err
	}
	defer r.Close()
	n := int64(0)
	read := readFunc(func(b []byte) (int, error) {
		k, err := r.Read(b)
		n += int64(k)
		return k, err
	})
	if !a.outTTY {
		_, err = io.Copy(a.stdout, read)
	} else {
		err = a.page(func(w io.Writer) error { return showPatch(w, read, a.color()) })
	}
	if err != nil {
		return err
	}
	sayMissing(a, session, r)
	if r.Stale()+r.Incomplete() == 0 {
		left, unreadable := r.Missing()
		if excluded, ignored := r.Omitted(); n+int64(left+unreadable+excluded+ignored+r.SourceChanged()) == 0 {
			return a.nothingAt(ctx, c, session, q.Paths)
		}
		return nil
	}
	list, err := listChanges(ctx, c, session, q)
	if err != nil {
		return err
	}
	sayStale(a, list)
	return commandFailure(badPatch("the patch", session, r))
}

// readFunc is a reader that is a function.
type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// sayMissing says what is not in a patch that was read to its end. The session is "" where no other
// command can ask for it.
func sayMissing(a *app, session string, p *client.Patch) {
	leftOut, unreadable := p.Missing()
	excluded, ignored := p.Omitted()
	sayAstray(a, p.SourceAstray())
	sayEarlier(a, p.Earlier())
	if leftOut > 0 {
		a.say("not in the patch: %s; git takes nothing of .git, no FIFOs, no files of more than %d MiB, and no permissions but the executable bit", plural(leftOut, "change"), client.MaxPatched>>20)
	}
	sayUnreadable(a, unreadable)
	sayOmitted(a, excluded, ignored)
	if n := p.Converted(); n > 0 {
		lies, with := "they lie", "leave them out (--exclude)"
		if n == 1 {
			lies, with = "it lies", "leave it out (--exclude)"
		}
		if session != "" {
			with += ", or use \"toolctl apply " + line(session) + "\""
		}
		a.say("\"git apply\" may refuse the patch: git stores %s of it otherwise than %s in the source (filter, working-tree-encoding or ident in a .gitattributes): %s", plural(n, "file"), lies, with)
	}
	if n := p.SourceChanged(); n > 0 {
		with := `"git apply --3way"`
		if session != "" {
			with += ` or "toolctl apply --merge"`
		}
		a.say("the source has changed in %s since the session began; the patch goes from what was there then: %s brings both together", plural(n, "file"), with)
	}
	if p.Incomplete() > 0 {
		a.say("the patch lacks files of %s that the session has moved: the source does not have them any more", plain.Count(p.Incomplete(), "directory", "directories"))
	}
}

// saySourceChanged names the changes of files that somebody has changed in the source too.
func saySourceChanged(a *app, list *client.Changes) {
	var names []string
	for i := range list.Items {
		if list.Items[i].SourceChanged {
			names = append(names, changeName(&list.Items[i]))
		}
	}
	if len(names) > 0 {
		a.say("the source has changed in %s since the session began; \"toolctl apply --merge\" brings both together:", plural(len(names), "file"))
		sayPaths(a, names, len(names))
	}
}

// sayStale names the changes that would take somebody's work in the source back, and directories
// that lost files there.
func sayStale(a *app, list *client.Changes) {
	var names []string
	for i := range list.Items {
		if list.Items[i].Stale {
			name := changeName(&list.Items[i])
			if list.Items[i].Kind == "" {
				name += " (removed in the session)"
			}
			names = append(names, name)
		}
	}
	if list.Stale > 0 {
		a.say("the source has changed here since the session began, and what was there then is not known; a patch leaves these changes out:")
		sayPaths(a, names[:min(len(names), maxChangeLines)], list.Stale)
	}
	if n := len(list.Incomplete); n > 0 {
		a.say("the session has moved these directories, and files in them that it did not change are missing now:")
		var moved []string
		for _, i := range list.Incomplete[:min(n, maxChangeLines)] {
			moved = append(moved, fmt.Sprintf("%s (from %s, %s)", line(i.Path), line(i.From), line(i.Why)))
		}
		sayPaths(a, moved, n)
	}
}

// badPatch fails a command whose patch is not whole, or lacks files that were moved; nil for any
// other patch.
// The session is "" where no other command can ask for it.
func badPatch(what, session string, p *client.Patch) error {
	stale, incomplete := p.Stale(), p.Incomplete()
	switch {
	case stale > 0:
		return fmt.Errorf("%s lacks %s, or takes back what somebody else did in the source: it has changed there since the session began, and what was there then is not known%s", what, plural(stale, "change"), lookAt(session, "toolctl diff %[1]s --name-status, toolctl apply %[1]s --dry-run"))
	case incomplete > 0:
		return fmt.Errorf("%s lacks files of %s that the session has moved: the source does not have them any more%s", what, plain.Count(incomplete, "directory", "directories"), lookAt(session, "toolctl diff %s --name-status"))
	}
	return nil
}

// lookAt says with which commands a session is looked at.
func lookAt(session, commands string) string {
	if session == "" {
		return ""
	}
	return "; look at them: " + fmt.Sprintf(commands, line(session))
}

// sayOmitted counts what the user had left out.
func sayOmitted(a *app, excluded, ignored int) {
	if excluded > 0 {
		a.say("left out: %s that --exclude matches", plural(excluded, "change"))
	}
	if ignored > 0 {
		a.say("left out: %s that .gitignore files ignore", plural(ignored, "change"))
	}
}

// sayAstray says what is where the source was.
func sayAstray(a *app, is string) {
	if is != "" {
		a.say("the source was moved or removed on the host: %s; changes are told against what is known of the directory that the session began with, and of a session that is over not all that it removed. Put that one back to apply them", line(is))
	}
}

// sayEarlier says what became of an apply whose end nobody was told.
func sayEarlier(a *app, words string) {
	if words != "" {
		a.say("%s", line(words))
	}
}

func sayUnreadable(a *app, files int) {
	if files > 0 {
		a.say("%s could not be compared: the tools' user may not read them", plural(files, "file"))
	}
}

// list shows all changes, without their content.
func (d *diffCommand) list(ctx context.Context, c *client.Client, session string, q client.DiffQuery) error {
	progress := d.progress("comparing")
	all, err := listChanges(ctx, c, session, q)
	progress.stop()
	if err == nil && len(all.Items)+len(all.Incomplete)+all.Unreadable+all.Excluded+all.Ignored == 0 {
		err = d.nothingAt(ctx, c, session, q.Paths)
	}
	if err != nil {
		return err
	}
	names := namesOf(all.Items, func(x *client.Change) string { return changeName(x) })
	v := view{data: all, names: names, text: func(w io.Writer) {
		if d.nameStatus {
			writeNameStatus(w, all.Items)
			return
		}
		writeStat(w, all, cmp.Or(d.width(), statWidth), d.color())
	}}
	if d.format != formatTable {
		err = d.print(v)
	} else {
		err = d.page(func(w io.Writer) error {
			checked := &checkedWriter{to: w}
			v.text(checked)
			return checked.err
		})
		sayUnreadable(d.app, all.Unreadable)
	}
	sayOmitted(d.app, all.Excluded, all.Ignored)
	saySourceChanged(d.app, all)
	sayStale(d.app, all)
	sayAstray(d.app, all.SourceAstray)
	sayEarlier(d.app, all.Earlier)
	return err
}

// listChanges reads all pages.
func listChanges(ctx context.Context, c *client.Client, session string, q client.DiffQuery) (*client.Changes, error) {
	all := &client.Changes{}
	q.Limit = 10_000 // the most: for each page the whole tree is read
	items, err := allPages(func(after string) (*client.List[client.Change], error) {
		q.After = after
		page, err := c.Changes(ctx, session, q)
		if err != nil {
			return nil, err
		}
		*all = *page
		return &client.List[client.Change]{Items: page.Items, Next: page.Next}, nil
	})
	all.Items, all.Next = items, ""
	return all, err
}

// statusLetters are git's.
var statusLetters = map[client.ChangeStatus]string{
	client.ChangeAdded: "A", client.ChangeModified: "M", client.ChangeDeleted: "D", client.ChangeType: "T",
}

func writeNameStatus(w io.Writer, changes []client.Change) {
	for i := range changes {
		letter, known := statusLetters[changes[i].Status]
		if !known {
			letter = "X"
		}
		fmt.Fprintf(w, "%s\t%s\n", letter, changeName(&changes[i]))
	}
}
