package trees

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/apply"
)

// The sandbox compares with the source as it is. Where that is not what the session began
// with, its difference would take somebody's work back: the daemon itself compares with the
// base then, or says that it has none.

// patched counts what is in a patch, and what is not.
type patched struct {
	treediff.Totals
	// stale are changes whose base is not known, changed those that are told against it.
	stale, changed int
}

func (p *patched) add(t treediff.Totals) {
	p.Files += t.Files
	p.Added += t.Added
	p.Removed += t.Removed
	p.Unreadable += t.Unreadable
	p.LeftOut += t.LeftOut
	p.Converted += t.Converted
}

// pages reads all changes that are asked for.
func (v *view) pages(ctx context.Context, q client.DiffQuery, each func(*client.Changes) error) error {
	q.Against, q.After, q.Limit = "", "", errand.MaxChanges // the view has what it is compared with
	for {
		c, err := v.TreeChanges(ctx, q)
		if err == nil {
			err = each(c)
		}
		if err != nil || c.Next == "" {
			return err
		}
		q.After = c.Next
	}
}

// rebaseAll makes a page what is told against the bases, and its totals those of all pages.
func (v *view) rebaseAll(ctx context.Context, q client.DiffQuery, page *client.Changes) error {
	if v.asBegun(ctx) {
		return nil
	}
	part := page.Next != "" || q.After != ""
	var err error
	var all held
	if part {
		_, err = v.survey(ctx, q, &all)
	} else {
		_, err = v.surveyPage(ctx, page)
	}
	if err == nil {
		err = v.rebase(ctx, page)
	}
	if err != nil {
		return err
	}
	sum := &client.Changes{}
	if !part {
		tally(sum, page)
	} else if err := all.again(listing(ctx, v, q), func(c *client.Changes) error {
		defer tally(sum, c)
		return v.rebase(ctx, c)
	}); err != nil {
		return err
	}
	page.Files, page.Added, page.Removed, page.Stale, page.SourceChanged = sum.Files, sum.Added, sum.Removed, sum.Stale, sum.SourceChanged
	return nil
}

// tally adds what a page has.
func tally(all, page *client.Changes) {
	all.Files += len(page.Items)
	for i := range page.Items {
		all.Added += page.Items[i].Added
		all.Removed += page.Items[i].Removed
	}
	all.Stale += page.Stale
	all.SourceChanged += page.SourceChanged
}

// rebase tells the changes of a page against the bases where the source has something else,
// and drops those that are none then.
func (v *view) rebase(ctx context.Context, c *client.Changes) error {
	j, err := v.judge(ctx, c.Items)
	if err != nil {
		return err
	}
	lines := make(map[string]*treediff.Line)
	if err := v.pairs(ctx, j, nil, func(p *treediff.Pair) error {
		lines[p.Path] = p.Line()
		return nil
	}); err != nil {
		return err
	}
	j.tell(c, lines)
	return nil
}

// survey judges all changes that are asked for, and says whether the source has something else
// at any of them. It holds what it has found, if that is not too much.
func (v *view) survey(ctx context.Context, q client.DiffQuery, h *held) (changed bool, err error) {
	err = v.pages(ctx, q, func(c *client.Changes) error {
		h.add(c)
		any, err := v.surveyPage(ctx, c)
		changed = changed || any || !v.told() // else all is told at once, and nothing dropped
		return err
	})
	return changed, err
}

func (v *view) surveyPage(ctx context.Context, c *client.Changes) (changed bool, err error) {
	j, err := v.judge(ctx, c.Items)
	if err != nil {
		return false, err
	}
	v.across.survey(c.Items, j)
	return j.any(), nil
}

// judge says how the changes of a page stand to the source. Where that cannot be looked at,
// all are stale.
func (v *view) judge(ctx context.Context, items []client.Change) (*judged, error) {
	if v.across == nil {
		v.across = newAcross()
	}
	places := make([]apply.Place, len(items))
	for i := range items {
		o := &items[i]
		places[i] = apply.Place{Path: pathOf(o), Status: o.Status, Kind: beneath.Kind(o.Kind)}
	}
	if len(items) == 0 {
		return v.across.judge(ctx, nil, nil, nil)
	}
	look, verdicts, err := v.verdicts(ctx, places)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		v.log.Warn("look at the source of changes", "session", v.tree.Session, "error", err)
		verdicts = slices.Repeat([]apply.Verdict{{Changed: true}}, len(items))
	}
	if len(v.against) > 0 {
		if err := v.ofCheckpoint(ctx, places, verdicts); err != nil {
			return nil, err
		}
	}
	return v.across.judge(ctx, items, verdicts, look.Base)
}

