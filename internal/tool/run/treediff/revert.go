package treediff

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run/root"
)

// Revert makes the tree what the base is, where they differ: what came is removed, what
// went is copied back. Totals.Files counts the differences, LeftOut those that are still
// there: the tool user may not write them, or read what they were, they changed meanwhile, or
// they are devices. After an error it is done in part; it can be repeated.
func Revert(ctx context.Context, o Options) (Totals, error) {
	w := &walk{ctx: ctx, o: o, budget: maxNodes}
	err := w.run(&revert{w: w})
	return w.totals, err
}

// revert leads back to the base.
type revert struct{ w *walk }

func (r *revert) goal(old, new *root.Node) (to, from *root.Node) { return old, new }
func (r *revert) ordered() bool                                  { return false }
func (r *revert) end() error                                     { return nil }

// reads: what is removed, or replaced by what is copied, need not be readable.
func (r *revert) reads(c *change) bool { return c.status == Modified }

// enter lets the tool user into a directory that it has shut itself.
func (r *revert) enter(tree *place, e entry) error {
	if !isDir(e.new) || !e.new.Denied || isDir(e.old) && e.old.Denied {
		return nil
	}
	err := r.do(tree, func(d *root.Dir) error { return d.Chmod(r.w.ctx, e.name, e.new.Mode|0o700) })
	e.new.Denied = err != nil
	return r.left(err)
}

// leave gives a directory back the mode that it had before do changed it.
func (r *revert) leave(dir *place) error {
	if !dir.opened {
		return nil
	}
	d, err := dir.need(r.w.ctx)
	if err == nil {
		err = d.Chmod(r.w.ctx, "", dir.mode)
	}
	return r.left(err)
}

func (r *revert) visit(c *change) error {
	if c.unreadable != "" { // it may be what is put in its place that counts
		r.w.totals.Unreadable--
	}
	return r.left(r.do(c.new.place, func(d *root.Dir) error { return r.back(c, d) }))
}

// left counts what is left as it is. What would be so everywhere is an error.
func (r *revert) left(err error) error {
	kept := errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST)
	switch root.CodeOf(err) {
	case root.Denied, root.NotExist, root.Stale, root.InvalidPath, root.NotRegular:
		kept = true
	}
	if kept {
		r.w.totals.LeftOut++
		return nil
	}
	return err
}

// do works in a directory of the tree. One that the tool user may not write is opened to
// it until leave.
func (r *revert) do(dir *place, f func(d *root.Dir) error) error {
	ctx := r.w.ctx
	d, err := dir.need(ctx)
	if err != nil {
		return err
	}
	if err = f(d); root.CodeOf(err) != root.Denied || dir.opened {
		return err
	}
	mode, failed := d.Mode(ctx)
	if failed != nil || mode&0o700 == 0o700 || d.Chmod(ctx, "", mode|0o700) != nil {
		return err
	}
	dir.opened, dir.mode = true, mode
	return f(d)
}

// back undoes one change in directory d.
func (r *revert) back(c *change, d *root.Dir) error {
	ctx, old := r.w.ctx, c.old.node
	switch k := c.old.kind(); {
	case c.status == Modified && k != Link && c.same && old.Kind == c.new.node.Kind:
		return d.Chmod(ctx, old.Name, old.Mode)
	case c.status == Modified && k == File:
		return r.put(c, d)
	case c.status != Deleted:
		if err := d.Remove(ctx, c.new.node.Name, isDir(c.new.node)); err != nil || old == nil {
			return err
		}
	}
	switch c.old.kind() {
	case File:
		return r.put(c, d)
	case Dir:
		return d.Mkdir(ctx, old.Name, old.Mode)
	case Link:
		from, err := c.old.place.need(ctx)
		if err != nil {
			return err
		}
		to, err := from.Readlink(ctx, old.Name)
		if err != nil {
			return err
		}
		return d.Symlink(ctx, to, old.Name)
	}
	if old.Kind == root.KindFIFO || old.Kind == root.KindSocket {
		return d.Mknod(ctx, old.Name, old.Kind, old.Mode)
	}
	r.w.totals.LeftOut++
	return nil
}

// put copies the base's file.
func (r *revert) put(c *change, d *root.Dir) error {
	f, err := c.old.open(r.w)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	return d.Put(r.w.ctx, c.old.node.Name, f)
}
