package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// Grep searches the contents of files with ripgrep.
type Grep struct{}

// Bounds of an answer of grep.
const (
	grepLimit     = 100  // matches, where the input does not say
	grepLineRunes = 2000 // characters shown of one line
	// grepLineBytes is what is looked at of one line, so that the match of a longer one
	// than is shown is in it. What ripgrep writes in place of the rest is never seen.
	grepLineBytes = 1 << 20
	// grepPathBytes holds a path and a message about another in front of it.
	grepPathBytes = 16 << 10
	// grepBytes bounds what is kept of all lines and paths together: a hundred
	// lines of text around each of a thousand matches would be too much for the
	// memory and for every reader.
	grepBytes = 1 << 20
	// grepEntryBytes is what one line or file takes besides its text.
	grepEntryBytes = 48
	// grepMultilineBytes is the largest file that is searched across lines:
	// ripgrep holds it in memory as a whole.
	grepMultilineBytes = 256 << 20
)

// The output modes of grep.
const (
	grepContent = "content"
	grepFiles   = "files"
	grepCount   = "count"
)

// grepInput is the input of grep.
type grepInput struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Include    string `json:"include"`
	Literal    bool   `json:"literal"`
	IgnoreCase bool   `json:"ignore_case"`
	Multiline  bool   `json:"multiline"`
	Context    int    `json:"context"`
	OutputMode string `json:"output_mode"`
	Limit      int    `json:"limit"`
}

// Name implements Tool.
func (Grep) Name() string { return "grep" }

// Prepare implements Tool.
func (Grep) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	return prepareSearch(ctx, env, input, true)
}

// Run implements Tool. Which matches fill the answer when there are more than
// the limit depends on the order in which ripgrep's threads come to the files;
// those that are answered are in the order of their paths.
func (Grep) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	in := grepInput{Limit: grepLimit, OutputMode: grepContent}
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	target, err := searchTarget(ctx, env, in.Path, prep, true)
	if err != nil {
		return failure(plain.Name(in.Path), err)
	}
	if in.Multiline && target.Kind == root.KindFile && target.Size > grepMultilineBytes {
		return Failed(plain.Name(in.Pattern), "%s has %d bytes; across lines only files of at most %d are searched. Leave multiline out.",
			plain.Name(target.Path), target.Size, grepMultilineBytes), nil
	}
	g := newGrepSearch(in, target)
	if g.unread, err = unreadOf(env); err != nil {
		return nil, err
	}
	if target.Kind == root.KindFile && g.unread.hides(target.Path) {
		g.unread.count(target.Path)
		return g.result(searchEnd{}), nil
	}
	if in.Include != "" && target.Kind == root.KindDir {
		if g.include, err = newSelector(in.Include, g.base); err != nil {
			return nil, err
		}
	}
	near := glimpse{whole: true}
	if target.Kind == root.KindDir {
		near = glimpseAt(ctx, env.Root, g.unread.rules, target.Path, smallTree)
	}
	run := ripgrepRun{args: g.args(), place: g.place, out: g.splitter(), small: near.whole, timeout: remaining(ctx)}
	counted := g.countUnread(ctx, env, near)
	end, err := run.run(ctx, env)
	g.unread = counted(run.out.done || err != nil)
	if err != nil {
		return searchFailure(in.Path, err)
	}
	if end.fatal != "" {
		return g.refused(end.fatal), nil
	}
	g.message(run.out.rest())
	if end.unreadable && target.Kind == root.KindFile && g.matches == 0 {
		return Failed(plain.Name(target.Path), "%s could not be read", plain.Name(target.Path)), nil
	}
	result := g.result(end)
	if g.matches == 0 && g.binary == 0 {
		why := ""
		if target.Kind == root.KindDir {
			var count int
			if count, why = g.inBinaries(ctx, env, target, near.whole); count > 0 {
				result.Metadata["binary_files"] = count
			}
		}
		if why == "" && target.Kind == root.KindDir {
			why = g.whyNone(ctx, env, target, near.whole)
		}
		if why == "" && end.partial == "" {
			why = g.otherForm(ctx, env, target, near.whole)
		}
		result.Output += why
	}
	return result, nil
}

