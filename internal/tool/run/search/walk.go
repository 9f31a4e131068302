package search

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/toold/toold/internal/tool/run/root"
)

const (
	// workers is how many directories are looked through at once.
	workers = 2
	// maxPending is what directories that are known and not looked through yet may
	// take of the memory, in bytes: their paths may be long.
	maxPending = 20 << 20
	// lentFor is how many directories a worker looks through on a thread that it is
	// lent.
	lentFor = 32
	// pendingBytes is what one takes besides its path.
	pendingBytes = 48
)

// Report is what there is to say of a walk besides what it found.
type Report struct {
	// Unreadable: a directory could not be read.
	Unreadable bool
	// Partial says, in words, why not everything was walked; "" = it was.
	Partial string
}

// noScratch is why a search ends that gets no more memory.
const noScratch = "the searches of this session that run now take all the memory that there is for them"

// Visit is called for each file of a walk with its canonical path, by several
// goroutines at a time, each with its own worker number below Workers. False
// ends the walk.
type Visit func(worker int, path string) bool

// Workers bounds the worker numbers that a Visit is called with.
const Workers = workers

// Walk calls visit for every regular file below dir, a canonical path, that no
// ignore file leaves out. What is named .git is left out too; links are not
// followed. The error is ctx's, or says that dir cannot be read. A panic of visit is
// the caller's.
func Walk(ctx context.Context, r *root.Root, dir string, visit Visit) (Report, error) {
	return (&walk{root: r, visit: visit}).run(ctx, dir, workers)
}

// WalkAll is Walk without ignore files, and with what is named .git.
func WalkAll(ctx context.Context, r *root.Root, dir string, visit Visit) (Report, error) {
	return (&walk{root: r, visit: visit, all: true}).run(ctx, dir, workers)
}

// WalkOnly is Walk for the files that may is true of, by their directory and name. The
// others cost no more than that question. Only one goroutine calls visit: this goes
// along with a search that has all processors.
func WalkOnly(ctx context.Context, r *root.Root, dir string, may func(dir string, name []byte) bool, visit Visit) (Report, error) {
	return (&walk{root: r, may: may, visit: visit}).run(ctx, dir, 1)
}

func (w *walk) run(ctx context.Context, dir string, workers int) (Report, error) {
	w.left, w.scratch = ignoreTotalBytes, w.root.NewScratch()
	defer w.scratch.Release()
	w.wake.L = &w.mu
	w.reader = ignoreReader{root: w.root, base: dir, spend: w.spend, cut: w.cutFile}
	stop := context.AfterFunc(ctx, w.end)
	defer stop()
	first := pendingDir{path: dir}
	if !w.all {
		first.above = w.reader.chain(ctx)
	}
	w.add(first)
	var done sync.WaitGroup
	for i := range workers {
		done.Go(func() { w.work(ctx, i) })
	}
	done.Wait()
	if w.panicked != nil {
		panic(w.panicked)
	}
	if err := w.root.Err(); err != nil {
		return w.report, err
	}
	if err := context.Cause(ctx); err != nil {
		return w.report, err
	}
	return w.report, w.failed
}

// walk is one run of Walk.
type walk struct {
	root   *root.Root
	may    func(dir string, name []byte) bool // nil: all
	all    bool                               // no ignore file counts, and .git is walked
	visit  Visit
	reader ignoreReader
	// scratch has the memory of rules and of pending.
	scratch *root.Scratch

	mu      sync.Mutex // guards the fields below
	wake    sync.Cond  // of mu: pending has grown, or the walk is over
	pending []pendingDir
	waiting int // bytes of pending
	busy    int // workers that are in a directory
	over    bool
	left    int // bytes that rules may still take
	report  Report
	failed  error // why the directory that is searched cannot be read
	// panicked is what a worker has panicked with: nobody else would recover it.
	panicked any
}

type pendingDir struct {
	path  string
	above *level
}

func (d *pendingDir) size() int { return len(d.path) + pendingBytes }

// end stops the walk.
func (w *walk) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.wake.Broadcast()
}

func (w *walk) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// partial ends the walk before its end, for a reason.
func (w *walk) partial(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.report.Partial == "" {
		w.report.Partial = why
	}
	w.over = true
	w.wake.Broadcast()
}

func (w *walk) spend(n int) bool {
	w.mu.Lock()
	w.left -= n
	ok := w.left >= 0
	w.mu.Unlock()
	if !ok {
		w.partial(fmt.Sprintf("its ignore files take more than %d MiB", ignoreTotalBytes>>20))
		return false
	}
	if !w.scratch.Take(int64(n)) {
		w.partial(noScratch)
		return false
	}
	return true
}

