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
type Edit struct{}

type editInput struct {
	FilePath   string `json:"file_path"`
	OldString  string `json:"old_string"`
	NewString  string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all"`
}

func (in editInput) path() string { return in.FilePath }

type editSettings struct {
	Matching    replace.Matching `json:"matching"`
	RequireRead bool             `json:"require_read"`
	Durable     bool             `json:"durable"`
}

// Name implements Tool.
func (Edit) Name() string { return "edit" }

func (Edit) onlyFiles() {}

// Resolve implements Direct.
func (Edit) Resolve(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	return resolveChange[editInput](ctx, env, input)
}

// Prepare implements Tool: it finds the place and shows the diff. How an edit
// fails that finds nothing is in Prepared.Result, since it quotes the file.
func (e Edit) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	file, asked, err := lookWhole[editInput](ctx, env, input)
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
	in, err := e.input(env, input)
	if err != nil {
		return nil, err
	}
	if info.Exists {
		prep.Targets[0].SHA256 = sha256Hex(file.old)
	}
	c, err := e.plan(ctx, env, in, prep.Targets[0], file.old, "")
	if err != nil {
		return nil, err
	}
	if prep.Result = c.refused; c.refused != nil {
		return prep, nil
	}
	prep.Diff = c.diff
	var s changeState
	if c.found != nil {
		s.Strategy = c.found.Strategy
	}
	prep.State = s.json()
	return prep, nil
}

func largeEdit(title string, size int64) *Result {
	return Failed(title, "cannot edit %s: it has %d bytes, and edit takes files of at most %d MiB. Use bash, for example with sed or a script.", title, size, maxEdit>>20)
}

// input is the input, unless it asks for nothing.
func (Edit) input(env *Env, input json.RawMessage) (editInput, error) {
	in, err := inputOf[editInput](env, input)
	if err == nil && in.OldString == in.NewString {
		err = Errorf(CodeInvalidInput, "old_string and new_string are the same: there is nothing to change")
	}
	return in, err
}

// plan is what an edit makes of a file with this content; only is the strategy that
// decided before, "" for those of the settings.
func (e Edit) plan(ctx context.Context, env *Env, in editInput, t Target, old []byte, only replace.Strategy) (*change, error) {
	title := relative(env, t.Path)
	settings, err := settingsOf[editSettings](env)
	if err != nil {
		return nil, err
	}
	if !t.Exists {
		return e.planNew(ctx, env, in, t)
	}
	if r := e.refusal(env, in, settings, t, old); r != nil {
		return &change{refused: r}, nil
	}
	strategies, err := settings.Matching.Strategies()
	if err != nil {
		return nil, Errorf(CodeInternal, "settings of edit: %v", err)
	}
	if only != "" {
		strategies = []replace.Strategy{only}
	}
	c := &change{}
	c.found, c.content, err = find(ctx, in, old, strategies)
	if err != nil {
		c.refused, err = editFailure(title, t.Path, in, err)
		return c, err
	}
	if err := checkSize(env, t.Path, int64(len(c.content))); err != nil {
		c.refused, err = failure(title, err)
		return c, err
	}
	c.diff, c.stat = diffOf(t.Path, old, c.content, changesOf(c.found, len(old)-len(bytes.TrimPrefix(old, textfile.BOM))))
	return c, nil
}

// planNew is plan for a file that does not exist.
func (Edit) planNew(ctx context.Context, env *Env, in editInput, t Target) (*change, error) {
	if in.OldString != "" {
		return &change{refused: Failed(relative(env, t.Path), "%s. An empty old_string creates a file.", notFound(ctx, env, t.Path))}, nil
	}
	c := &change{content: []byte(in.NewString)}
	if err := checkSize(env, t.Path, int64(len(c.content))); err != nil {
		c.refused, err = failure(relative(env, t.Path), err)
		return c, err
	}
	c.diff, c.stat = diffOf(t.Path, nil, c.content, textdiff.Between(nil, c.content))
	return c, nil
}

// refusal is why an existing file is not edited whatever it contains; nil when
// it may be.
func (Edit) refusal(env *Env, in editInput, settings editSettings, t Target, old []byte) *Result {
	title := relative(env, t.Path)
	if in.OldString == "" {
		return Failed(title, "%s exists: an empty old_string only creates files. Use write to replace all of it, or quote the part to change.", title)
	}
	if kind := textfile.Sniff(old); !kind.Text {
		return Failed(title, "cannot edit %s: it is %s", title, kind.Name)
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
func (e Edit) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
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
		return changeFailure(env, prep.Targets[0].Path, err)
	}
	defer p.Close()
	in, err := e.input(env, input)
	if err != nil {
		return nil, err
	}
	c, err := e.change(ctx, env, p, prep, in, s.Strategy)
	if err != nil {
		return failure(title, err)
	}
	if c.refused != nil {
		return c.refused, nil
	}
	done, err := p.commit(ctx, env, c, settings.Durable)
	if err != nil {
		return changeFailure(env, prep.Targets[0].Path, err)
	}
	return edited(env, done, c), nil
}

