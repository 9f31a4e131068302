package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/replace"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/textdiff"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// Edit is the tool that replaces a part of a file.
type Edit = editor[editInput]

// editInput is the input of Edit, and of MultiEdit as far as one edit goes.
type editInput struct {
	OldString  string `json:"old_string"`
	NewString  string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all"`
	// Occurrence is which of several places is meant, from 1, and Line near which line it
	// is; 0 for neither.
	Occurrence int `json:"occurrence"`
	Line       int `json:"line"`
	// Expected is how many places are to be replaced; 0 where that is not said.
	Expected int `json:"expected_replacements"`
}

// all reports whether every place is to be replaced.
func (in editInput) all() bool { return in.ReplaceAll || in.Expected > 1 }

func (editInput) tool() string          { return "edit" }
func (in editInput) edits() []editInput { return []editInput{in} }

// editsInput is the input of a tool that makes edits of one file, in order and all or none.
type editsInput interface {
	tool() string
	edits() []editInput
}

// editor is such a tool.
type editor[T editsInput] struct{}

type editSettings struct {
	Matching    replace.Matching `json:"matching"`
	RequireRead bool             `json:"require_read"`
	Durable     bool             `json:"durable"`
}

// Name implements Tool.
func (editor[T]) Name() string {
	var in T
	return in.tool()
}

func (editor[T]) onlyFiles() {}

func (editor[T]) writes() {}

// Resolve implements Direct.
func (editor[T]) Resolve(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	return resolveChange(ctx, env, input)
}

// Prepare implements Tool: it finds the places and shows one diff. How an edit
// fails that finds nothing is in Prepared.Result, since it quotes the file.
func (e editor[T]) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	file, asked, err := lookWhole(ctx, env, input)
	defer file.release()
	info := file.info
	if info.Path == "" {
		return prepareFailure(plain.Name(asked), nil, err)
	}
	prep := &Prepared{Targets: []Target{target(asked, info, true)}}
	title := relative(env, info.Path)
	if root.CodeOf(err) == root.TooLarge {
		prep.Result = largeEdit(title, info.Size)
		return prep, nil
	}
	if err != nil {
		return prepareFailure(title, prep.Targets, err)
	}
	in, err := e.input(input)
	if err != nil {
		return nil, err
	}
	if info.Exists {
		prep.Targets[0].SHA256 = sha256Hex(file.old)
	}
	c, err := e.plan(ctx, env, in, prep.Targets[0], file.old, nil)
	if err != nil {
		return nil, err
	}
	if prep.Result = c.refused; c.refused != nil {
		return prep, nil
	}
	prep.Diff = c.diff
	var s changeState
	for _, f := range c.found {
		s.Strategies = append(s.Strategies, f.Strategy)
	}
	prep.State = s.json()
	return prep, nil
}

func largeEdit(title string, size int64) *Result {
	return Failed(title, "cannot edit %s: it has %d bytes, and edit takes files of at most %d MiB. Use bash, for example with sed or a script.", title, size, maxEdit>>20)
}

// input is the edits of the input, unless one asks for nothing or for two things.
func (editor[T]) input(input json.RawMessage) ([]editInput, error) {
	in, err := inputOf[T](input)
	if err != nil {
		return nil, err
	}
	all := in.edits()
	for i, e := range all {
		choices := 0
		for _, given := range []bool{e.all(), e.Occurrence > 0, e.Line > 0} {
			if given {
				choices++
			}
		}
		switch {
		case e.OldString == e.NewString:
			return nil, Errorf(CodeInvalidInput, "%sold_string and new_string are the same: there is nothing to change", nth(i, all))
		case choices > 1:
			return nil, Errorf(CodeInvalidInput, "%sgive one of replace_all (or an expected_replacements above 1), occurrence and line: each says which place is meant", nth(i, all))
		}
	}
	return all, nil
}

// nth says which of several edits something is about; "" of the only one.
func nth(i int, all []editInput) string {
	if len(all) == 1 {
		return ""
	}
	return fmt.Sprintf("edit %d of %d: ", i+1, len(all))
}

