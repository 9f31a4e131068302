package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

// treeEnd says what becomes of the changes of a session whose worktree keeps them beside
// the source.
type treeEnd struct {
	apply, discard bool
	merge          bool   // with apply
	patch          string // a file to save them in
}

func (e *treeEnd) register(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&e.apply, "apply", false, "with --mode overlay: apply the changes, whatever the command exits with")
	f.BoolVar(&e.merge, "merge", false, "with --apply: merge by lines what has changed in the source meanwhile")
	f.BoolVar(&e.discard, "discard", false, "with --mode overlay: drop the changes")
	f.StringVar(&e.patch, "patch", "", "with --mode overlay: save the changes in this `file`, as a patch")
}

// given reports whether it is decided.
func (e *treeEnd) given() bool { return e.apply || e.discard || e.patch != "" }

// check refuses what cannot be meant. mode is what the command line says, or what the
// session has.
func (e *treeEnd) check(mode client.WorktreeMode) error {
	switch {
	case e.apply && e.discard:
		return usagef("--apply and --discard: leave one of them out")
	case e.merge && !e.apply:
		return usagef("--merge says how --apply does it: add --apply, or leave --merge out")
	case e.given() && mode != "" && mode != client.WorktreeOverlay:
		return usagef("--apply, --discard and --patch are for the mode overlay: in the mode %s there are no changes apart from the worktree", line(string(mode)))
	}
	return nil
}

// open finds out, before a session is made, whether the patch can be saved. Errors are of usage.
func (e *treeEnd) open() error {
	if e.patch == "" {
		return nil
	}
	file, err := localTarget(e.patch, "changes.patch")
	if err == nil {
		err = writable(filepath.Dir(file))
	}
	if err != nil {
		return usagef("--patch: %w", err)
	}
	return nil
}

// writable finds out whether files can be made in a directory.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".toolctl-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// decides reports whether somebody says at the end what is to become of the changes.
func (r *runCommand) decides() bool {
	return r.tree.given() || r.asks() && !r.quiet && r.format == formatTable
}

// maxPatchFiles is how many changed paths a report lists.
const maxPatchFiles = 1000

// nothingChanged is said of a command in mode overlay that did.
const nothingChanged = "the command has changed nothing in the worktree"

// leftNothing reports whether an answer about the changes of a session means that it is over, and
// there are none: one that its budget has ended keeps no tree without any.
func leftNothing(ctx context.Context, c *client.Client, session string, err error) bool {
	if !isNotFound(err) {
		return false
	}
	s, err := c.GetSession(ctx, session)
	return err == nil && over(s)
}

// patchOf is all that a session has changed, also where that is nothing.
func patchOf(ctx context.Context, c *client.Client, session string) (*client.Patch, error) {
	patch, err := c.Diff(ctx, session, client.DiffQuery{})
	if leftNothing(ctx, c, session, err) {
		return &client.Patch{ReadCloser: http.NoBody}, nil
	}
	return patch, err
}

// changesOf lists the first of them, also where there are none.
func changesOf(ctx context.Context, c *client.Client, session string) (*client.Changes, error) {
	list, err := c.Changes(ctx, session, client.DiffQuery{Limit: maxPatchFiles})
	if leftNothing(ctx, c, session, err) {
		return &client.Changes{Items: []client.Change{}}, nil
	}
	return list, err
}

// settle does with the changes what was asked for, or asks. failed is how the command
// ended, which is how toolctl ends, unless this fails.
func (r *runCommand) settle(ctx context.Context, c *client.Client, s *client.Session, failed error) error {
	stopped := interruption(ctx) != nil
	if stopped {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
	}
	list, err := changesOf(ctx, c, s.ID)
	if err == nil {
		r.report.Diff = list
		if list.Files+len(list.Incomplete) == 0 && r.tree.patch == "" {
			if !r.quiet && (r.tree.given() || r.errTTY) {
				r.say(nothingChanged)
			}
			return failed
		}
		r.showStat(list)
		sayStale(r.app, list)
		err = r.settleChanges(ctx, c, s, stopped)
	}
	if err == nil || interruption(ctx) != nil {
		return cmp.Or(failed, err)
	}
	if failed != nil {
		r.complain(failed)
	}
	return commandFailure(fmt.Errorf("the changes of session %s: %w", s.ID, err))
}