func (w *walk) cutFile(name string) {
	w.partial(fmt.Sprintf("the ignore file %q is larger than %d KiB", name, ignoreFileBytes>>10))
}

// take gives a directory that has not been looked through. Where there is none now
// it waits for one, if it may; false means that there will be none, or is none now.
func (w *walk) take(wait bool) (pendingDir, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch n := len(w.pending); {
		case w.over:
			return pendingDir{}, false
		case n > 0:
			dir := w.pending[n-1]
			w.pending[n-1] = pendingDir{}
			w.pending = w.pending[:n-1]
			w.waiting -= dir.size()
			w.scratch.Give(int64(dir.size()))
			w.busy++
			return dir, true
		case w.busy == 0 || !wait:
			return pendingDir{}, false
		}
		w.wake.Wait()
	}
}

func (w *walk) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	w.wake.Broadcast()
}

// add puts a directory off.
func (w *walk) add(dir pendingDir) {
	w.mu.Lock()
	full := w.waiting+dir.size() > maxPending
	none := !full && !w.scratch.Take(int64(dir.size()))
	if !full && !none {
		w.waiting += dir.size()
		w.pending = append(w.pending, dir)
		w.wake.Signal()
	}
	w.mu.Unlock()
	if none {
		w.partial(noScratch)
	}
	if full {
		w.partial(fmt.Sprintf("the directories that wait to be searched take more than %d MiB", maxPending>>20))
	}
}

func (w *walk) unreadable(dir string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Unreadable = true
	if dir == w.reader.base {
		w.failed = err
	}
}

func (w *walk) work(ctx context.Context, worker int) {
	defer func() {
		if p := recover(); p != nil {
			w.mu.Lock()
			w.panicked = p
			w.mu.Unlock()
			w.end()
		}
	}()
	globs := globber{ctx: ctx}
	for {
		dir, ok := w.take(true)
		if !ok {
			return
		}
		// Some directories at a time are done on one thread: going to another for
		// each file costs more than opening it, and to be lent one more than to read
		// a small directory.
		err := w.root.Lend(ctx, func() {
			for n := 1; ; n++ {
				w.directory(ctx, worker, &globs, dir)
				w.leave()
				if n == lentFor {
					return
				}
				if dir, ok = w.take(false); !ok {
					return
				}
			}
		})
		if err != nil {
			w.end()
		}
	}
}

func (w *walk) directory(ctx context.Context, worker int, globs *globber, dir pendingDir) {
	prefix := strings.TrimSuffix(dir.path, "/") + "/"
	var rules *level
	take := func(e root.Entry) bool {
		if w.ended() {
			return false
		}
		if e.Name == ".git" && !w.all || e.Kind != root.KindDir && e.Kind != root.KindFile {
			return true
		}
		full := prefix + e.Name
		hidden := rules.ignored(globs, full, e.Kind == root.KindDir)
		if ctx.Err() != nil {
			return false // it may not have been judged to the end
		}
		if hidden {
			return true
		}
		if e.Kind == root.KindDir {
			w.add(pendingDir{full, rules})
			return true
		}
		if !w.visit(worker, full) {
			w.end()
			return false
		}
		return true
	}
	var err error
	if w.may == nil {
		if !w.all {
			rules = w.reader.level(ctx, dir.above, dir.path)
		}
		err = w.root.ReadDir(ctx, dir.path, take)
	} else {
		var few []root.Entry
		var own bool
		few, own, err = w.few(ctx, dir.path, prefix)
		if rules = dir.above; own {
			rules = w.reader.level(ctx, dir.above, dir.path)
		}
		for _, e := range few {
			if !take(e) {
				break
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		w.unreadable(dir.path, err)
	}
}

// maxFew is how many entries of one directory few gives.
const maxFew = 16 << 10

// few lists the directories in a directory, and the files that may be wanted. own
// reports whether there may be rules in it: to look for each kind of ignore file in
// each directory would cost more than all the rest.
func (w *walk) few(ctx context.Context, dir, prefix string) (few []root.Entry, own bool, err error) {
	keep := func(name []byte, kind root.Kind) bool {
		switch string(name) {
		case ".git", ".gitignore", ".ignore", ".rgignore":
			own = true
		}
		return kind == root.KindDir || (kind == root.KindFile || kind == root.KindUnknown) && w.may(prefix, name)
	}
	err = w.root.ReadDirOnly(ctx, dir, keep, func(e root.Entry) bool {
		few = append(few, e)
		if len(few) == maxFew {
			w.partial(fmt.Sprintf("the directory %q has too many entries", dir))
		}
		return !w.ended()
	})
	return few, own, err
}
