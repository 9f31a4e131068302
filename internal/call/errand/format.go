package errand

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool/run"
)

// fileHolder stands for the file in the command of a hook on file.edited.
const fileHolder = "{file}"

// Bounds of what a formatter may print: all of it, and what is kept for a note.
const (
	maxFormatOutput = 1 << 20
	maxFormatNote   = 2 << 10
)

// Formatter runs the hooks of file.edited over files that a call has changed.
type Formatter struct {
	Errand
	Call string // whose files they are
	// Diff is that of the call's result.
	Diff string
	// MayRead says whether the content of a file may be shown.
	MayRead func(file string) policy.Verdict
	// Failed is told why a diff could not be made.
	Failed func(err error)
}

// Format runs one formatter over one file and says what it made of it. ctx ends with the
// call, whose cause is then the error; others are *hook.Error.
func (f *Formatter) Format(ctx context.Context, h *hook.Hook, file string, limit time.Duration) (*Formatted, error) {
	line, err := formatLine(h, file)
	if err != nil {
		return nil, err
	}
	call := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	before := f.look(ctx, file)
	r := f.request(run.CommandJob(line, h.Timeout), maxFormatOutput, h.Timeout)
	out := new(hook.Tail)
	done, err := f.run(ctx, r, f.flow(r.CallID, out, 0))
	if cause := context.Cause(call); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, h.Failed("could not be run in the sandbox: " + plain.Cause(err))
	}
	if err := formatError(h, done, out); err != nil {
		return nil, err
	}
	made := f.compare(ctx, before)
	if cause := context.Cause(call); cause != nil {
		return nil, cause
	}
	return made, nil
}

// Formats says why a hook can be no formatter of such a file.
func Formats(h *hook.Hook, file string) error {
	_, err := formatLine(h, file)
	return err
}

// formatLine is the command line of a formatter: its words quoted, with the file
// in the place of {file}, or at the end. The file's path is absolute, so that no
// name can be an option.
func formatLine(h *hook.Hook, file string) (string, error) {
	fail := func(what string) (string, error) { return "", h.Failed(what) }
	switch {
	case len(h.Command) == 0:
		return fail("could not be run: no command is configured")
	case !utf8.ValidString(file) || !path.IsAbs(file):
		return fail("could not be run: the name of the file is no UTF-8")
	}
	words, placed := make([]string, 0, len(h.Command)+1), false
	for _, w := range h.Command {
		placed = placed || strings.Contains(w, fileHolder)
		words = append(words, strings.ReplaceAll(w, fileHolder, file))
	}
	if !placed {
		words = append(words, file)
	}
	for i, w := range words {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return "exec " + strings.Join(words, " ") + " </dev/null", nil
}

// formatError says why a formatter that ran did not do its work.
func formatError(h *hook.Hook, done *agent.Outcome, out *hook.Tail) error {
	var what string
	exit := done.Exit
	switch {
	case done.Err != nil:
		what = "could not be run in the sandbox: " + plain.Cut(done.Err.Message, maxNote)
	case exit == nil:
		what = "could not be run in the sandbox"
	case exit.Reason == run.ReasonExit && exit.Code == 0:
		return nil
	case exit.Reason == run.ReasonExit:
		what = fmt.Sprintf("failed with exit code %d", exit.Code)
	default:
		what = fmt.Sprintf("was ended (%s)", exit.Reason)
	}
	e := h.Failed(what)
	e.Said = formatNote(out.String())
	return e
}

// formatNote is the end of what a formatter printed, as text.
func formatNote(s string) string {
	cut := len(s) > maxFormatNote
	if cut {
		s = strings.ToValidUTF8(s[len(s)-maxFormatNote:], "")
	}
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s))
	if cut && s != "" {
		s = "…" + s
	}
	return s
}

// Find says where a file is, and what stands for its content.
func (f *Formatter) Find(ctx context.Context, file string) (*run.Prepared, error) {
	job := run.HashJob(file)
	return f.Conn.Prepare(ctx, agent.Request{CallID: f.Call, Tool: job.Tool, Input: job.Input})
}

// contentOf stands for the content of a file; "" where that is not known.
func (f *Formatter) contentOf(ctx context.Context, file string) string {
	prep, err := f.Find(ctx, file)
	if err != nil || prep == nil || len(prep.Targets) != 1 {
		return ""
	}
	return prep.Targets[0].SHA256
}

// maxFormatDiff is the longest diff of a formatter's work that is shown, in bytes.
const maxFormatDiff = 12 << 10

// formatTime bounds a look at a file before and after a formatter.
const formatTime = 10 * time.Second