// absent refuses an edit of what does not exist, before anything is made for it.
func (e Edit) absent(ctx context.Context, env *Env, input json.RawMessage, t Target) (*Result, error) {
	if t.Exists {
		return nil, nil
	}
	held, err := reserve(ctx, env, 0, input)
	if err != nil {
		return failure(relative(env, t.Path), err)
	}
	defer held.Release()
	in, err := e.input(env, input)
	if err != nil {
		return nil, err
	}
	c, err := e.planNew(ctx, env, in, t)
	if err != nil {
		return nil, err
	}
	return c.refused, nil
}

// change makes the new content from the file as it is now, which must be as Prepare
// saw it where that looked; then the strategy that decided there decides here.
func (e Edit) change(ctx context.Context, env *Env, p *begun, prep *Prepared, in editInput, only replace.Strategy) (*change, error) {
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
	if err := checkStale(p.Replacement, was, old); err != nil {
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
		All: in.ReplaceAll, Strategies: strategies,
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

func edited(env *Env, done *root.Committed, c *change) *Result {
	result := changed(env, done, c, c.found == nil)
	if c.found == nil {
		result.Output = fmt.Sprintf("Created %s: %d bytes, %d lines.%s", result.Title, len(c.content), c.stat.Added, kept(done))
		return result
	}
	places := len(c.found.Matches)
	result.Metadata["strategy"] = string(c.found.Strategy)
	result.Metadata["places"] = places
	where := fmt.Sprintf("at line %d", c.found.Lines[0])
	if places > 1 {
		where = fmt.Sprintf("in %d places, the first at line %d", places, c.found.Lines[0])
	}
	result.Output = fmt.Sprintf("Edited %s %s: %d lines added, %d removed.%s", result.Title, where, c.stat.Added, c.stat.Removed, kept(done))
	if c.found.Strategy != replace.Exact {
		result.Output += fmt.Sprintf("\nold_string was not in the file exactly; it was found by %s matching.", c.found.Strategy)
		result.Quote = " This is what changed:\n" + cutDiff(c.diff)
	}
	return result
}

// shownDiff bounds a diff in an output.
const shownDiff = 4 << 10

func cutDiff(diff string) string {
	if len(diff) <= shownDiff {
		return strings.TrimSuffix(diff, "\n")
	}
	return strings.ToValidUTF8(diff[:shownDiff], "") + "\n… (cut)"
}

// editFailure sorts the errors of find.
func editFailure(title, path string, in editInput, err error) (*Result, error) {
	var (
		missing   *replace.NotFoundError
		ambiguous *replace.AmbiguousError
		span      *replace.SpanError
		noChange  *replace.NoChangeError
		tooMany   *replace.TooManyError
		tooMuch   *replace.TooMuchError
		tooLarge  *tooLargeError
	)
	switch {
	case errors.Is(err, replace.ErrSameText), errors.Is(err, replace.ErrEmpty):
		return nil, Errorf(CodeInvalidInput, "old_string and new_string differ in nothing but line endings, or old_string has no text")
	case errors.As(err, &missing):
		r := Failed(title, "old_string was not found in %s.", title)
		if hasLineNumbers(in.OldString) {
			r.Output += " It has line numbers in front of its lines, as read shows them: leave them out, with the tab behind them."
		}
		if len(missing.Skipped) > 0 {
			r.Output += fmt.Sprintf(" Not tried: %s.", strings.Join(missing.Skipped, ", "))
		}
		r.Quote = nearestPassages(missing)
		r.Metadata = map[string]any{"reason": "not_found", "path": path}
		return r, nil
	case errors.As(err, &ambiguous):
		r := Failed(title, "old_string is not unique in %s: %s (%s matching). Quote more lines around the one place, or set replace_all.", title, err, ambiguous.Strategy)
		r.Metadata = map[string]any{"reason": "ambiguous", "strategy": string(ambiguous.Strategy), "places": ambiguous.Count, "lines": ambiguous.Lines}
		return r, nil
	case errors.As(err, &span):
		r := Failed(title, "refused to edit %s: %s. Quote old_string as the file has it.", title, err)
		r.Metadata = map[string]any{"reason": "disproportionate"}
		return r, nil
	case errors.As(err, &noChange):
		return Failed(title, "nothing to change in %s: %s", title, err), nil
	case errors.As(err, &tooMany), errors.As(err, &tooMuch), errors.As(err, &tooLarge):
		return Failed(title, "cannot edit %s: %s", title, err), nil
	}
	return nil, Errorf(CodeAborted, "stopped before old_string was found: %v", err)
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

// nearestPassages shows the passages that resemble old_string, with how they differ
// from it.
func nearestPassages(e *replace.NotFoundError) string {
	if len(e.Nearest) == 0 {
		return " Nothing in the file resembles it: read the file again, or check the path."
	}
	var b strings.Builder
	b.WriteString(" The nearest passages (- is old_string, + is the file):")
	for _, n := range e.Nearest {
		last := n.Line + strings.Count(n.Text, "\n")
		fmt.Fprintf(&b, "\n\nlines %d-%d, %d%% similar:\n", n.Line, last, int(n.Similarity*100))
		old, text := []byte(n.Old+"\n"), []byte(n.Text+"\n")
		diff, _ := textdiff.Unified("", old, text, textdiff.Between(old, text), shownDiff)
		_, hunks, _ := strings.Cut(diff, "@@\n")
		b.WriteString(strings.TrimSuffix(hunks, "\n"))
	}
	return b.String()
}
