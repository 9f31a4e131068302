package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/textdiff"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// Write is the tool that makes a file or replaces its content.
type Write struct{}

type writeInput struct {
	FilePath string `json:"file_path"`
	Content  string `json:"content"`
}

func (in writeInput) path() string { return in.FilePath }

type writeSettings struct {
	// Durable waits until the file is on the disk.
	Durable bool `json:"durable"`
}

// Name implements Tool.
func (Write) Name() string { return "write" }

func (Write) onlyFiles() {}

// Prepare implements Tool: it shows the diff against the present content.
func (Write) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	file, asked, err := lookWhole[writeInput](ctx, env, input)
	defer file.release()
	info, old := file.info, file.old
	if info.Path == "" {
		return prepareFailure(displayName(asked), nil, err)
	}
	prep := &Prepared{Targets: []Target{target(asked, info, true)}}
	in, bad := inputOf[writeInput](env, input) // err is still to be looked at
	if bad != nil {
		return nil, bad
	}
	if err := checkSize(env, info.Path, int64(len(in.Content))); err != nil {
		return prepareFailure(relative(env, info.Path), prep.Targets, err)
	}
	var s changeState
	if root.CodeOf(err) == root.TooLarge {
		s.Version = &info.Version
		prep.Diff = fmt.Sprintf("the present content, %d bytes, is too large to be compared\n", info.Size)
		prep.State = s.json()
		return prep, nil
	}
	if err != nil {
		return prepareFailure(relative(env, info.Path), prep.Targets, err)
	}
	if !info.Exists {
		content := []byte(in.Content)
		var stat textdiff.Stat
		prep.Diff, stat = diffOf(info.Path, nil, content, textdiff.Between(nil, content))
		s.Added = stat.Added
		prep.State = s.json()
		return prep, nil
	}
	prep.Targets[0].SHA256 = sha256Hex(old)
	content := withBOM(old, in.Content)
	if kind := textfile.Sniff(old); kind.Text || len(old) == 0 {
		var stat textdiff.Stat
		prep.Diff, stat = diffOf(info.Path, old, content, textdiff.Between(old, content))
		s.Added, s.Removed = stat.Added, stat.Removed
	} else {
		prep.Diff = fmt.Sprintf("the present content, %d bytes, is %s\n", len(old), kind.Name)
	}
	prep.State = s.json()
	return prep, nil
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
	path := prep.Targets[0].Path
	title := relative(env, path)
	p, err := env.Root.Begin(ctx, path, root.BeginOptions{Parents: true})
	if err != nil {
		return failure(title, err)
	}
	defer p.Close()
	held, err := reserve(ctx, env, p.Info().Size, input)
	if err != nil {
		return failure(title, err)
	}
	defer held.Release()
	in, err := inputOf[writeInput](env, input)
	if err != nil {
		return nil, err
	}
	content, err := w.check(ctx, p, prep, s, in.Content)
	if err == nil {
		err = checkSize(env, path, int64(len(content))) // with a byte order mark
	}
	if err != nil {
		return failure(title, err)
	}
	done, err := p.Commit(ctx, content, root.CommitOptions{Durable: settings.Durable})
	if err != nil {
		return failure(title, err)
	}
	created := !p.Info().Exists
	result := changed(env, done, content, s, prep.Diff, created)
	verb := "Replaced"
	if created {
		verb = "Created"
	}
	result.Output = fmt.Sprintf("%s %s: %d bytes, %d lines added, %d removed.%s", verb, title, len(content), s.Added, s.Removed, kept(done))
	return result, nil
}

// check proves that the file is the one that Prepare saw, and gives the content
// to write.
func (Write) check(ctx context.Context, p *root.Replacement, prep *Prepared, s changeState, content string) ([]byte, error) {
	if s.Version != nil {
		if p.Info().Version != *s.Version {
			return nil, Errorf(CodeStale, "%s has changed since the call was judged; repeat the call", displayName(p.Info().Path))
		}
		return []byte(content), nil
	}
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
	return withBOM(old, content), nil
}

// withBOM is content with the byte order mark that the file has.
func withBOM(old []byte, content string) []byte {
	if bytes.HasPrefix(old, textfile.BOM) && !bytes.HasPrefix([]byte(content), textfile.BOM) {
		return append(bytes.Clone(textfile.BOM), content...)
	}
	return []byte(content)
}
