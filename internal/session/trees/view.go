package trees

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// view has a sandbox in which a worktree can be compared with what it was.
type view struct {
	errand.Errand
	*shared
	tree    *layers.Tree
	lost    []layers.Incomplete
	session string          // "" where it is the session's own sandbox
	against []string        // layers of the checkpoint that it is compared with
	across  *across         // nil before a judgment
	spots   *spots          // nil before a question
	astray  string          // what is at the source's path instead of it; "" where it is there
	void    bool            // the source was away: what the session has removed does not show
	earlier string          // what became of an apply that was cut off
	kept    <-chan struct{} // closed when what the session began with has been kept; nil: it has
	close   func()
}

// look gives a sandbox that shows the worktree as it is, beside its source or a checkpoint:
// that of the session itself where it can, else one that is made for it and ends with
// close. Whoever looks at a live session has it quiet.
func (x *subject) look(ctx context.Context, p auth.Principal, against string) (*view, error) {
	var base []string
	if against != "" {
		c, err := x.find(against)
		if err != nil {
			return nil, err
		}
		base = c.Layers
	}
	if x.live != nil && against == "" {
		e, err := x.live.Errand()
		if err != nil {
			return nil, fault.Over.Errorf("the sandbox of session %s does not answer", x.row.ID).Next("try again: when the session is over, its changes are still there")
		}
		return &view{Errand: e, shared: x.shared, close: func() {}}, nil
	}
	if x.live != nil {
		if _, err := x.freezeQuiet(ctx, layers.Checkpoint{Cause: causeDiff}); err != nil {
			return nil, err
		}
	}
	return x.open(ctx, p, Seed{Lower: x.tree.Layers(), Base: base, From: x.tree, Look: true, Internal: true})
}

// lookAnew is look where the host took away what the session had moved: a live sandbox does
// not show what is beside that until it is given its worktree anew. Where that cannot be done, it
// shows what it can.
func lookAnew(ctx context.Context, x *subject, p auth.Principal, m *moves) (*view, error) {
	if x.live == nil || len(m.away) == 0 || x.live.Relays() != nil {
		return x.look(ctx, p, "")
	}
	c, err := x.freezeQuiet(ctx, layers.Checkpoint{Cause: causeDiff})
	if errors.Is(err, fault.Over) {
		return nil, err
	}
	if err != nil {
		return x.look(ctx, p, "")
	}
	defer func() { _, _ = x.store.Drop(x.row.ID, c.ID) }() // it was made to have no upper layer
	return x.look(ctx, p, "")
}

// open makes a session of the daemon's own from layers of a tree, which stay until the view
// is closed, whatever becomes of the tree.
func (x *subject) open(ctx context.Context, p auth.Principal, from Seed) (*view, error) {
	r := forkRequest(x.row, client.ForkRequest{Labels: map[string]string{"toold/for": x.row.ID}})
	r.Mounts, r.Caches = nil, nil
	astray, err := there(ctx, x.row.ID, x.tree.Source)
	if err != nil {
		// The layers have what the session wrote, and who has its rights may read that.
		if from.Void = x.shows && from.Look && len(from.Base) == 0 && (p.Admin || p.UID == x.tree.UID); !from.Void {
			return nil, err
		}
	}
	leave, err := x.boxes.take(ctx, x.row.Tenant)
	if err != nil {
		return nil, err
	}
	unhold := x.store.Hold(from.Lower, from.Base)
	release := func() { unhold(); leave() }
	v, live, err := x.sessions.Begin(ctx, p, r, from)
	if err != nil {
		release()
		return nil, err
	}
	x.Step("opened")
	end := func() {
		defer release()
		x.Step("closing")
		// Also when the request has ended: nothing of it may stay.
		if err := x.sessions.End(context.WithoutCancel(ctx), p, v.ID); err != nil {
			x.log.Error("end a session that looked at changes", "session", v.ID, "error", err)
		}
	}
	if live == nil {
		release()
		return nil, fault.Over.Errorf("the session that was to look at the changes has ended").Next("try again")
	}
	e, err := live.Errand()
	if err != nil {
		end()
		return nil, err
	}
	return &view{Errand: e, shared: x.shared, session: v.ID, void: from.Void, astray: astray, close: sync.OnceFunc(end)}, nil
}

// openTries is how often layers are opened that are merged meanwhile.
const openTries = 3

// openLayers opens the layers that say what a view differs in: those of the tree, and of the
// checkpoint that it is compared with.
func (v *view) openLayers() (*layers.Opened, error) {
	var opened *layers.Opened
	var err error
	for range openTries {
		names := v.tree.Layers()
		if now, none := v.store.Get(v.tree.Session); none == nil {
			names = now.Layers()
		}
		if opened, err = v.store.OpenLayers(slices.Concat(names, v.against)); err == nil {
			return opened, nil
		}
	}
	v.log.Warn("look at the layers of a session", "session", v.tree.Session, "error", err)
	return nil, fault.Overloaded.Errorf("the layers of session %s cannot be looked at now", v.tree.Session).Next("try again")
}