// plan is what edits make of a file with this content; only are the strategies that
// decided before, nil for those of the settings.
func (e editor[T]) plan(ctx context.Context, env *Env, all []editInput, t Target, old []byte, only []replace.Strategy) (*change, error) {
	title := relative(env, t.Path)
	settings, err := settingsOf[editSettings](env)
	if err != nil {
		return nil, err
	}
	c := &change{content: old}
	if !t.Exists && all[0].OldString != "" {
		c.refused = Failed(title, "%s%s. An empty old_string creates a file.", nth(0, all), notFound(ctx, env, t.Path))
		return c, nil
	}
	if t.Exists && all[0].OldString == "" {
		// It was not asked whether the file may be read: nothing of its content decides.
		c.refused = creates(title, nth(0, all))
		return c, nil
	}
	if t.Exists {
		if c.refused = refusal(env, settings, t, old); c.refused != nil {
			return c, nil
		}
	}
	strategies, err := settings.Matching.Strategies()
	if err != nil {
		return nil, Errorf(CodeInternal, "settings of edit: %v", err)
	}
	if err := c.chain(ctx, all, t, title, strategies, only); err != nil || c.refused != nil {
		return c, err
	}
	if err := checkSize(env, t.Path, int64(len(c.content))); err != nil {
		c.refused, err = failure(title, err)
		return c, err
	}
	if t.Exists && bytes.Equal(old, c.content) {
		c.refused = Failed(title, "nothing to change in %s: the edits undo each other", title)
		return c, nil
	}
	var changes []textdiff.Change
	if len(all) == 1 && t.Exists {
		changes = changesOf(c.found[0], len(old)-len(bytes.TrimPrefix(old, textfile.BOM)))
	} else {
		changes = textdiff.Between(old, c.content)
	}
	c.diff, c.stat = diffOf(t.Path, old, c.content, changes)
	return c, nil
}

// creates refuses an edit that finds nothing, of a file that exists; at is as nth says it.
func creates(title, at string) *Result {
	return Failed(title, "%s%s exists: an empty old_string only creates files. Use write to replace all of it, or quote the part to change.", at, title)
}

// chain makes the edits of c.content, one after the other. The first of a file that does
// not exist creates it.
func (c *change) chain(ctx context.Context, all []editInput, t Target, title string, strategies, only []replace.Strategy) error {
	for i, in := range all {
		if i == 0 && !t.Exists {
			c.content = []byte(in.NewString)
			continue
		}
		if in.OldString == "" {
			c.refused = creates(title, nth(i, all))
			return nil
		}
		tried := strategies
		if n := len(c.found); n < len(only) {
			tried = only[n : n+1]
		}
		found, content, err := find(ctx, in, c.content, tried)
		if err != nil {
			c.refused, err = editFailure(title, t.Path, nth(i, all), in, err)
			return err
		}
		c.content, c.found = content, append(c.found, found)
	}
	return nil
}

// refusal is why an existing file is not edited whatever it contains; nil when
// it may be.
func refusal(env *Env, settings editSettings, t Target, old []byte) *Result {
	title := relative(env, t.Path)
	if kind := textfile.Sniff(old); kind.UTF16 != nil {
		return Failed(title, "cannot edit %s: it is %s. Change it with bash: as UTF-8 by iconv -f UTF-16 -t UTF-8, and back, or by a script.", title, kind.Name)
	} else if !kind.Text {
		return Failed(title, "cannot edit %s: it is %s. Use bash with a program that understands it.", title, kind.Name)
	}
	if at := textfile.InvalidUTF8(old, false); at >= 0 {
		return Failed(title, "cannot edit %s: it is not valid UTF-8 (first at byte %d)", title, at)
	}
	if settings.RequireRead && (env.Seen == nil || !env.Seen.Is(t.Path, sha256Hex(old))) {
		return Failed(title, "%s has not been read in its present state: read it first, then edit it", title)
	}
	return nil
}