// Formatted is what a formatter has made of a file.
type Formatted struct {
	Changed bool
	// Whole is what the call has made together with the formatter, where Formatter.Diff
	// leads to what the formatter found; else nil.
	Whole *run.FormattedEdit
	diff  string // "": it is not shown
	why   string // it is not shown
}

// Note says it to the caller; "" where nothing was changed.
func (f *Formatted) Note(h *hook.Hook, file string) string {
	switch {
	case !f.Changed:
		return ""
	case f.diff != "":
		return fmt.Sprintf("[hook %s changed %s after this edit, as the diff below says; you need not read it again]\n%s",
			h.Name(), file, strings.ReplaceAll(strings.TrimSuffix(f.diff, "\n"), "\x00", "␀"))
	case f.why != "":
		return fmt.Sprintf("[hook %s changed %s after this edit: read it again before you edit it; no diff is shown: %s]", h.Name(), file, f.why)
	}
	return fmt.Sprintf("[hook %s changed %s after this edit: read it again before you edit it]", h.Name(), file)
}

// unformatted is a file before its formatter runs.
type unformatted struct {
	file string
	text string // valid only where why is ""
	hash string // of the content; "" where that is not known
	why  string // the text is not known
}

// look takes a file as it is before its formatter runs. Its content is looked at only
// where the session may see it.
func (f *Formatter) look(ctx context.Context, file string) *unformatted {
	u := &unformatted{file: file}
	if v := f.MayRead(file); v.Action != policy.Allow {
		u.why = judge.NotReadable(&v)
		u.hash = f.contentOf(ctx, file)
		return u
	}
	text, err := f.contentBefore(ctx, file)
	switch {
	case errors.Is(err, ErrTooLong):
		u.why = "the file is long"
	case err != nil:
		u.why = "it could not be read"
	case !utf8.Valid(text):
		u.why = "it is not UTF-8"
	default:
		sum := sha256.Sum256(text)
		u.text, u.hash = string(text), hex.EncodeToString(sum[:])
		return u
	}
	u.hash = f.contentOf(ctx, file)
	return u
}

func (f *Formatter) contentBefore(ctx context.Context, file string) ([]byte, error) {
	r := f.request(run.DownloadJob(file), run.MaxFormatted+1, formatTime)
	r.Prepared = &run.Prepared{Targets: []run.Target{{Asked: file, Path: file}}}
	return f.read(ctx, r, run.MaxFormatted)
}

// compare says what has become of the file.
func (f *Formatter) compare(ctx context.Context, u *unformatted) *Formatted {
	why := u.why
	if why == "" {
		made, err := f.diffed(ctx, u)
		if err == nil {
			return made
		}
		why = "it could not be compared"
		f.Failed(err)
	}
	after := f.contentOf(ctx, u.file)
	return &Formatted{Changed: u.hash == "" || after != u.hash, why: why}
}

// diffed has the agent compare.
func (f *Formatter) diffed(ctx context.Context, u *unformatted) (*Formatted, error) {
	input, err := json.Marshal(run.FormattedInput{FilePath: u.file, Before: u.text, MaxDiff: maxFormatDiff, Diff: f.Diff})
	if err != nil {
		return nil, err
	}
	result, err := f.do(ctx, f.request(run.Job{Tool: run.FormattedName, Input: input}, 0, formatTime), silent)
	if err != nil {
		return nil, err
	}
	meta := result.Metadata
	if path, _ := meta[run.FormattedPath].(string); path != u.file {
		return nil, errors.New("the path leads elsewhere now") // to what this session may not see, perhaps
	}
	made := &Formatted{Changed: true}
	if changed, ok := meta[run.FormattedChanged].(bool); ok {
		made.Changed = changed
	}
	made.Whole = wholeOf(meta[run.FormattedWhole])
	if made.diff = plain.Cut(result.Output, maxNote); made.diff == "" {
		why, _ := meta[run.FormattedWhy].(string)
		made.why = plain.Cut(why, maxNote)
	}
	return made, nil
}

// maxWhole bounds the diff of a whole call, in bytes: a little more than agents give.
const maxWhole = 64 << 10

// wholeOf reads what the agent says of a whole call; nil where that is not what it may say.
func wholeOf(said any) *run.FormattedEdit {
	b, err := json.Marshal(said)
	if err != nil || said == nil {
		return nil
	}
	w := new(run.FormattedEdit)
	if json.Unmarshal(b, w) != nil || len(w.Diff) > maxWhole || w.Bytes < 0 {
		return nil
	}
	return w
}