// Bounds of the second look of a grep that found nothing.
const (
	grepWhyTime  = time.Second
	grepWhyFiles = 100
)

// inBinaries is for a search of a directory that found nothing: it counts the binary files that match, in which
// ripgrep looks at no more than the beginning by itself.
func (g *grepSearch) inBinaries(ctx context.Context, env *Env, target root.Info, small bool) (count int, said string) {
	in := g.in
	in.OutputMode, in.Limit = grepFiles, grepWhyFiles
	all := newGrepSearch(in, target)
	all.include, all.unread = g.include, &unread{rules: g.unread.rules}
	run := ripgrepRun{
		args: append(all.args(), "--binary"), place: g.place, out: all.splitter(), small: small, timeout: min(remaining(ctx), grepWhyTime),
	}
	end, err := run.run(ctx, env)
	if err != nil || all.matches == 0 {
		return 0, ""
	}
	match := plain.Count(all.matches, "binary file matches", "binary files match")
	if all.more || end.partial != "" {
		match = "at least " + match
	}
	first := slices.MinFunc(all.files, func(a, b *grepFile) int { return cmp.Compare(a.path, b.path) }).path
	return all.matches, fmt.Sprintf("\n(%s, for example %s: bash with grep -a shows what matches.)\n", match, plain.Name(first))
}

// whyNone is for a search of a directory that found nothing: the directory that include
// begins with is not there, or ignore files exclude what matches. It is "" where nothing
// of that is seen.
func (g *grepSearch) whyNone(ctx context.Context, env *Env, target root.Info, small bool) string {
	if g.include != nil {
		if why := namedDir(ctx, env, g.base, g.in.Include); why != "" {
			return why
		}
	}
	in := g.in
	in.OutputMode, in.Limit = grepFiles, grepWhyFiles
	all := newGrepSearch(in, target)
	all.include, all.unread = g.include, &unread{rules: g.unread.rules}
	run := ripgrepRun{
		args: append(all.args(), withoutGit), place: g.place, out: all.splitter(), all: true, small: small, timeout: min(remaining(ctx), grepWhyTime),
	}
	end, err := run.run(ctx, env)
	if err != nil || all.matches == 0 {
		return ""
	}
	slices.SortFunc(all.files, func(a, b *grepFile) int { return cmp.Compare(a.path, b.path) })
	first := all.files[0].path
	next := "set path to the file to search it; bash finds all such files"
	if dir := (fileWalk{place: g.place, base: g.base, small: small}).findable(ctx, env, first); dir != "" {
		next = "set path to " + plain.Name(dir) + " to search what is there"
	}
	return excluded(all.matches, all.more || end.partial != "", first, next)
}

// grepSearch gathers the answer of one call.
type grepSearch struct {
	in      grepInput
	base    string // canonical path that is searched
	place   place
	include *selector // nil = all files
	unread  *unread   // files that are not searched, as rules want it
	last    string    // path of the record before, as ripgrep says it

	files   []*grepFile
	bytes   int  // kept of grepBytes
	full    bool // something did not fit in grepBytes
	matches int  // matching lines, or files in the other modes
	more    bool // there is a match more
	binary  int  // files of which ripgrep shows not all matches
}

// grepFile is what was found in one file.
type grepFile struct {
	path  string
	count int // of mode count
	lines []grepLine
}

type grepLine struct {
	number int
	text   string
	match  bool // or a line around one
	crlf   bool // it ends in CRLF
}

func newGrepSearch(in grepInput, target root.Info) *grepSearch {
	where := placeOf(target)
	return &grepSearch{in: in, base: target.Path, place: where, last: where.arg}
}