func (r *runCommand) settleChanges(ctx context.Context, c *client.Client, s *client.Session, stopped bool) error {
	switch {
	case stopped || !r.decides() || r.keep && !r.tree.given():
		return r.leaveChanges(ctx, c, s)
	case !r.tree.given():
		return r.askChanges(ctx, c, s)
	}
	var lost *lostError
	if r.tree.patch != "" {
		err := r.savePatch(ctx, c, s, r.tree.patch)
		if err != nil && (!r.tree.apply || !errors.As(err, &lost)) {
			return err // what no patch can have may still be applied
		}
		r.patched = true
	}
	switch {
	case r.tree.discard:
		_, err := c.Discard(ctx, s.ID, client.DiscardRequest{})
		return err
	case !r.tree.apply:
		return nil
	}
	left, err := r.applyChanges(ctx, c, s, client.ApplyRequest{Merge: r.tree.merge})
	if err != nil || left {
		lerr := r.leaveChanges(ctx, c, s)
		if lerr == nil && lost != nil {
			lerr = lost
		}
		err = cmp.Or(err, lerr)
	}
	return err
}

// applyChanges reports whether something was left out.
func (r *runCommand) applyChanges(ctx context.Context, c *client.Client, s *client.Session, req client.ApplyRequest) (left bool, err error) {
	done, err := c.Apply(ctx, s.ID, req)
	if err != nil {
		return true, r.notApplied(err)
	}
	r.report.Applied = done
	if !r.quiet {
		r.say("%s", appliedSum(done))
	}
	sayApplied(r.app, r.nameOf(s), done)
	left = done.SkippedCount > len(done.Skipped) // not all are named
	for _, kind := range done.SkippedKinds {
		left = left || kind == "unreadable" || kind == "too_large"
	}
	return left || done.SensitiveCount > 0, nil
}

// notApplied leaves out what the daemon would do about a conflict: of a session that ends with
// its daemon nothing else can be asked for.
func (r *runCommand) notApplied(err error) error {
	answered, ok := errors.AsType[*client.Error](err)
	if !ok || !r.private || answered.Code != client.CodeConflict {
		return err
	}
	without := *answered
	without.Hint = ""
	return &without
}

// nameOf is a session's name in other commands, "" where none can ask for it.
func (r *runCommand) nameOf(s *client.Session) string {
	if r.private {
		return ""
	}
	return s.ID
}

// leaveChanges is for changes with which nothing was done: the daemon keeps them for some
// time, but one of our own ends with them.
func (r *runCommand) leaveChanges(ctx context.Context, c *client.Client, s *client.Session) error {
	if r.private && (r.ci.result.Patch.File != "" || r.patched) {
		return nil // the report has them, or the patch that was asked for
	}
	if r.private {
		return r.savePatch(ctx, c, s, s.ID+".patch")
	}
	if !r.quiet {
		id := line(s.ID)
		r.say("the changes are kept with the session: toolctl diff %s, toolctl apply %s, toolctl discard %s", id, id, id)
	}
	return nil
}

func (r *runCommand) savePatch(ctx context.Context, c *client.Client, s *client.Session, to string) error {
	file, err := localTarget(to, s.ID+".patch")
	if err != nil {
		return err
	}
	patch, err := patchOf(ctx, c, s.ID)
	if err != nil {
		return err
	}
	defer patch.Close()
	if err := replaceFile(file, patch); err != nil {
		return fmt.Errorf("save the patch: %w", err)
	}
	bad := badPatch("the patch", r.nameOf(s), patch)
	if !r.quiet || to != r.tree.patch {
		left, unreadable := patch.Missing()
		switch {
		case left+unreadable > 0 || bad != nil:
			r.say("not all changes are saved in %s; \"git apply\" takes those that are", line(file))
		case r.report.Diff != nil && r.report.Diff.Files == 0:
			r.say(nothingChanged+": %s is empty, and \"git apply\" takes no empty patch", line(file))
		default:
			r.say("the changes are saved in %s; \"git apply\" takes it", line(file))
		}
	}
	sayMissing(r.app, r.nameOf(s), patch)
	if !whole(patch) {
		if r.beside == nil { // the command has ended: it stays as it is
			if r.beside, err = saveBeside(ctx, c, s.ID, patch, file); err != nil {
				return cmp.Or(err, bad)
			}
		}
		r.beside.say(r.app, s.Worktree.Source)
	}
	return cmp.Or(r.sayInPatch(ctx, c, s), bad, r.beside.failure(nil))
}