// asBegun reports whether the source surely has what the session began with wherever a layer of
// the tree says something: then the sandbox's own difference takes nobody's work back. It says so
// of most sessions in a tenth of the time that the sandbox takes to compare; where it does not,
// a list of the sandbox is to be judged. The sandbox looks at the same places, however often
// that is asked.
func (v *view) asBegun(ctx context.Context) bool {
	if !mayBeAsBegun(ctx, v) {
		return false
	}
	places := v.spots.places
	for range touchedDeep {
		_, verdicts, err := v.verdicts(ctx, places)
		if err != nil {
			return false
		}
		var gone []apply.Place
		for i, is := range verdicts {
			merged := places[i].Kind == beneath.Dir && places[i].Status == client.ChangeModified
			if is.Changed {
				return false
			}
			if is.Dir && !merged {
				gone = append(gone, places[i])
			}
		}
		if len(gone) == 0 {
			return true
		}
		if places, err = inSource(ctx, v.tree, gone); err != nil {
			return false
		}
	}
	return false
}

// mayBeAsBegun reports whether asBegun may be true: it is not of a session that has moved directories.
func mayBeAsBegun(ctx context.Context, v *view) bool {
	told, err := v.toTell(ctx)
	return err == nil && told != nil && v.spots.whole && !v.spots.moved && len(v.against) == 0
}

