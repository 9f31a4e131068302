package apply

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sensitive"
	"github.com/toold/toold/internal/tool/run/ignore"
)

// reason says why a change is not applied.
type reason int

const (
	chosen     reason = iota
	notAsked          // the request names other paths
	excluded          // by a pattern of the request
	onSight           // a host runs or obeys it
	impossible        // the session has no file, directory or link there or it could not be read, or it removed such
)

// chooser finds out which changes are applied.
type chooser struct {
	root   int
	ask    client.ApplyRequest
	paths  map[string]bool
	ignore ignore.List
	more   ignore.List                // of what is sensitive
	parts  map[string]map[string]bool // by directory: what the changes put there of a repository
	above  []level                    // the directories above the change that is looked at
}

// level is a directory, and what that means for all that is in it.
type level struct {
	path                       string
	asked, excluded, sensitive bool
	there                      bool // in the source
}

const maxPaths = 10_000

func newChooser(r client.ApplyRequest, more []string) (*chooser, error) {
	if len(r.Paths) > maxPaths {
		return nil, fault.In(fault.Invalid.Errorf("paths: more than %d", maxPaths), "paths")
	}
	ch := &chooser{ask: r, paths: make(map[string]bool), parts: make(map[string]map[string]bool)}
	for i, p := range r.Paths {
		if p != "." && checkPath(p) != nil {
			return nil, fault.In(fault.BadPath.Errorf("paths: %s is no path below the worktree", shown(p)), "paths", strconv.Itoa(i))
		}
		ch.paths[p] = true
	}
	var err error
	if ch.ignore, err = ignore.New(r.Exclude); err != nil {
		return nil, fault.In(fault.Invalid.Errorf("%w", err), "exclude")
	}
	if ch.more, err = ignore.New(more); err != nil {
		return nil, fmt.Errorf("worktrees.sensitive: %w", err)
	}
	return ch, nil
}

// Choice gives what says whether a request is for a directory as such.
func Choice(r client.ApplyRequest) (chooses func(dir string) bool, err error) {
	r.IncludeSensitive = true
	ch, err := newChooser(r, nil)
	if err != nil {
		return nil, err
	}
	return func(dir string) bool {
		ch.above = []level{{path: ".", asked: len(ch.paths) == 0 || ch.paths["."]}}
		return ch.reason(&change{path: dir, kind: beneath.Dir, status: client.ChangeAdded}, false) == chosen
	}, nil
}

// choose says of each change why it is not applied, if so.
func (ch *chooser) choose(root int, changes []*change, over func() error) error {
	ch.root = root
	for _, c := range changes {
		name := path.Base(c.path)
		if c.put() && sensitive.Of(name) == sensitive.Part {
			dir := path.Dir(c.path)
			if ch.parts[dir] == nil {
				ch.parts[dir] = make(map[string]bool)
			}
			ch.parts[dir][strings.ToLower(name)] = true
		}
	}
	ch.above = []level{{path: ".", asked: len(ch.paths) == 0 || ch.paths["."], there: true}}
	top := ch.repository(&ch.above[0])
	for _, c := range changes {
		if err := over(); err != nil {
			return err
		}
		c.left = ch.reason(c, top)
	}
	settle(changes)
	return nil
}

// reason says why a change is not applied by itself. top: the worktree's top is, or would
// become, a repository without a working tree.
func (ch *chooser) reason(c *change, top bool) reason {
	for len(ch.above) > 1 && !strings.HasPrefix(c.path, ch.above[len(ch.above)-1].path+"/") {
		ch.above = ch.above[:len(ch.above)-1]
	}
	begin := 0
	if len(ch.above) > 1 {
		begin = len(ch.above[len(ch.above)-1].path) + 1
	}
	for i := begin; i < len(c.path); i++ {
		if c.path[i] == '/' {
			ch.enter(c.path[:i])
		}
	}
	dir := c.kind == beneath.Dir || !c.put() && c.old == beneath.Dir
	in := &ch.above[len(ch.above)-1]
	left := in.excluded || ch.ignore.Has(c.path, dir)
	kind := sensitive.Of(path.Base(c.path))
	c.sensitive = in.sensitive || kind == sensitive.OnSight || ch.more.Has(c.path, dir) || top && slices.Contains(repositoryNames, c.path)
	c.build = kind == sensitive.Build
	asked := in.asked || ch.paths[c.path]
	if c.kind == beneath.Dir {
		ch.enter(c.path)
		c.sensitive = ch.above[len(ch.above)-1].sensitive
	}
	switch {
	case !asked:
		return notAsked
	case left:
		return excluded
	case c.sensitive && !ch.ask.IncludeSensitive:
		return onSight
	case c.old == other && !c.put(), c.kind == other, c.cannot != "":
		return impossible
	}
	return chosen
}

// repositoryNames are what git obeys or runs of a worktree whose top is a repository, and
// what makes it one.
var repositoryNames = []string{"HEAD", "config", "hooks", "info", "commondir", "objects", "refs"}

// enter goes one directory deeper.
func (ch *chooser) enter(dir string) {
	up := ch.above[len(ch.above)-1]
	l := level{
		path: dir, asked: up.asked || ch.paths[dir], there: up.there,
		excluded: up.excluded || ch.ignore.Has(dir, true),
	}
	l.sensitive = up.sensitive || sensitive.Of(path.Base(dir)) == sensitive.OnSight || ch.more.Has(dir, true) || ch.repository(&l) ||
		up.path == "." && slices.Contains(repositoryNames, dir) && ch.repository(&up)
	ch.above = append(ch.above, l)
}

// repository says whether git takes a directory for a repository, or would with what the
// changes put there: then it does what the config in it says.
func (ch *chooser) repository(l *level) bool {
	has := make(map[string]bool)
	if l.there {
		fd, err := beneath.Open(ch.root, l.path, unix.O_PATH|unix.O_DIRECTORY, 0)
		if l.there = err == nil; l.there {
			defer unix.Close(fd)
			for _, name := range []string{"HEAD", "objects", "refs", "commondir"} {
				_, err := beneath.Lstat(fd, name)
				has[strings.ToLower(name)] = err == nil
			}
		}
	}
	for part := range ch.parts[l.path] {
		has[part] = true
	}
	return sensitive.Repository(has)
}

// settle makes the choice fit together. A directory that something chosen goes into is
// made too, though it was not asked for; nothing goes into one that is not made; and one
// in which something stays is not removed.
func settle(changes []*change) {
	for _, c := range slices.Backward(changes) {
		if up := c.up; up != nil && c.left == chosen && c.put() && up.left == notAsked && up.makes() {
			up.left = chosen
		}
	}
	for _, c := range changes {
		if up := c.up; up != nil && c.left == chosen && c.put() && up.left != chosen && up.makes() {
			c.left = up.left
		}
	}
	for _, c := range slices.Backward(changes) {
		if up := c.up; up != nil && c.left != chosen && !c.put() && up.left == chosen && up.kind != beneath.Dir &&
			(c.left != impossible || !up.put()) { // something special in the source is in the way of what takes its place
			up.left = c.left
		}
	}
}

// makes says whether the change makes a directory.
func (c *change) makes() bool { return c.kind == beneath.Dir && c.old != beneath.Dir }