// Run implements Tool.
func (e editor[T]) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	settings, err := settingsOf[editSettings](env)
	if err != nil {
		return nil, err
	}
	prep, s, err := changeOf(ctx, e, env, input, prep)
	if err != nil {
		return nil, err
	}
	if prep.Result != nil {
		return prep.Result, nil
	}
	title := relative(env, prep.Targets[0].Path)
	if r, err := e.absent(ctx, env, input, prep.Targets[0]); r != nil || err != nil {
		return r, err
	}
	p, err := begin(ctx, env, prep.Targets[0], input)
	if err != nil {
		return changeFailure(ctx, env, prep.Targets[0].Path, err)
	}
	defer p.Close()
	in, err := e.input(input)
	if err != nil {
		return nil, err
	}
	c, err := e.change(ctx, env, p, prep, in, s.Strategies)
	if err != nil {
		return failure(title, err)
	}
	if c.refused != nil {
		return c.refused, nil
	}
	done, err := p.commit(ctx, env, c, settings.Durable)
	if err != nil {
		return changeFailure(ctx, env, prep.Targets[0].Path, err)
	}
	return edited(env, done, c, !p.Info().Exists), nil
}

// absent refuses an edit of what does not exist, before anything is made for it.
func (e editor[T]) absent(ctx context.Context, env *Env, input json.RawMessage, t Target) (*Result, error) {
	if t.Exists {
		return nil, nil
	}
	held, err := reserve(ctx, env, 0, input)
	if err != nil {
		return failure(relative(env, t.Path), err)
	}
	defer held.Release()
	in, err := e.input(input)
	if err != nil {
		return nil, err
	}
	c, err := e.plan(ctx, env, in, t, nil, nil)
	if err != nil {
		return nil, err
	}
	return c.refused, nil
}

// change makes the new content from the file as it is now, which must be as Prepare
// saw it where that looked; then the strategies that decided there decide here.
func (e editor[T]) change(ctx context.Context, env *Env, p *begun, prep *Prepared, in []editInput, only []replace.Strategy) (*change, error) {
	was := prep.Targets[0]
	old, err := p.ReadOld(ctx, readable(p.Info().Size))
	switch {
	case root.CodeOf(err) == root.TooLarge && prep.State != nil:
		return nil, staleContent(was)
	case root.CodeOf(err) == root.TooLarge:
		return &change{refused: largeEdit(relative(env, was.Path), p.Info().Size)}, nil
	case err != nil:
		return nil, err
	}
	if err := checkStale(p.Info(), was, old); err != nil {
		return nil, err
	}
	c, err := e.plan(ctx, env, in, was, old, only)
	if err == nil && c.refused == nil && c.unlike(prep) {
		err = staleContent(was)
	}
	return c, err
}

// find gives the changes and the whole new content. Offsets of the changes do
// not count the byte order mark.
func find(ctx context.Context, in editInput, old []byte, strategies []replace.Strategy) (*replace.Found, []byte, error) {
	text := bytes.TrimPrefix(old, textfile.BOM)
	found, err := replace.Find(ctx, text, replace.Query{
		Old: strings.TrimPrefix(in.OldString, string(textfile.BOM)), New: strings.TrimPrefix(in.NewString, string(textfile.BOM)),
		All: in.all(), Occurrence: in.Occurrence, Line: in.Line, Expected: in.Expected, Strategies: strategies,
	})
	if err != nil {
		return nil, nil, err
	}
	if size := found.Size(text); size > maxEdit {
		return nil, nil, &tooLargeError{size}
	}
	content := found.Apply(text)
	if len(text) < len(old) {
		content = append(bytes.Clone(textfile.BOM), content...)
	}
	return found, content, nil
}

// tooLargeError means that the file would become larger than maxEdit.
type tooLargeError struct{ size int }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the file would become %d bytes large; the limit is %d", e.size, maxEdit)
}