func (v *view) verdicts(ctx context.Context, places []apply.Place) (*apply.Look, []apply.Verdict, error) {
	if v.kept != nil {
		select {
		case <-v.kept:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	v.looks("source")
	var source *os.File
	var err error
	if !v.void {
		source, err = v.tree.Source.Open(ctx)
	}
	if _, astray := errors.AsType[*worktree.AstrayError](err); err != nil && !astray {
		return nil, nil, err
	}
	if source != nil {
		defer source.Close()
	}
	l := v.sourceLook(v.tree, source)
	of, err := v.cover()
	if err != nil {
		return nil, nil, err
	}
	defer of.close()
	l.Begun = of.begun
	verdicts, err := l.Judge(ctx, places)
	return l, verdicts, err
}

// ofCheckpoint takes back what was said of paths that the checkpoint has itself: the source
// has no part in the difference there. Of the others the session's base is none, for the
// checkpoint may have had the directory removed.
func (v *view) ofCheckpoint(ctx context.Context, places []apply.Place, verdicts []apply.Verdict) error {
	opened, err := v.store.OpenLayers(v.against)
	if err != nil {
		return err
	}
	of, err := coverOf(opened)
	if err != nil {
		return err
	}
	defer of.close()
	for i := range places {
		verdicts[i].Known = false
		if !verdicts[i].Changed {
			continue
		}
		has, err := of.has(ctx, places[i].Path)
		if err != nil {
			return err
		}
		verdicts[i].Changed = !has
	}
	return nil
}

// pairs visits what has a base, with what the session has there now, unless that is what the
// source has by now.
func (v *view) pairs(ctx context.Context, j *judged, named []string, visit func(*treediff.Pair) error) error {
	l := v.sourceLook(v.tree, nil)
	paths, done := slices.Sorted(maps.Keys(j.base)), make(map[string]bool)
	paths = slices.DeleteFunc(paths, func(p string) bool { return j.base[p].Dir })
	for some := range slices.Chunk(paths, run.MaxTreePaths) {
		err := v.contents(ctx, some, func(p string, now treediff.Side) error {
			if j.base[p] == nil || j.base[p].Dir || done[p] {
				return nil // it came with the directory that it is in
			}
			done[p] = true
			b := j.base[p]
			if b.File {
				b = l.Base(p)
			}
			if b == nil {
				return fault.Conflict.Errorf("what the session began with at %s is gone", plain.Name(p)).Next("try again")
			}
			pair := &treediff.Pair{Path: p, New: now, Paths: named}
			if b.File {
				pair.Old = treediff.Side{Kind: treediff.File, Mode: b.Perm, Data: b.Content}
			}
			return visit(pair)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// contents gives what a session has at paths that differ from the source, files and links.
// The agent's archive may have anything.
func (v *view) contents(ctx context.Context, paths []string, each func(path string, now treediff.Side) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, to := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := v.TreeDiff(ctx, run.DiffQuery{Format: treediff.Archive, Paths: paths}, 0, to)
		to.CloseWithError(err)
		done <- err
	}()
	err := readArchive(from, each)
	from.CloseWithError(io.ErrClosedPipe)
	if failed := <-done; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}

// patch writes the patch of all that is asked for: the sandbox's own, unless somebody has
// changed the source at one of them.
func (v *view) patch(ctx context.Context, q client.DiffQuery, w io.Writer) (*patched, error) {
	out := &patch{to: w, asked: q, told: make(map[pathKey]bool), whole: make(dirs)}
	if mayBeAsBegun(ctx, v) {
		if done, err := out.own(ctx, v); done || err != nil {
			return &out.patched, err
		}
		out.Totals = treediff.Totals{}
	}
	var all held
	changed, err := v.survey(ctx, q, &all)
	if err != nil {
		return nil, err
	}
	if !changed {
		out.Totals, err = v.TreeDiff(ctx, out.query(q.Paths), 0, w)
		all.over = true // it may have what the session has changed since
	} else {
		err = all.again(listing(ctx, v, q), func(c *client.Changes) error { return out.page(ctx, v, c) })
	}
	if err != nil || !changed && (out.Files == 0 || v.asBegun(ctx)) {
		return &out.patched, err
	}
	return &out.patched, out.closing(ctx, v, &all)
}

// listing lists all that is asked for.
func listing(ctx context.Context, v *view, q client.DiffQuery) func(func(*client.Changes) error) error {
	return func(each func(*client.Changes) error) error { return v.pages(ctx, q, each) }
}

// own writes the sandbox's own patch. It is done unless the source is not as the session began with it;
// then nothing was written.
func (o *patch) own(ctx context.Context, v *view) (done bool, err error) {
	_, other := v.altered.Load(v.tree.Session)
	if other && !v.asBegun(ctx) {
		return false, nil
	}
	g := &gate{to: o.to, may: func() bool { return v.asBegun(ctx) }}
	o.Totals, err = v.TreeDiff(ctx, o.query(o.asked.Paths), 0, g)
	early := g.open
	if err == nil {
		err = g.pass()
	}
	if g.open && other {
		v.altered.Delete(v.tree.Session)
	}
	switch {
	case g.shut:
		v.altered.Store(v.tree.Session, true)
		return false, ctx.Err()
	case err != nil || !early || v.asBegun(ctx):
		return true, err
	}
	return true, o.closing(ctx, v, &held{over: true})
}

// closing counts what was changed in the source while the patch was made: that may be taken back in it.
func (o *patch) closing(ctx context.Context, v *view, all *held) error {
	return all.again(listing(ctx, v, o.asked), func(c *client.Changes) error {
		j, err := v.judge(ctx, c.Items)
		if err != nil {
			return err
		}
		for i := range c.Items {
			p := pathOf(&c.Items[i])
			if j.changed(p) && !o.told[keyOf(p)] && !j.drops(&c.Items[i]) && treediff.InPatch(p, o.asked.Paths) {
				o.stale++
			}
		}
		return nil
	})
}

// patch is one that is put together, of what the sandbox compares and what is compared with
// bases.
type patch struct {
	patched
	to    io.Writer
	asked client.DiffQuery
	told  map[pathKey]bool // what is told against a base, or left out: no others
	whole dirs             // what is below them comes with them
}

// query asks the sandbox for a part of the patch.
func (o *patch) query(paths []string) run.DiffQuery {
	return run.DiffQuery{Format: treediff.Patch, Paths: paths, Exclude: o.asked.Exclude, NoIgnored: o.asked.NoIgnored}
}

// page writes what a patch has of a page.
func (o *patch) page(ctx context.Context, v *view, c *client.Changes) error {
	j, err := v.judge(ctx, c.Items)
	if err != nil {
		return err
	}
	o.changed += len(j.base)
	for some := range slices.Chunk(o.choose(j, c.Items), run.MaxTreePaths) {
		t, err := v.TreeDiff(ctx, o.query(some), 0, o.to)
		if err != nil {
			return err
		}
		o.add(t)
	}
	err = v.pairs(ctx, j, o.asked.Paths, func(p *treediff.Pair) error {
		t, err := p.WritePatch(ctx, o.to)
		o.add(t)
		return err
	})
	// Of all, also of what was not asked for again.
	o.Unreadable, o.Excluded, o.Ignored = c.Unreadable, c.Excluded, c.Ignored
	return err
}

// choose gives the paths of a page that the sandbox compares for the patch. A path stands for
// all that is below it, so none is a directory that was one before.
func (o *patch) choose(j *judged, items []client.Change) (paths []string) {
	for i := range items {
		c := &items[i]
		p, dir := pathOf(c), string(treediff.Dir)
		if j.changed(p) {
			o.told[keyOf(p)] = true
		}
		switch {
		case j.drops(c), o.whole.over(p):
		case j.base[p] != nil && j.base[p].Dir:
			if c.Mode != modeOf(j.base[p]) {
				o.LeftOut++
			}
		case j.base[p] != nil && treediff.InPatch(p, o.asked.Paths):
		case !treediff.InPatch(p, o.asked.Paths):
			o.LeftOut++
			delete(j.base, p)
		case j.stale[p]:
			o.stale++
		case c.Status == client.ChangeType && c.Kind == dir:
			paths, o.whole[p] = append(paths, p), true
		case c.Status == client.ChangeType && c.OldKind == dir && (!hasSide(c) || c.Unreadable != ""):
			o.LeftOut++
		case c.Status == client.ChangeType && c.OldKind == dir: // what was in it is told by itself
			j.base[p] = &apply.Base{}
		case c.Kind == dir && c.Status == client.ChangeModified:
			o.LeftOut++
		case c.Kind != dir && c.OldKind != dir:
			paths = append(paths, p)
		}
	}
	return paths
}
