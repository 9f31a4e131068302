package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toold/toold/internal/judge"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool/run"
)

// maxFormatDiff is the longest diff of a formatter's work that is shown, in bytes.
const maxFormatDiff = 12 << 10

// formatTime bounds a look at a file before and after a formatter.
const formatTime = 10 * time.Second

// formatted is what a formatter has made of a file.
type formatted struct {
	changed bool
	diff    string // "": it is not shown
	why     string // it is not shown
}

// note says it to the caller; "" where nothing was changed.
func (f *formatted) note(h *hook.Hook, file string) string {
	switch {
	case !f.changed:
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
func (s *Session) look(ctx context.Context, l *link, c *call, file string) *unformatted {
	u := &unformatted{file: file}
	if v := s.judge.MayRead(c.profile, file); v.Action != policy.Allow {
		u.why = judge.NotReadable(&v)
		u.hash = s.contentOf(ctx, l, c, file)
		return u
	}
	text, err := s.contentBefore(ctx, l, file)
	switch {
	case errors.Is(err, errTooLong):
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
	u.hash = s.contentOf(ctx, l, c, file)
	return u
}

func (s *Session) contentBefore(ctx context.Context, l *link, file string) ([]byte, error) {
	job := run.DownloadJob(file)
	return readSmall(ctx, l.conn, agent.Request{
		CallID: s.m.store.NewID("call_"), Tool: job.Tool, Input: job.Input,
		TimeoutMillis: formatTime.Milliseconds(), MaxOutput: run.MaxFormatted + 1,
		Prepared: &run.Prepared{Targets: []run.Target{{Asked: file, Path: file}}},
	}, run.MaxFormatted)
}

// compare says what has become of the file.
func (s *Session) compare(ctx context.Context, l *link, c *call, u *unformatted) *formatted {
	why := u.why
	if why == "" {
		f, err := s.diffed(ctx, l, u)
		if err == nil {
			return f
		}
		why = "it could not be compared"
		s.log.Warn("compare a file with what its formatter found", "call", c.id, "error", err)
	}
	after := s.contentOf(ctx, l, c, u.file)
	return &formatted{changed: u.hash == "" || after != u.hash, why: why}
}

// diffed has the agent compare.
func (s *Session) diffed(ctx context.Context, l *link, u *unformatted) (*formatted, error) {
	input, err := json.Marshal(run.FormattedInput{FilePath: u.file, Before: u.text, MaxDiff: maxFormatDiff})
	if err != nil {
		return nil, err
	}
	r := agent.Request{CallID: s.m.store.NewID("call_"), Tool: run.FormattedName, Input: input, TimeoutMillis: formatTime.Milliseconds()}
	out, err := l.conn.Run(ctx, r, noSink{})
	if err != nil {
		_ = l.conn.Abort(r.CallID, run.ReasonAborted)
	}
	_ = l.conn.Forget(r.CallID)
	switch {
	case err != nil:
		return nil, err
	case out.Err != nil: // also of an agent that does not know the tool
		return nil, out.Err
	case out.Result == nil || out.Result.IsError:
		return nil, errors.New("the file cannot be read any more")
	}
	meta := out.Result.Metadata
	if path, _ := meta[run.FormattedPath].(string); path != u.file {
		return nil, errors.New("the path leads elsewhere now") // to what this session may not see, perhaps
	}
	f := &formatted{changed: true}
	if changed, ok := meta[run.FormattedChanged].(bool); ok {
		f.changed = changed
	}
	if f.diff = plain.Cut(out.Result.Output, maxNote); f.diff == "" {
		why, _ := meta[run.FormattedWhy].(string)
		f.why = plain.Cut(why, maxNote)
	}
	return f, nil
}

// noSink is for tools that print nothing.
type noSink struct{}

// Output implements agent.Sink.
func (noSink) Output(int64, bool, []byte) error { return errors.New("there should be no output") }

// Metadata implements agent.Sink.
func (noSink) Metadata(map[string]any) {}