func (g *grepSearch) args() []string {
	args := []string{"--null", "--with-filename"}
	switch g.in.OutputMode {
	case grepFiles:
		args = append(args, "--files-with-matches")
	case grepCount:
		args = append(args, "--count")
	default:
		args = append(args,
			"--no-heading", "--line-number", "--column", "--no-context-separator",
			`--field-match-separator=\x00:`, `--field-context-separator=\x00-`,
			"--context="+strconv.Itoa(g.in.Context),
			// Bounds what ripgrep gathers of one file before it writes it.
			"--max-count="+strconv.Itoa(g.in.Limit+1),
			"--max-columns="+strconv.Itoa(grepLineBytes), "--max-columns-preview")
	}
	if g.crlf() {
		args = append(args, "--crlf")
	}
	if g.in.Literal {
		args = append(args, "--fixed-strings")
	}
	if g.in.IgnoreCase {
		args = append(args, "--ignore-case")
	}
	if g.in.Multiline {
		args = append(args, "--multiline", "--multiline-dotall", "--max-filesize="+strconv.Itoa(grepMultilineBytes))
		if g.marks() {
			args = append(args, markMatches...)
		}
	}
	if g.include != nil {
		if glob := g.include.typeGlob(); glob != "" {
			args = append(args, "--type-add=toold:"+glob, "--type=toold")
		}
	}
	return append(args, "--regexp="+g.in.Pattern)
}

func (g *grepSearch) splitter() *splitter {
	file := splitField{end: 0, keep: grepPathBytes}
	number := splitField{end: 0, keep: 20}
	switch g.in.OutputMode {
	case grepFiles:
		return &splitter{fields: []splitField{file}, visit: func(f [][]byte) bool {
			return g.file(g.place.path(string(f[0]))) != nil
		}}
	case grepCount:
		number.end = '\n'
		return &splitter{fields: []splitField{file, number}, visit: func(f [][]byte) bool {
			found := g.file(g.place.path(string(f[0])))
			if found != nil {
				found.count, _ = strconv.Atoi(strings.TrimSuffix(string(f[1]), "\r")) // with --crlf
			}
			return found != nil
		}}
	default:
		// Only a match has a column, if ripgrep finds it again in its line, and a mark
		// stands before each column and text.
		column := splitField{end: 0, keep: lineKeep, only: ':', stop: '\n'}
		text := splitField{end: '\n', keep: lineKeep, drop: func(f [][]byte) int { return 1 + droppedBefore(g.column(f[2])) }}
		if g.marks() {
			text.keep = grepLineBytes // where its match is will be known at its end
		}
		return &splitter{fields: []splitField{file, number, column, text}, visit: g.line}
	}
}

// crlf reports whether $ is to match before a carriage return at the end of a line,
// which no other part of the pattern matches then.
func (g *grepSearch) crlf() bool {
	return !g.in.Literal && !g.in.Multiline && strings.Contains(g.in.Pattern, "$") &&
		!slices.ContainsFunc([]string{"\r", `\r`, `\x`, `\u`, `\U`}, func(s string) bool { return strings.Contains(g.in.Pattern, s) })
}

// column reads the column of a match; 0 = unknown. Across lines it is that of the first
// of them, and marks say where matches begin.
func (g *grepSearch) column(field []byte) int {
	n, err := strconv.Atoi(strings.TrimPrefix(string(field), ":"))
	if err != nil || g.in.Multiline {
		return 0
	}
	return n
}

// skipped stands for a file that include leaves out.
var skipped = &grepFile{}

// file counts a file of the modes files and count; nil means that it would be one
// too many.
func (g *grepSearch) file(name string) *grepFile {
	if !g.wanted(name) {
		return skipped
	}
	if g.matches == g.in.Limit || !g.room(len(name)) {
		g.more = true
		return nil
	}
	g.matches++
	f := &grepFile{path: name}
	g.files = append(g.files, f)
	return f
}

// room takes n bytes, and those of an entry, from what may be kept. Once
// something did not fit there is room for nothing.
func (g *grepSearch) room(n int) bool {
	g.bytes += n + grepEntryBytes
	g.full = g.full || g.bytes > grepBytes
	return !g.full
}

