package run

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/textdiff"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// Formatted tells the daemon what a formatter has made of a file that a call had
// just changed, and that the model has seen it. It is no tool that is offered.
type Formatted struct{ unprepared }

// FormattedName is the name of Formatted.
const FormattedName = "file_formatted"

// MaxFormatted is the longest file, in bytes, of which it says more than that it was
// changed.
const MaxFormatted = 128 << 10

// FormattedInput is the input of Formatted.
type FormattedInput struct {
	FilePath string `json:"file_path"` // absolute, without links
	Before   string `json:"before"`    // the content that the formatter found
	MaxDiff  int    `json:"max_diff"`  // bytes; a longer diff is not given
	// Diff is the one of the call that had changed the file: what it says of this file is
	// to lead to what it is now. "" = there is none.
	Diff string `json:"diff,omitempty"`
}

// The metadata of its result. The output is the diff, for a file that the model has
// seen as it was before: as it is now counts as seen then too.
const (
	FormattedChanged = "changed" // bool
	FormattedPath    = "path"
	FormattedWhy     = "why" // there is no diff of a file that was changed
	// FormattedWhole is a FormattedEdit, where one could be made.
	FormattedWhole = "whole"
)

// FormattedEdit is what a call has made of a file together with a formatter: the diff of
// all of the call, how many lines more it adds and removes than before, and the file's
// bytes.
type FormattedEdit struct {
	Diff    string `json:"diff"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Bytes   int    `json:"bytes"`
}

// Name implements Tool.
func (Formatted) Name() string { return FormattedName }

func (Formatted) onlyFiles() {}

// Run implements Tool.
func (Formatted) Run(ctx context.Context, env *Env, input json.RawMessage, _ *Prepared) (*Result, error) {
	var in FormattedInput
	held, err := env.Root.Reserve(ctx, changeCopies*int64(MaxFormatted+len(input)))
	if err != nil {
		return failure(FormattedName, err)
	}
	defer held.Release()
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	file, err := env.Root.Open(ctx, in.FilePath)
	if err != nil {
		return failure(plain.Name(in.FilePath), err)
	}
	defer func() { _ = file.Close() }()
	path := file.Info().Path
	r := &Result{Title: relative(env, path), Metadata: map[string]any{FormattedPath: path, FormattedChanged: true}}
	if file.Info().Size > MaxFormatted {
		r.Metadata[FormattedWhy] = "the file is long"
		return r, nil
	}
	now, err := file.ReadAll(ctx, MaxFormatted)
	if err != nil {
		return failure(r.Title, err)
	}
	before := []byte(in.Before)
	diff, _ := diffOf(path, before, now, textdiff.Between(before, now))
	if again, was, is, ok := textdiff.Again(in.Diff, plain.Name(path), before, now, metadataDiff); ok && diff != "" && len(again) <= metadataDiff {
		r.Metadata[FormattedWhole] = FormattedEdit{Diff: again, Added: is.Added - was.Added, Removed: is.Removed - was.Removed, Bytes: len(now)}
	}
	switch {
	case bytes.Equal(before, now):
		r.Metadata[FormattedChanged] = false
	case !textfile.Sniff(now).Text || textfile.InvalidUTF8(now, false) >= 0 || bytes.IndexByte(now, 0) >= 0:
		r.Metadata[FormattedWhy] = "it is not text now"
	case len(diff) > in.MaxDiff:
		r.Metadata[FormattedWhy] = "the diff is long"
	case env.Seen == nil || !env.Seen.Is(path, sha256Hex(before)):
		r.Metadata[FormattedWhy] = "it was something else before"
	default:
		env.Seen.Note(path, sha256Hex(now))
		r.Output = diff
	}
	return r, nil
}