// cover knows the layers of a view. It is nil for one that shows no tree.
func (v *view) cover() (*cover, error) {
	if v.tree == nil {
		return nil, nil //nolint:nilnil // nothing is left out then
	}
	opened, err := v.openLayers()
	if err != nil {
		return nil, err
	}
	return coverOf(opened)
}

// spots are what the layers of a tree say something of, as it was at the first question.
type spots struct {
	packed []byte        // what the sandbox is told to look at; nil where it cannot be told
	places []apply.Place // of a whole walk, which is deep
	whole  bool
	moved  bool // some directories have files that the source has at another path
}

// toTell gives what the sandbox is to look at, as it was at the first question; nil where that is
// too much to say, or the sandbox takes no such word, or the view shows no tree.
func (v *view) toTell(ctx context.Context) ([]byte, error) {
	if v.tree == nil {
		return nil, nil
	}
	if v.spots != nil {
		return v.spots.packed, nil
	}
	opened, err := v.openLayers()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	of := new(spots)
	v.looks("walk")
	k, err := touched(ctx, opened.Files, true)
	if err == nil {
		of.places, of.whole, of.moved = k.places, true, k.moved
	} else {
		k, err = touched(ctx, opened.Files, false)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == nil {
		of.packed = k.pack()
	}
	v.spots = of
	return of.packed, nil
}

// told reports whether the sandbox looks at nothing else: then its totals are those of the session.
func (v *view) told() bool { return v.spots != nil && v.spots.packed != nil }

// untold has the sandbox look at everything from now on, if an error says that it takes no other
// word: an agent of an older version is in it.
func (v *view) untold(err error) bool {
	e, ok := errors.AsType[*run.Error](err)
	if !v.told() || !ok || !run.IsNoTool(e) {
		return false
	}
	v.spots.packed = nil
	return true
}

// TreeDiff is that of the sandbox, which looks at nothing but what the layers say something of, if it
// can be told.
func (v *view) TreeDiff(ctx context.Context, q run.DiffQuery, most int64, w io.Writer) (treediff.Totals, error) {
	var err error
	if q.Touched, err = v.toTell(ctx); err != nil {
		return treediff.Totals{}, err
	}
	t, err := v.Errand.TreeDiff(ctx, q, most, w)
	if v.untold(err) {
		q.Touched = nil
		return v.Errand.TreeDiff(ctx, q, most, w)
	}
	return t, err
}

// revert puts back what the layers say something of: a live sandbox that does not show what somebody
// has put into the source would take it for removed, and copy it to the session. All that sandboxes
// copy for the daemon they copy here, and nobody knows before how much that is.
func revert(ctx context.Context, v *view, paths []string) (t treediff.Totals, err error) {
	ctx, done, err := v.sessions.Writes(ctx, 0)
	if err != nil {
		return t, err
	}
	defer done()
	defer func() {
		if why, ok := errors.AsType[*fault.Error](context.Cause(ctx)); ok && err != nil {
			err = why
		}
	}()
	told, err := v.toTell(ctx)
	if err != nil {
		return t, err
	}
	if told != nil {
		t, err := v.RevertTouched(ctx, paths, told)
		if !v.untold(err) {
			return t, err
		}
	}
	return v.TreeRevert(ctx, paths, "")
}

// TreeChanges lists what differs, but for what is the source's own doing. Its totals are those of the
// sandbox.
func (v *view) TreeChanges(ctx context.Context, q client.DiffQuery) (*client.Changes, error) {
	told, err := v.toTell(ctx)
	if err != nil {
		return nil, err
	}
	c, err := v.TreeTouched(ctx, q, told)
	if v.untold(err) {
		told = nil
		c, err = v.Errand.TreeChanges(ctx, q)
	}
	if err != nil || told != nil {
		return c, err
	}
	of, err := v.cover()
	if err != nil || of == nil {
		return c, err
	}
	defer of.close()
	items := c.Items[:0:0]
	for i := range c.Items {
		is, err := of.has(ctx, pathOf(&c.Items[i]))
		if err != nil {
			return nil, err
		}
		if is {
			items = append(items, c.Items[i])
		} else if c.Items[i].Unreadable != "" {
			c.Unreadable = max(0, c.Unreadable-1)
		}
	}
	c.Items = items
	return c, nil
}

// differ counts what differs. Unread is what cannot be compared.
func (v *view) differ(ctx context.Context) (files, unread int, err error) {
	if c, err := v.TreeChanges(ctx, client.DiffQuery{Limit: 1}); err != nil {
		return 0, 0, err
	} else if v.told() {
		return c.Files, c.Unreadable, nil
	}
	err = v.pages(ctx, client.DiffQuery{}, func(c *client.Changes) error {
		files, unread = files+len(c.Items), c.Unreadable
		return nil
	})
	return files, unread, err
}
