package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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

// Prepare implements Tool: it finds the place and shows the diff. How an edit
// fails that finds nothing is in Prepared.Result, since it quotes the file.
func (e Edit) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	settings, err := settingsOf[editSettings](env)
	if err != nil {
		return nil, err
	}
	file, asked, err := lookWhole[editInput](ctx, env, input)
	defer file.release()
	info, old := file.info, file.old
	if info.Path == "" {
		return prepareFailure(displayName(asked), nil, err)
	}
	prep := &Prepared{Targets: []Target{target(asked, info, true)}}
	title := relative(env, info.Path)
	if root.CodeOf(err) == root.TooLarge {
		prep.Result = Failed(title, "cannot edit %s: it has %d bytes, and edit takes files of at most %d MiB. Use bash, for example with sed or a script.", title, info.Size, maxEdit>>20)
		return prep, nil
	}
	if err != nil {
		return prepareFailure(title, prep.Targets, err)
	}
	in, err := inputOf[editInput](env, input)
	if err != nil {
		return nil, err
	}
	if in.OldString == in.NewString {
		return nil, Errorf(CodeInvalidInput, "old_string and new_string are the same: there is nothing to change")
	}
	if !info.Exists {
		if err := checkSize(env, info.Path, int64(len(in.NewString))); err != nil {
			return prepareFailure(title, prep.Targets, err)
		}
		e.prepareNew(ctx, env, in, info.Path, prep)
		return prep, nil
	}
	prep.Targets[0].SHA256 = sha256Hex(old)
	prep.Result = e.refusal(env, in, settings, prep.Targets[0], old)
	if prep.Result != nil {
		return prep, nil
	}
	strategies, err := settings.Matching.Strategies()
	if err != nil {
		return nil, Errorf(CodeInternal, "settings of edit: %v", err)
	}
	found, content, err := find(ctx, in, old, strategies)
	if err != nil {
		prep.Result, err = editFailure(title, err)
		return prep, err
	}
	if err := checkSize(env, info.Path, int64(len(content))); err != nil {
		return prepareFailure(title, prep.Targets, err)
	}
	diff, stat := diffOf(info.Path, old, content, changesOf(found, len(old)-len(bytes.TrimPrefix(old, textfile.BOM))))
	prep.Diff = diff
	prep.State = changeState{
		Strategy: string(found.Strategy), Places: len(found.Matches), Line: found.Lines[0],
		Added: stat.Added, Removed: stat.Removed,
	}.json()
	return prep, nil
}

// prepareNew is Prepare for a file that does not exist.
func (Edit) prepareNew(ctx context.Context, env *Env, in editInput, path string, prep *Prepared) {
	if in.OldString != "" {
		prep.Result = Failed(relative(env, path), "%s. An empty old_string creates a file.", notFound(ctx, env, path))
		return
	}
	content := []byte(in.NewString)
	diff, stat := diffOf(path, nil, content, textdiff.Between(nil, content))
	prep.Diff = diff
	prep.State = changeState{Added: stat.Added}.json()
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
	if settings.RequireRead && (env.Seen == nil || !env.Seen.Is(t.Path, t.SHA256)) {
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
	// What was prepared for no file creates one.
	p, err := env.Root.Begin(ctx, prep.Targets[0].Path, root.BeginOptions{Parents: !prep.Targets[0].Exists})
	if err != nil {
		return failure(title, err)
	}
	defer p.Close()
	held, err := reserve(ctx, env, p.Info().Size, input)
	if err != nil {
		return failure(title, err)
	}
	defer held.Release()
	in, err := inputOf[editInput](env, input)
	if err != nil {
		return nil, err
	}
	content, err := e.apply(ctx, p, in, prep, s)
	if err == nil {
		err = checkSize(env, p.Info().Path, int64(len(content)))
	}
	if err != nil {
		return failure(title, err)
	}
	done, err := p.Commit(ctx, content, root.CommitOptions{Durable: settings.Durable})
	if err != nil {
		return failure(title, err)
	}
	return edited(env, done, content, in, prep.Diff, s), nil
}

// apply makes the new content from the file as it is now, which must be as
// Prepare saw it; then the strategy that decided there decides here.
func (Edit) apply(ctx context.Context, p *root.Replacement, in editInput, prep *Prepared, s changeState) ([]byte, error) {
	old, err := p.ReadOld(ctx, readable(p.Info().Size))
	if root.CodeOf(err) == root.TooLarge {
		return nil, Errorf(CodeStale, "%s has grown since the call was judged; repeat the call", displayName(p.Info().Path))
	}
	if err != nil {
		return nil, err
	}
	if err := checkStale(p, prep, old); err != nil {
		return nil, err
	}
	if !p.Info().Exists {
		return []byte(in.NewString), nil
	}
	_, content, err := find(ctx, in, old, []replace.Strategy{replace.Strategy(s.Strategy)})
	if err != nil { // only for want of time: the same search succeeded before
		return nil, Errorf(CodeAborted, "stopped before it was done: %v", err)
	}
	return content, nil
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

func edited(env *Env, done *root.Committed, content []byte, in editInput, diff string, s changeState) *Result {
	created := in.OldString == ""
	result := changed(env, done, content, s, diff, created)
	if created {
		result.Output = fmt.Sprintf("Created %s: %d bytes, %d lines.%s", result.Title, len(content), s.Added, kept(done))
		return result
	}
	result.Metadata["strategy"] = s.Strategy
	result.Metadata["places"] = s.Places
	where := fmt.Sprintf("at line %d", s.Line)
	if s.Places > 1 {
		where = fmt.Sprintf("in %d places, the first at line %d", s.Places, s.Line)
	}
	result.Output = fmt.Sprintf("Edited %s %s: %d lines added, %d removed.%s", result.Title, where, s.Added, s.Removed, kept(done))
	if s.Strategy != string(replace.Exact) {
		result.Output += fmt.Sprintf("\nold_string was not in the file exactly; it was found by %s matching. This is what changed:\n%s",
			s.Strategy, cutDiff(diff))
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
func editFailure(title string, err error) (*Result, error) {
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
		r := Failed(title, "%s", missingReport(title, missing))
		r.Metadata = map[string]any{"reason": "not_found"}
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

// missingReport shows the passages that resemble old_string, with how they
// differ from it.
func missingReport(title string, e *replace.NotFoundError) string {
	var b strings.Builder
	fmt.Fprintf(&b, "old_string was not found in %s.", title)
	if len(e.Skipped) > 0 {
		fmt.Fprintf(&b, " Not tried: %s.", strings.Join(e.Skipped, ", "))
	}
	if len(e.Nearest) == 0 {
		b.WriteString(" Nothing in the file resembles it: read the file again, or check the path.")
		return b.String()
	}
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