// showStat says on standard error what has changed.
func (r *runCommand) showStat(list *client.Changes) {
	if r.quiet || list.Files == 0 {
		return
	}
	var b bytes.Buffer
	writeStat(&b, list, cmp.Or(r.errWidth(), statWidth), colors(r.errTTY, r.getenv))
	shown := strings.SplitAfter(strings.TrimSuffix(b.String(), "\n"), "\n")
	if more := len(shown) - maxChangeLines; more > 0 {
		sum := shown[len(shown)-1]
		shown = append(shown[:maxChangeLines-1], " … and "+plural(more, "line")+" more\n", sum)
	}
	fmt.Fprintf(r.stderr, "toolctl: changes of the worktree, beside the source:\n%s\n", strings.Join(shown, ""))
}

// askChanges asks at the terminal until something is decided. Where the terminal goes
// away nothing is.
func (r *runCommand) askChanges(ctx context.Context, c *client.Client, s *client.Session) error {
	q := treeQuestion{keep: !r.private}
	for {
		key, err := r.askKey(ctx, q.text(), q.keys())
		if err != nil || key == 0 {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			return cmp.Or(r.leaveChanges(ctx, c, s), err)
		}
		decided, err := r.answerChanges(ctx, c, s, &q, key)
		if decided {
			return err
		}
		if err != nil {
			r.complain(err)
		}
	}
}

// treeQuestion is what can be done with the changes.
type treeQuestion struct {
	keep bool // the daemon can
	left bool // those that hosts run on sight are left: the others were applied
	// merge: the source has changed too.
	merge bool
}

func (q treeQuestion) text() string {
	text := "a applies the changes"
	if q.left {
		text = "i applies what was left out too"
	}
	if q.merge {
		text += ", m merges them with what has changed in the source"
	}
	text += ", s shows them, p saves them as a patch, d drops them"
	if q.keep {
		text += ", k keeps them"
	}
	return text
}

func (q treeQuestion) keys() string {
	keys := "aspd"
	if q.left {
		keys = "ispd"
	}
	if q.merge {
		keys += "m"
	}
	if q.keep {
		keys += "k"
	}
	return keys
}

// answerChanges does what a key says; it reports whether there is nothing more to ask.
func (r *runCommand) answerChanges(ctx context.Context, c *client.Client, s *client.Session, q *treeQuestion, key byte) (decided bool, err error) {
	switch key {
	case 'a', 'i', 'm':
		left, err := r.applyChanges(ctx, c, s, client.ApplyRequest{IncludeSensitive: key == 'i' || key == 'm' && q.left, Merge: key == 'm'})
		answered, ok := errors.AsType[*client.Error](err)
		q.merge = ok && answered.Code == client.CodeConflict
		q.left = q.left || err == nil && r.report.Applied.SensitiveCount > 0
		return err == nil && !left, err
	case 's':
		return false, r.showDiff(ctx, c, s)
	case 'p':
		return false, r.savePatch(ctx, c, s, s.ID+".patch")
	case 'd':
		_, err := c.Discard(ctx, s.ID, client.DiscardRequest{})
		return err == nil, err
	}
	return true, r.leaveChanges(ctx, c, s)
}

// showDiff shows the patch where the question is.
func (r *runCommand) showDiff(ctx context.Context, c *client.Client, s *client.Session) error {
	if r.outTTY {
		return r.patch(ctx, c, s.ID, client.DiffQuery{})
	}
	patch, err := c.Diff(ctx, s.ID, client.DiffQuery{})
	if err != nil {
		return err
	}
	defer patch.Close()
	return showPatch(r.stderr, patch, colors(r.errTTY, r.getenv))
}