// line takes one line of mode content: path, number, of matches the column, and the
// text. The lines of one file come in a row.
func (g *grepSearch) line(f [][]byte) bool {
	g.last = g.unstyled(g.message(string(f[0])))
	number, err := strconv.Atoi(g.unstyled(string(f[1])))
	if err != nil {
		return true // not one of ripgrep's lines
	}
	column := g.column(f[2])
	if g.marks() {
		f[3], column = unmarked(f[3])
		f[3] = f[3][droppedBefore(column):]
	}
	dropped := droppedBefore(column)
	text := f[3][:min(len(f[3]), max(grepLineBytes-dropped, 0))] // behind that ripgrep says that it is cut
	shown := grepLine{number, shownLine(text, dropped, column), len(f[2]) > 0, bytes.HasSuffix(text, []byte{'\r'})}
	return g.add(g.place.path(g.last), shown)
}

// add takes one line of the file name; false means that no more are needed.
func (g *grepSearch) add(name string, l grepLine) bool {
	if !g.wanted(name) {
		return true
	}
	if l.match && g.matches == g.in.Limit {
		g.more = true
		return false
	}
	size := len(l.text)
	n := len(g.files)
	other := n == 0 || g.files[n-1].path != name
	if other {
		size += len(name) + grepEntryBytes
	}
	if !g.room(size) {
		// A match decides: lines around the last one that is shown are no
		// matches more.
		g.more = l.match
		return !l.match
	}
	if l.match {
		g.matches++
	}
	if other {
		g.files = append(g.files, &grepFile{path: name})
	}
	file := g.files[len(g.files)-1]
	file.lines = append(file.lines, l)
	return true
}

func (g *grepSearch) wanted(name string) bool { return g.included(name) && !g.unread.hides(name) }

func (g *grepSearch) included(name string) bool {
	return g.include == nil || g.include.match(below(name, g.base))
}

// countDelay is how long ripgrep runs before the files that it must not show are looked
// for beside it: a search that soon has all that it may answer with costs nothing more.
const countDelay = 20 * time.Millisecond