// changesOf gives the changes as textdiff takes them; bom is the length of the
// byte order mark.
func changesOf(found *replace.Found, bom int) []textdiff.Change {
	changes := make([]textdiff.Change, len(found.Matches))
	shift := bom
	for i, m := range found.Matches {
		changes[i] = textdiff.Change{
			OldStart: bom + m.Start, OldEnd: bom + m.End,
			NewStart: shift + m.Start, NewEnd: shift + m.Start + len(m.New),
		}
		shift += len(m.New) - (m.End - m.Start)
	}
	return changes
}

func edited(env *Env, done *root.Committed, c *change, created bool) *Result {
	result := changed(env, done, c, created)
	if len(c.found) == 0 {
		result.Output = fmt.Sprintf("Created %s: %s, %s.%s", result.Title, plain.Count(len(c.content), "byte", "bytes"), plain.Count(c.stat.Added, "line", "lines"), kept(done))
		return result
	}
	places, strategy, inexact := 0, replace.Exact, ""
	for i, f := range c.found {
		places += len(f.Matches)
		if f.Strategy == replace.Exact {
			continue
		}
		strategy = f.Strategy
		of := ""
		if len(c.found) > 1 {
			of = fmt.Sprintf(" of edit %d", i+1)
		}
		inexact += fmt.Sprintf("\nold_string%s was not in the file exactly; it was found by %s matching.", of, f.Strategy)
	}
	result.Metadata["strategy"] = string(strategy)
	result.Metadata["places"] = places
	where := fmt.Sprintf("at line %d", c.found[0].Lines[0])
	if places > 1 {
		where = fmt.Sprintf("in %s, the first at line %d", plain.Count(places, "place", "places"), c.found[0].Lines[0])
	}
	if len(c.found) > 1 {
		where = fmt.Sprintf("by %d edits in %s", len(c.found), plain.Count(places, "place", "places"))
	}
	verb := "Edited"
	if created {
		verb = "Created"
	}
	result.Output = fmt.Sprintf("%s %s %s: %s.%s", verb, result.Title, where, c.stat, kept(done))
	result.Output += inexact
	result.Quote = whatChanged(c.diff, inexact != "", false)
	return result
}

// whatChanged shows a change: its lines as they are now, or the diff where what was replaced is not
// what was asked for. several says that it is of several files.
func whatChanged(diff string, inexact, several bool) string {
	if inexact {
		return " This is what changed:\n" + cutDiff(diff)
	}
	return linesNow(diff, several)
}

// shownDiff bounds a diff in an output.
const shownDiff = 4 << 10

func cutDiff(diff string) string {
	if len(diff) <= shownDiff {
		return strings.TrimSuffix(diff, "\n")
	}
	shown := diff[:strings.LastIndexByte(diff[:shownDiff], '\n')+1] // "" for one long line
	if shown == "" {
		shown = strings.ToValidUTF8(diff[:shownDiff], "") + "\n"
	}
	return shown + fmt.Sprintf("… (cut: %s more; read shows the file as it is now)", plain.Count(strings.Count(diff[len(shown):], "\n"), "line", "lines"))
}

