package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/replace"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/textdiff"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// Write is the tool that makes a file or replaces its content.
type Write struct{}

type writeInput struct {
	Content string `json:"content"`
}

type writeSettings struct {
	// Durable waits until the file is on the disk.
	Durable bool `json:"durable"`
}

// Name implements Tool.
func (Write) Name() string { return "write" }

func (Write) onlyFiles() {}

// HashJob is to be prepared only: its one target has the hash of the content of file.
func HashJob(file string) Job { return WriteJob(file, "") }

// WriteJob makes file what content is.
func WriteJob(file, content string) Job {
	return jobOf(Write{}, map[string]any{"file_path": file, "content": content})
}

// Resolve implements Direct.
func (Write) Resolve(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	return resolveChange(ctx, env, input)
}

// Prepare implements Tool: it shows the diff against the present content.
func (w Write) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	file, asked, err := lookWhole(ctx, env, input)
	defer file.release()
	info := file.info
	if info.Path == "" {
		return prepareFailure(plain.Name(asked), nil, err)
	}
	prep := &Prepared{Targets: []Target{target(asked, info, true)}}
	in, bad := inputOf[writeInput](input) // err is still to be looked at
	if bad != nil {
		return nil, bad
	}
	large := root.CodeOf(err) == root.TooLarge
	if err == nil || large {
		err = checkSize(env, info.Path, int64(len(in.Content)))
	}
	if err != nil {
		return prepareFailure(relative(env, info.Path), prep.Targets, err)
	}
	var s changeState
	switch {
	case large:
		s.Version = &info.Version
	case info.Exists:
		prep.Targets[0].SHA256 = sha256Hex(file.old)
	}
	prep.Diff = w.plan(in, info, file.old, large).diff
	prep.State = s.json()
	return prep, nil
}

// plan is what a write makes of a file; large says that nobody reads its content.
func (Write) plan(in writeInput, info root.Info, old []byte, large bool) *change {
	c := &change{content: []byte(in.Content)}
	if large {
		c.diff = fmt.Sprintf("the present content, %s, is too large to be compared\n", plain.Count(info.Size, "byte", "bytes"))
		if ends := textfile.LineEnds(c.content); ends != textfile.None {
			c.note = fmt.Sprintf(" The old content was too large to look at how its lines ended; they end in %s now.", ends)
		}
		return c
	}
	if bytes.HasPrefix(old, textfile.BOM) && !bytes.HasPrefix(c.content, textfile.BOM) {
		c.content = append(bytes.Clone(textfile.BOM), c.content...)
	}
	if kind := textfile.Sniff(old); kind.Text || len(old) == 0 {
		c.lineEnds(old)
		c.diff, c.stat = diffOf(info.Path, old, c.content, textdiff.Between(old, c.content))
	} else {
		if text := textfile.Decoded(kind, old); text != nil {
			c.lineEnds(text)
			c.note = fmt.Sprintf(" It was %s before, and is UTF-8 now: iconv in bash makes it what it was.%s", kind.Name, c.note)
		}
		c.diff = fmt.Sprintf("the present content, %s, is %s\n", plain.Count(len(old), "byte", "bytes"), kind.Name)
	}
	return c
}

// lineEnds keeps the line ends of a file that has had CRLF throughout, where the new content says
// nothing of them, and notes what becomes of them.
func (c *change) lineEnds(old []byte) {
	was, is := textfile.LineEnds(old), textfile.LineEnds(c.content)
	switch kept := replace.WithEnds(old, c.content); {
	case len(kept) > len(c.content):
		c.content, c.note = kept, " Its lines end in CRLF, as before."
	case was != textfile.None && is != textfile.None && was != is:
		c.note = fmt.Sprintf(" Its lines ended in %s before, and end in %s now.", was, is)
	}
}

// Run implements Tool.
func (w Write) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	settings, err := settingsOf[writeSettings](env)
	if err != nil {
		return nil, err
	}
	prep, s, err := changeOf(ctx, w, env, input, prep)
	if err != nil {
		return nil, err
	}
	if prep.Result != nil {
		return prep.Result, nil
	}
	title := relative(env, prep.Targets[0].Path)
	p, err := begin(ctx, env, prep.Targets[0], input)
	if err != nil {
		return changeFailure(ctx, env, prep.Targets[0].Path, err)
	}
	defer p.Close()
	in, err := inputOf[writeInput](input)
	if err != nil {
		return nil, err
	}
	c, err := w.change(ctx, p, prep, s, in)
	if err == nil {
		err = checkSize(env, prep.Targets[0].Path, int64(len(c.content)))
	}
	if err != nil {
		return failure(title, err)
	}
	done, err := p.commit(ctx, env, c, settings.Durable)
	if err != nil {
		return changeFailure(ctx, env, prep.Targets[0].Path, err)
	}
	created := !p.Info().Exists
	result := changed(env, done, c, created)
	verb := "Replaced"
	if created {
		verb = "Created"
	}
	result.Output = fmt.Sprintf("%s %s: %s, %s.%s", verb, title, plain.Count(len(c.content), "byte", "bytes"), c.stat, kept(done))
	result.Quote += c.note
	return result, nil
}

// change makes the new content from the file as it is now, which must be as Prepare
// saw it where that looked.
func (w Write) change(ctx context.Context, p *begun, prep *Prepared, s changeState, in writeInput) (*change, error) {
	was := prep.Targets[0]
	if s.Version != nil {
		if p.Info().Version != *s.Version {
			return nil, staleContent(was)
		}
		return w.plan(in, p.Info(), nil, true), nil
	}
	old, err := p.ReadOld(ctx, readable(p.Info().Size))
	large := root.CodeOf(err) == root.TooLarge
	switch {
	case large && prep.State != nil:
		return nil, staleContent(was)
	case err != nil && !large:
		return nil, err
	}
	if err := checkStale(p.Info(), was, old); err != nil {
		return nil, err
	}
	info := p.Info()
	info.Path = was.Path
	c := w.plan(in, info, old, large)
	if c.unlike(prep) {
		return nil, staleContent(was)
	}
	return c, nil
}