// countUnread begins to look for the files that ripgrep must not show, beside it.
// ripgrep cannot tell: it names only files with a match, and whether such a file has
// one is what must not be known. The function that it gives waits for the count, or
// where that is not worth its time stops it. near is what is known of the directory.
func (g *grepSearch) countUnread(ctx context.Context, env *Env, near glimpse) func(stop bool) *unread {
	u := &unread{rules: g.unread.rules}
	if u.rules == nil || near.whole && !near.mayHide {
		return func(bool) *unread { return u }
	}
	timeout := remaining(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	ended := make(chan struct{}) // ripgrep has
	done.Go(func() {
		delay := time.NewTimer(countDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-ended:
		}
		if all := glimpseAt(ctx, env.Root, u.rules, g.base, countedTree); all.whole && !all.mayHide {
			return
		}
		walk := fileWalk{place: g.place, base: g.base, sel: g.include, small: near.whole, found: func(name string) {
			if g.unread.hides(name) {
				u.count(name)
			}
		}}
		end, err := walk.run(ctx, env, timeout)
		u.least = err != nil || end.partial != "" || end.fatal != ""
	})
	return func(stop bool) *unread {
		if stop {
			cancel()
		}
		close(ended)
		done.Wait()
		cancel()
		return u
	}
}

// message takes what ripgrep says about a binary file off the front of the next
// path. It is a line of text among the records: the path of the file before, of
// which matches may have been shown, and what was met there.
func (g *grepSearch) message(s string) string {
	said, ok := strings.CutPrefix(s, g.styled(g.last)+": ")
	if !ok || !strings.HasPrefix(said, "WARNING: stopped searching binary file") &&
		!strings.HasPrefix(said, "binary file matches (found ") {
		return s
	}
	if g.wanted(g.place.path(g.last)) {
		g.binary++
	}
	_, next, _ := strings.Cut(said, "\n")
	return next
}

// refused is the answer to a pattern that the engine does not take. ripgrep's advice
// is about flags that nobody can give it here, so it is replaced by ours.
func (g *grepSearch) refused(said string) *Result {
	said, advice, _ := strings.Cut(said, "\n\nConsider ")
	hint := "Set literal to search for plain text."
	switch {
	case strings.Contains(advice, "multiline") || strings.Contains(said, `"\n"`):
		hint = "Set multiline to search across lines."
	case g.in.Literal:
		hint = ""
	case strings.Contains(said, "look-around"), strings.Contains(said, "backreference"):
		hint = "There are no look-arounds and no back-references: search for a part that needs none, or use bash with grep -P."
	case strings.Contains(said, "size limit"):
		hint = "The pattern is too large when it is compiled: use fewer or smaller repetitions, or several searches."
	}
	return Failed(g.title(), "grep does not take this pattern:\n%s\n%s", strings.TrimSpace(said), hint)
}

func (g *grepSearch) title() string { return plain.Name(g.in.Pattern) }

func (g *grepSearch) result(end searchEnd) *Result {
	slices.SortStableFunc(g.files, func(a, b *grepFile) int { return cmp.Compare(a.path, b.path) })
	var b strings.Builder
	b.WriteString(g.headline())
	names := make([]string, 0, len(g.files))
	for _, f := range g.files {
		names = append(names, f.path)
		g.write(&b, f)
	}
	noteForms(&b, names)
	meta := map[string]any{
		"matches": g.matches, "files": len(g.files), "more": g.more,
		"truncated": g.more || g.full || end.partial != "",
	}
	if g.binary > 0 {
		if g.matches > 0 {
			fmt.Fprintf(&b, "\n(%s, of which not all matches are shown.)\n", plain.Count(g.binary, "binary file matches", "binary files match"))
		}
		meta["binary_files"] = g.binary
	}
	if g.full {
		fmt.Fprintf(&b, "\n(The answer ends at its limit of %d KiB. Ask for fewer lines of context, or search a smaller part.)\n", grepBytes>>10)
	}
	g.unread.note(&b, meta, end.partial != "", "file not searched", "files not searched")
	end.note(&b, meta)
	return &Result{Title: g.title(), Output: b.String(), Metadata: meta}
}

func (g *grepSearch) headline() string {
	one, many := "match", "matches"
	if g.in.OutputMode != grepContent {
		one, many = "file with matches", "files with matches"
	}
	switch {
	case g.matches == 0 && g.binary > 0:
		return plain.Count(g.binary, "binary file matches", "binary files match") + ".\n"
	case g.matches == 0:
		return "No matches found.\n"
	case g.more:
		return fmt.Sprintf("Found more than %d %s; these are %d of them. Narrow the search to see the others.\n",
			g.matches, many, g.matches)
	case g.matches == 1:
		return fmt.Sprintf("Found 1 %s.\n", one)
	default:
		return fmt.Sprintf("Found %d %s.\n", g.matches, many)
	}
}

// ends says of which lines that are shown of a file the ends are not what they seem to be; "" of none.
func (f *grepFile) ends() string {
	crlf := 0
	for _, l := range f.lines {
		if l.crlf {
			crlf++
		}
	}
	switch crlf {
	case 0:
		return ""
	case len(f.lines):
		return " (CRLF line ends)"
	}
	return fmt.Sprintf(" (CRLF at the end of %d of these lines)", crlf)
}

func (g *grepSearch) write(b *strings.Builder, f *grepFile) {
	switch name := plain.Name(f.path); g.in.OutputMode {
	case grepFiles:
		fmt.Fprintf(b, "%s\n", name)
	case grepCount:
		fmt.Fprintf(b, "%s: %d\n", name, f.count)
	default:
		fmt.Fprintf(b, "\n%s%s:\n", name, f.ends())
		for i, l := range f.lines {
			if i > 0 && g.in.Context > 0 && l.number > f.lines[i-1].number+1 {
				b.WriteString("  --\n")
			}
			mark := "-"
			if l.match {
				mark = ":"
			}
			fmt.Fprintf(b, "  %d%s %s\n", l.number, mark, l.text)
		}
	}
}

// below is the path of name, a canonical path, relative to base.
func below(name, base string) string {
	rel := strings.TrimPrefix(strings.TrimPrefix(name, strings.TrimSuffix(base, "/")), "/")
	if rel == "" {
		return path.Base(name)
	}
	return rel
}