// editFailure sorts the errors of find; at says of which edit it is, see nth.
func editFailure(title, path, at string, in editInput, err error) (*Result, error) {
	var (
		missing   *replace.NotFoundError
		ambiguous *replace.AmbiguousError
		span      *replace.SpanError
		noChange  *replace.NoChangeError
		tooLarge  *tooLargeError
		occurs    *replace.OccurrenceError
		counted   *replace.CountError
	)
	switch {
	case errors.Is(err, replace.ErrSameText), errors.Is(err, replace.ErrEmpty):
		return nil, Errorf(CodeInvalidInput, "%sold_string and new_string differ in nothing but line endings, or old_string has no text", at)
	case errors.As(err, &missing):
		r := Failed(title, "%sold_string was not found in %s%s.", at, title, afterOthers(at))
		if hasLineNumbers(in.OldString) {
			r.Output += " It has line numbers in front of its lines, as read shows them: leave them out, with the tab behind them."
		}
		if len(missing.Skipped) > 0 {
			r.Output += fmt.Sprintf(" Not tried: %s.", strings.Join(missing.Skipped, ", "))
		}
		r.Quote = nearestPassages(missing.Nearest, "old_string")
		r.Metadata = map[string]any{"reason": "not_found", "path": path}
		return r, nil
	case errors.As(err, &ambiguous):
		r := Failed(title, "%sold_string is not unique in %s%s: %s (%s matching). Quote more lines around the one place, say which with occurrence or line, or set replace_all.", at, title, afterOthers(at), err, ambiguous.Strategy)
		r.Metadata = map[string]any{"reason": "ambiguous", "strategy": string(ambiguous.Strategy), "places": ambiguous.Count, "lines": ambiguous.Lines}
		return r, nil
	case errors.As(err, &counted):
		way := fmt.Sprintf("Give %d to replace all of them, or occurrence or line for one.", counted.Count)
		if counted.Count == 1 {
			way = "Leave expected_replacements out to replace that one."
		}
		r := Failed(title, "%snothing was changed in %s%s: %s. %s", at, title, afterOthers(at), err, way)
		r.Metadata = map[string]any{"reason": "unexpected_count", "places": counted.Count, "lines": counted.Lines}
		return r, nil
	case errors.As(err, &occurs):
		r := Failed(title, "%scannot choose the place in %s: %s", at, title, err)
		r.Metadata = map[string]any{"reason": "ambiguous", "places": occurs.Count, "lines": occurs.Lines}
		return r, nil
	case errors.As(err, &span):
		r := Failed(title, "%srefused to edit %s: %s. Quote old_string as the file has it.", at, title, err)
		r.Metadata = map[string]any{"reason": "disproportionate"}
		return r, nil
	case errors.As(err, &noChange):
		return Failed(title, "%snothing to change in %s: %s", at, title, err), nil
	case errors.Is(err, replace.ErrTooMany), errors.Is(err, replace.ErrTooMuch), errors.As(err, &tooLarge):
		return Failed(title, "%scannot edit %s: %s", at, title, err), nil
	}
	return nil, Errorf(CodeAborted, "stopped before old_string was found: %v", err)
}

// afterOthers reminds of edits that went before in the same call; "" where at is of the
// only one.
func afterOthers(at string) string {
	if at == "" || strings.HasPrefix(at, "edit 1 ") {
		return ""
	}
	return " as the edits before it leave it"
}

// hasLineNumbers reports whether each line that is not empty begins with a number and
// what stands behind line numbers: the tab of read, or the marks of grep and others.
func hasLineNumbers(text string) bool {
	found := false
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) == "" {
			continue
		}
		rest := strings.TrimLeft(strings.TrimLeft(l, " "), "0123456789")
		if strings.TrimLeft(l, " ") == rest || !strings.HasPrefix(rest, "\t") && !strings.HasPrefix(rest, "→") && !strings.HasPrefix(rest, ": ") && !strings.HasPrefix(rest, "| ") {
			return false
		}
		found = true
	}
	return found
}

// nearestPassages shows the passages that resemble what was looked for, as what has it,
// with how they differ from it.
func nearestPassages(all []replace.Passage, what string) string {
	if len(all) == 0 {
		return " Nothing in the file resembles it: read the file again, or check the path."
	}
	var b strings.Builder
	fmt.Fprintf(&b, " The nearest passages (- is %s, + is the file):", what)
	for _, n := range all {
		last := n.Line + strings.Count(n.Text, "\n")
		fmt.Fprintf(&b, "\n\nlines %d-%d, %d%% similar:\n", n.Line, last, int(n.Similarity*100))
		old, text := []byte(n.Old+"\n"), []byte(n.Text+"\n")
		diff, _ := textdiff.Unified("", old, text, textdiff.Between(old, text), shownDiff)
		_, hunks, _ := strings.Cut(diff, "@@\n")
		b.WriteString(strings.TrimSuffix(hunks, "\n"))
	}
	return b.String()
}
