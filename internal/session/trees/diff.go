package trees

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync/atomic"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/ignore"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// Diff implements server.Trees. Of a live session it shows the files as they are while it
// is read: its calls go on.
func (s *Service) Diff(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (io.ReadCloser, error) {
	over := s.watch(opDiff)
	q.Paths, q.Exclude = plain.Unquoted(q.Paths), plain.Unquoted(q.Exclude)
	if err := omits(q); err != nil {
		over(&err)
		return nil, err
	}
	v, err := s.viewOf(ctx, p, id, q.Against)
	if err != nil {
		err = s.sessions.Internal("compare a worktree", err)
		over(&err)
		return nil, err
	}
	return v.stream(ctx, q.Paths, over, func(ctx context.Context, w *stepping) (*patched, error) {
		p, err := v.patch(ctx, q, w)
		return p, omitted(err, q)
	}), nil
}

// Changes implements server.Trees.
func (s *Service) Changes(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (c *client.Changes, err error) {
	defer s.watch(opDiff)(&err)
	q.Paths, q.Exclude = plain.Unquoted(q.Paths), plain.Unquoted(q.Exclude)
	if err := omits(q); err != nil {
		return nil, err
	}
	v, err := s.viewOf(ctx, p, id, q.Against)
	if err != nil {
		return nil, s.sessions.Internal("compare a worktree", err)
	}
	defer v.close()
	q.Against = "" // the view has it in the base's place
	if c, err = v.TreeChanges(ctx, q); err != nil {
		return nil, s.sessions.Internal("list the changes of session "+id, asked(omitted(err, q)))
	}
	if err := v.rebaseAll(ctx, q, c); err != nil {
		return nil, s.sessions.Internal("compare the source of session "+id, asked(err))
	}
	c.Incomplete, c.SourceAstray, c.Earlier = shownLost(v.lost, q.Paths), v.astray, v.earlier
	return c, s.markSensitive(c.Items)
}

// markSensitive marks what is sensitive by the configuration of the host too. What is in a
// directory that is, is.
func (s *shared) markSensitive(items []client.Change) error {
	more, err := ignore.New(s.sessions.Sensitive())
	if err != nil {
		return fmt.Errorf("worktrees.sensitive: %w", err)
	}
	for i := 0; len(more) > 0 && i < len(items); i++ {
		c := &items[i]
		name := pathOf(c)
		for dir := path.Dir(name); !c.Sensitive && dir != "."; dir = path.Dir(dir) {
			c.Sensitive = more.Has(dir, true)
		}
		c.Sensitive = c.Sensitive || more.Has(name, c.Kind == string(treediff.Dir) || c.Kind == "" && c.OldKind == string(treediff.Dir))
	}
	return nil
}

// CutOff says what became of the last apply of a session if a daemon ended in the middle of it; "" where
// whoever asked for it was told.
func (s *shared) CutOff(session string) string { return apply.CutOff(s.store.ApplyDir(session)) }

// omits checks the patterns of what is to be left out.
func omits(q client.DiffQuery) error {
	if _, err := ignore.New(q.Exclude); err != nil {
		return fault.In(fault.Invalid.Errorf("%w", err).Next("give fewer or other patterns, as lines of a .gitignore"), "exclude")
	}
	return nil
}

// omitted is the error of an agent that cannot leave anything out: none of an older toold can.
func omitted(err error, q client.DiffQuery) error {
	e, is := errors.AsType[*run.Error](err)
	if !refused(err) && (!is || !run.IsNoTool(e)) || len(q.Exclude) == 0 && !q.NoIgnored || len(q.Paths) > run.MaxTreePaths {
		return err
	}
	return fault.NoTool.Errorf("the session was made by an older toold, whose agent leaves nothing out of a diff").
		Next("ask without exclude and no_ignored, or end the session: its changes stay, and can be looked at then")
}

// asked is an error of an agent's errand for who asked: the one place that says what its codes mean
// to the API. What the agent's system could not do is told with a way that needs nothing of the tree.
func asked(err error) error {
	var e *run.Error
	var said *errand.SaidError
	switch {
	case errors.As(err, &e):
		return codes(e)
	case errors.As(err, &said):
		return fault.Conflict.Errorf("the files cannot be worked on in the sandbox: %s", said.Words).Next(nextHindered)
	case errors.Is(err, errand.ErrLost):
		return fault.Over.Errorf("the sandbox that had the files has ended in the middle of it").Next("try again: the changes are still there")
	case errors.Is(err, errand.ErrTooLong):
		return fault.Quota.Errorf("%w", err).Next("name paths, and take them one after the other")
	}
	return err
}

// nextHindered is what helps where the sandbox has no room for something, or no right to it.
const nextHindered = "make room or give the rights back in the session (chmod), or leave those paths out; toolctl discard without paths, and restore, need neither"

// codes is an agent's code as the API's.
func codes(e *run.Error) error {
	if run.IsNoTool(e) {
		return fault.NoTool.Errorf("the session was made by an older toold, whose agent cannot do this").
			Next("end the session: its changes stay, and can be looked at, applied and discarded then")
	}
	kind, next := fault.Kind(""), e.Hint
	switch e.Code {
	case run.CodeInvalidInput, run.CodeInvalidPath:
		kind = fault.Invalid
	case run.CodeNotRegularFile:
		kind, next = fault.Conflict, cmp.Or(next, nextHindered)
	case run.CodeStale:
		kind, next = fault.Conflict, cmp.Or(next, "somebody changes the files meanwhile: try again")
	case run.CodeAborted:
		kind, next = fault.Aborted, cmp.Or(next, "try again")
	case run.CodeSandboxFailed:
		kind, next = fault.Sandbox, cmp.Or(next, "end the session: its changes stay, and can be looked at, applied and discarded then")
	default:
		return e
	}
	return kind.Errorf("%s", e.Message).Next(next)
}

// refused reports whether an agent does not take what it was asked.
func refused(err error) bool {
	e, ok := errors.AsType[*run.Error](err)
	return ok && e.Code == run.CodeInvalidInput
}

// viewOf is look for who reads alone: nobody has to wait for him. What the session began with is
// kept while its sandbox compares, which does not need it.
func (s *Service) viewOf(ctx context.Context, p auth.Principal, id, against string) (*view, error) {
	row, live, err := s.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	x, kept, err := s.haveBeside(ctx, row, live)
	if err != nil {
		return nil, leftNone(row, err)
	}
	release := x.release
	defer func() { release() }()
	beside := x.live != nil && against == ""
	if !beside {
		kept()
		x.keep(ctx, x.tree)
	}
	m, err := x.moved(ctx, x.tree)
	if err == nil && beside && len(m.all)+len(m.lost) > 0 { // what they were is to be known first
		beside = false
		kept()
		x.keep(ctx, x.tree)
		m, err = x.moved(ctx, x.tree)
	}
	if err != nil {
		return nil, err
	}
	x.shows = true
	v, err := lookFrom(ctx, x, p, against, m)
	if err != nil {
		return nil, err
	}
	v.tree, v.lost = x.tree, m.lost
	v.earlier = s.CutOff(x.row.ID)
	if !v.void { // else it is told as it was: what came back is not below its layers
		v.astray, _ = x.tree.Source.Astray(ctx) // one that cannot be looked at is told by its changes
	}
	if against != "" {
		c, err := x.find(against)
		if err != nil {
			v.close()
			return nil, err
		}
		v.against = c.Layers
	}
	if beside {
		v.kept, release = keepBeside(ctx, x, kept), func() {}
	}
	return v, nil
}

// lookFrom has a session quiet where looking at it makes a checkpoint.
func lookFrom(ctx context.Context, x *subject, p auth.Principal, against string, m *moves) (*view, error) {
	if x.live == nil || against == "" && len(m.away) == 0 {
		return x.look(ctx, p, against)
	}
	resume, err := x.quiet(ctx)
	if err != nil && against != "" {
		return nil, err
	}
	if err != nil {
		return x.look(ctx, p, "")
	}
	defer resume()
	if against != "" {
		return x.look(ctx, p, against)
	}
	return lookAnew(ctx, x, p, m)
}

// sourceLook looks at the source of a tree, which is open, as its owner.
func (s *shared) sourceLook(t *layers.Tree, source *os.File) *apply.Look {
	return &apply.Look{
		Dir: s.store.ApplyDir(t.Session), Source: source, Owner: thread.User{UID: t.UID, GID: t.GID}, Since: t.Since, Back: t.SetBack(),
		Lost: func(what error) {
			s.log.Warn("notes of what the source had are lost", "session", t.Session, "error", what)
		},
	}
}

// stream gives what is made while it is read, and tells over how that ended. It closes the
// view.
func (v *view) stream(ctx context.Context, paths []string, over func(*error), write func(context.Context, *stepping) (*patched, error)) *streamed {
	ctx, cancel := context.WithCancel(ctx)
	from, to := io.Pipe()
	done := make(chan struct{})
	s := &streamed{PipeReader: from, incomplete: len(shownLost(v.lost, paths)), astray: v.astray, earlier: v.earlier, end: func() {
		cancel()
		<-done
		v.close()
	}}
	go func() {
		defer close(done)
		p, err := write(ctx, &stepping{Writer: to, step: v.Step})
		if p != nil {
			s.counts.Store(p)
		}
		err = asked(err)
		over(&err)
		to.CloseWithError(err)
	}()
	return s
}

// stepping tells of each part of a stream before it is passed on.
type stepping struct {
	io.Writer
	step  func(name string)
	begun bool
}

func (s *stepping) Write(p []byte) (int, error) {
	s.begun = true
	s.step("streamed")
	return s.Writer.Write(p)
}

// streamed is a stream whose end is waited for.
type streamed struct {
	*io.PipeReader
	counts atomic.Pointer[patched] // nil until there are any
	end    func()

	incomplete int
	astray     string
	earlier    string
}

func (s *streamed) known() *patched { return cmp.Or(s.counts.Load(), &patched{}) }

// Missing says how many changes are not in a patch that was read to its end: those that a
// patch cannot say, and those that could not be compared.
func (s *streamed) Missing() (leftOut, unreadable int) {
	return s.known().LeftOut, s.known().Unreadable
}

// Omitted says how many changes the query leaves out of a patch that was read to its end.
func (s *streamed) Omitted() (excluded, ignored int) {
	return s.known().Excluded, s.known().Ignored
}

// Converted says how many changed files of a patch that was read to its end git stores otherwise than they
// lie in the worktree: git apply may refuse a patch with one.
func (s *streamed) Converted() int { return s.known().Converted }

// Stale says how many changes are not in a patch that was read to its end because what the
// session began with is not known, and somebody has changed the source there; or are in it
// though that was done while it was made.
func (s *streamed) Stale() int { return s.known().stale }

// SourceChanged says how many changes in it are told against what the session began with,
// because the source has something else there by now.
func (s *streamed) SourceChanged() int { return s.known().changed }

// Incomplete says how many moved directories lack files in a patch, because the source does
// not have them any more.
func (s *streamed) Incomplete() int { return s.incomplete }

// SourceAstray says what is at the path of the source instead of it, "" where it is there.
func (s *streamed) SourceAstray() string { return s.astray }

// Earlier is what CutOff said at the beginning.
func (s *streamed) Earlier() string { return s.earlier }

// Close implements io.Closer.
func (s *streamed) Close() error {
	err := s.PipeReader.Close()
	s.end()
	return err
}
