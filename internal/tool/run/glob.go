package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/globpath"
	"github.com/toold/toold/internal/tool/run/root"
)

// Glob finds files by name with ripgrep's walk.
type Glob struct{}

const (
	// globLimit is how many files one answer names.
	globLimit = 100
	// globWorkers ask for the age of files at once. More than the threads of a
	// Root, so that a thread finds the next file waiting: going to sleep and
	// being woken costs it more than the question.
	globWorkers = 16
	// globBatch is how many files each of them asks for at a time, and globBatchBytes
	// what their paths may come to.
	globBatch      = 128
	globBatchBytes = 32 << 10
)

// globInput is the input of glob.
type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

// Name implements Tool.
func (Glob) Name() string { return "glob" }

// Prepare implements Tool.
func (Glob) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	in, err := globInputOf(input)
	if err != nil {
		return nil, err
	}
	prep, err := prepareIn(ctx, env, in.dir, false)
	if prep != nil && prep.Result != nil && in.Path == "" && strings.HasPrefix(in.Pattern, "/") {
		prep.Result.Output += ". A pattern that begins with / is a path from the root; for files below the worktree leave the / out"
	}
	return prep, err
}

// globPlace is the input with the place that it names.
type globPlace struct {
	globInput
	dir, rest string
}

func globInputOf(input json.RawMessage) (in globPlace, err error) {
	if err = decodeInput(input, &in.globInput); err == nil {
		in.dir, in.rest = globpath.Split(in.Path, in.Pattern)
	}
	return in, err
}

// Run implements Tool. The age of every file that matches is looked at:
// ripgrep's own sorting by age is no help, because before version 14 it sorts
// each directory by itself, and because it says nothing until it has seen all.
func (Glob) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	in, err := globInputOf(input)
	if err != nil {
		return nil, err
	}
	if prep != nil && prep.Result != nil {
		return prep.Result, nil
	}
	target, err := searchTarget(ctx, env, in.dir, prep, false)
	if err != nil {
		return failure(plain.Name(cmp.Or(in.dir, ".")), err)
	}
	sel, err := newSelector(in.rest, target.Path)
	if err != nil {
		return nil, err
	}
	hidden, err := unreadOf(env)
	if err != nil {
		return nil, err
	}
	ages := startAges(ctx, env.Root)
	small := glimpseAt(ctx, env.Root, nil, target.Path, smallTree).whole
	f := fileWalk{place: placeOf(target), base: target.Path, sel: sel, small: small, found: func(name string) {
		if !hidden.hidesName(name) {
			ages.ask(name)
		}
	}}
	end, err := f.run(ctx, env, remaining(ctx))
	ages.wait()
	if err != nil {
		return searchFailure(in.dir, err)
	}
	if end.fatal != "" {
		return nil, Errorf(CodeSandboxFailed, "ripgrep cannot list files: %s", end.fatal)
	}
	result := globResult(in.globInput, ages, hidden, end)
	if ages.total == 0 && end.partial == "" {
		result.Output += whyNone(ctx, env, f, in.rest) + otherGlob(ctx, env, f, in.rest, hidden)
	}
	return result, nil
}

// otherGlob looks once more, in the forms that a glob which found nothing may mean: a list or an
// extension, and letters of the other case. It says which finds something; "" where none does.
func otherGlob(ctx context.Context, env *Env, f fileWalk, glob string, hidden *unread) string {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(env.Patience, grepFormTime))
	defer cancel()
	for _, other := range []string{betterInclude(glob), anyCase(glob), anyCase(betterInclude(glob))} {
		sel, err := newSelector(other, f.base)
		if err != nil || other == glob {
			continue
		}
		n, first := 0, ""
		f.sel, f.found = sel, func(name string) {
			if hidden.hidesName(name) {
				return
			}
			if n++; first == "" || name < first {
				first = name
			}
		}
		end, err := f.run(ctx, env, max(time.Millisecond, remaining(ctx)))
		if ctx.Err() != nil {
			return ""
		}
		if err == nil && n > 0 && end.partial == "" {
			return fmt.Sprintf("\n(The glob %s finds %s, for example %s.)\n", plain.Name(other), plain.Count(n, "file", "files"), plain.Name(first))
		}
	}
	return ""
}

// anyCase is a glob whose letters match those of the other case too; as it is where it has classes
// of characters of its own.
func anyCase(glob string) string {
	if strings.ContainsAny(glob, `[\`) {
		return glob
	}
	var b strings.Builder
	for _, r := range glob {
		if low, up := unicode.ToLower(r), unicode.ToUpper(r); low != up {
			fmt.Fprintf(&b, "[%c%c]", low, up)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// ages sorts files by age while they are still being found, and holds no more
// of them than an answer shows.
type ages struct {
	ready chan []string // the files, some at a time; closed by wait
	done  sync.WaitGroup
	batch []string // belongs to who calls ask and wait
	bytes int      // of batch

	mu     sync.Mutex // guards the fields below
	total  int
	newest []agedFile // at most globLimit, the newest first
}

type agedFile struct {
	path string
	time time.Time
}

func startAges(ctx context.Context, r *root.Root) *ages {
	a := &ages{ready: make(chan []string, globWorkers)}
	for range globWorkers {
		a.done.Go(func() {
			for names := range a.ready {
				a.look(ctx, r, names)
			}
		})
	}
	return a
}

// look takes the ages of some files in one trip to a thread of the file tools:
// the trip costs several times what the look does.
func (a *ages) look(ctx context.Context, r *root.Root, names []string) {
	r.LstatEach(ctx, names, func(name string, info root.Info, err error) {
		// What has vanished meanwhile is no result; without time, it is one of
		// unknown age.
		if err == nil || ctx.Err() != nil {
			a.add(agedFile{name, info.ModTime})
		}
	})
}

// ask wants the age of one more file.
func (a *ages) ask(name string) {
	a.batch = append(a.batch, name)
	if a.bytes += len(name); len(a.batch) >= globBatch || a.bytes >= globBatchBytes {
		a.ready <- a.batch
		a.batch, a.bytes = nil, 0
	}
}

func (a *ages) wait() {
	if len(a.batch) > 0 {
		a.ready <- a.batch
	}
	close(a.ready)
	a.done.Wait()
}

func (a *ages) add(f agedFile) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total++
	at, _ := slices.BinarySearchFunc(a.newest, f, func(x, y agedFile) int {
		return cmp.Or(y.time.Compare(x.time), cmp.Compare(x.path, y.path))
	})
	if at == globLimit {
		return
	}
	if len(a.newest) == globLimit {
		a.newest = a.newest[:globLimit-1]
	}
	a.newest = slices.Insert(a.newest, at, f)
}

func globResult(in globInput, a *ages, hidden *unread, end searchEnd) *Result {
	var b strings.Builder
	names := make([]string, 0, len(a.newest))
	for _, f := range a.newest {
		names = append(names, f.path)
		fmt.Fprintf(&b, "%s\n", plain.Name(f.path))
	}
	more := a.total > globLimit
	switch {
	case a.total == 0:
		b.WriteString("No files found.\n")
	case more:
		fmt.Fprintf(&b, "\n(There are more files: these are the %d newest of %d. Narrow the pattern or set path.)\n", globLimit, a.total)
	}
	meta := map[string]any{"count": len(a.newest), "total": a.total, "more": more, "truncated": more || end.partial != ""}
	noteForms(&b, names)
	hidden.note(&b, meta, end.partial != "", "file left out", "files left out")
	end.note(&b, meta)
	return &Result{Title: plain.Name(in.Pattern), Output: b.String(), Metadata: meta}
}
