package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/search"
)

const (
	// ownSpanBytes is the largest file that the agent's own engine searches across
	// lines: it has less memory than a program of the sandbox.
	ownSpanBytes = 32 << 20
	// ownFileBytes is what is kept of the lines of one file before the others
	// have to wait for it.
	ownFileBytes = 64 << 10
)

// ownTime is the time that a search of the agent's own may take.
func ownTime(ctx context.Context) (context.Context, context.CancelFunc, time.Duration) {
	timeout := remaining(ctx)
	limited, cancel := context.WithTimeout(ctx, timeout)
	return limited, cancel, timeout
}

// ownEnd is how a walk of dir ended. limited is ctx with the time of the search.
func ownEnd(ctx, limited context.Context, timeout time.Duration, dir string, report search.Report, err error) (searchEnd, error) {
	switch {
	case err == nil:
		return searchEnd{partial: report.Partial, unreadable: report.Unreadable}, nil
	case ctx.Err() != nil:
		return cancelled(ctx)
	case limited.Err() != nil:
		return timedOut(timeout), nil
	case root.CodeOf(err) == root.Broken:
		return searchEnd{}, err
	default:
		return searchEnd{}, placeError(dir, err)
	}
}

// own searches without ripgrep.
func (g *grepSearch) own(ctx context.Context, env *Env, target root.Info) (searchEnd, error) {
	if g.in.Multiline && target.Kind == root.KindFile && target.Size > ownSpanBytes {
		return searchEnd{}, &root.Error{Code: root.TooLarge, Msg: fmt.Sprintf(
			"%s has %d bytes; without ripgrep only files of at most %d are searched across lines. Leave multiline out.",
			plain.Name(target.Path), target.Size, ownSpanBytes)}
	}
	query, err := search.Compile(g.in.Pattern, search.Options{
		Literal: g.in.Literal, IgnoreCase: g.in.IgnoreCase, Multiline: g.in.Multiline, CRLF: g.crlf(),
	})
	if said, ok := errors.AsType[*search.SyntaxError](err); ok {
		return searchEnd{fatal: said.Msg}, nil
	}
	if err != nil {
		return searchEnd{}, err
	}
	scratch := env.Root.NewScratch()
	defer scratch.Release()
	if err := query.Hold(scratch); err != nil {
		return searchEnd{partial: err.Error()}, nil
	}
	o := &ownGrep{search: g, root: env.Root, query: query}
	defer o.close()
	limited, cancel, timeout := ownTime(ctx)
	defer cancel()
	var report search.Report
	if target.Kind == root.KindFile {
		o.file(limited, 0, target.Path, true)
		err = context.Cause(limited)
	} else {
		report, err = search.Walk(limited, env.Root, target.Path, func(worker int, name string) bool {
			return o.file(limited, worker, name, false)
		})
	}
	if o.full { // however it ended, the answer is complete
		g.unread.least = true
		return searchEnd{}, nil
	}
	end, err := ownEnd(ctx, limited, timeout, target.Path, report, err)
	end.unreadable = end.unreadable || o.unreadable && end.partial == ""
	end.cut = o.cut
	return end, err
}

// ownGrep is a search with the agent's own engine.
type ownGrep struct {
	root      *root.Root
	query     *search.Query
	searchers [search.Workers]*search.Searcher // each its worker's

	mu         sync.Mutex // guards the fields below, and what search has found
	search     *grepSearch
	full       bool // nothing more is needed
	unreadable bool
	cut        int
}

// file searches one file; false means that nothing more is needed.
func (o *ownGrep) file(ctx context.Context, worker int, name string, named bool) bool {
	if !o.search.included(name) {
		return true
	}
	if o.search.unread.hides(name) {
		o.mu.Lock()
		o.search.unread.count(name)
		o.mu.Unlock()
		return true
	}
	f, err := o.root.Open(ctx, name)
	if err != nil {
		o.failed(ctx)
		return true
	}
	defer func() { _ = f.Close() }() // it was only read
	if o.search.in.Multiline && f.Info().Size > grepMultilineBytes {
		return true
	}
	out := &ownLines{grep: o, name: name}
	defer out.release() // also after a panic, or the others would wait for ever
	searcher := o.searcher(worker, named)
	found, err := searcher.File(ctx, f, func(number int, text []byte, match bool) bool {
		column := 0
		if match && len(text) > grepLineRunes && !o.search.in.Multiline {
			column = searcher.Column(text)
		}
		dropped := droppedBefore(column)
		text = text[:min(len(text), grepLineBytes)]
		return out.add(number, shownLine(text[min(dropped, len(text)):], dropped, column), match)
	})
	return out.end(found, err != nil && ctx.Err() == nil)
}

func (o *ownGrep) searcher(worker int, named bool) *search.Searcher {
	if o.searchers[worker] == nil {
		in := o.search.in
		spec := search.Spec{Named: named, MaxSpan: ownSpanBytes}
		switch in.OutputMode {
		case grepFiles:
			spec.Mode = search.First
		case grepCount:
			spec.Mode = search.Count
		default:
			spec.Context = in.Context
		}
		o.searchers[worker] = search.NewSearcher(o.query, spec, o.root)
	}
	return o.searchers[worker]
}

// close gives back the memory of the searchers.
func (o *ownGrep) close() {
	for _, s := range o.searchers {
		if s != nil {
			s.Close()
		}
	}
}

// failed notes a file that cannot be opened.
func (o *ownGrep) failed(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	o.mu.Lock()
	o.unreadable = true
	o.mu.Unlock()
}

// ownLines are the lines of one file. The first of them are kept until the file
// is searched, since the lines of a file must come in a row; when they are many,
// the others wait.
type ownLines struct {
	grep  *ownGrep
	name  string
	kept  []grepLine
	bytes int
	holds bool // grep.mu
}

// add takes one line.
func (l *ownLines) add(number int, text string, match bool) bool {
	if l.holds {
		return l.pass(number, text, match)
	}
	l.kept = append(l.kept, grepLine{number, text, match})
	if l.bytes += len(text) + grepEntryBytes; l.bytes < ownFileBytes {
		return true
	}
	return l.flush()
}

func (l *ownLines) pass(number int, text string, match bool) bool {
	o := l.grep
	o.full = o.full || !o.search.add(l.name, number, text, match)
	return !o.full
}

// flush begins to hold the others up.
func (l *ownLines) flush() bool {
	if !l.holds {
		l.grep.mu.Lock()
		l.holds = true
	}
	for _, k := range l.kept {
		if !l.pass(k.number, k.text, k.match) {
			break
		}
	}
	l.kept = nil
	return !l.grep.full
}

// release lets the others on.
func (l *ownLines) release() {
	if l.holds {
		l.holds = false
		l.grep.mu.Unlock()
	}
}

// end takes what there is to say of the file as a whole. unreadable says that it
// could not be read to its end.
func (l *ownLines) end(found search.Found, unreadable bool) bool {
	if found == (search.Found{}) && len(l.kept) == 0 && !l.holds && !unreadable {
		return true
	}
	l.flush()
	o := l.grep
	o.unreadable = o.unreadable || unreadable
	if o.full {
		return false
	}
	if found.Binary {
		o.search.binary++
	}
	if found.Cut {
		o.cut++
	}
	if found.Matches == 0 || o.search.in.OutputMode == grepContent {
		return true
	}
	f := o.search.file(l.name)
	if f == nil {
		o.full = true
		return false
	}
	f.count = found.Matches
	return true
}
