package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/toold/toold/internal/plain"
)

// FileGet streams one regular file as it is. A link is followed; what is no
// regular file is refused without being opened.
type FileGet struct{}

type fileGetInput struct {
	Path string `json:"path"`
}

// Name implements Tool.
func (FileGet) Name() string { return "file_get" }

// DownloadJob sends the file at path.
func DownloadJob(path string) Job { return jobOf(FileGet{}, map[string]any{"path": path}) }

// Prepare implements Tool.
func (FileGet) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	var in fileGetInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	return prepareTarget(ctx, env, in.Path, false, nil)
}

// fileGetChunk is how much is read at a time.
const fileGetChunk = 64 << 10

// Run implements Tool.
func (FileGet) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	var in fileGetInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	if prep != nil && prep.Result != nil {
		return prep.Result, nil
	}
	path, err := preparedPath(ctx, env, in.Path, prep)
	if err != nil {
		return failure(plain.Name(in.Path), err)
	}
	title := relative(env, path)
	f, err := env.Root.Open(ctx, path)
	if err != nil {
		return failure(title, err)
	}
	defer func() { _ = f.Close() }()
	sent := int64(0)
	buf := make([]byte, fileGetChunk)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			m, werr := env.Stream.Write(buf[:n])
			sent += int64(m)
			if werr != nil {
				return nil, werr
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return failure(title, err)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return &Result{
		Title:    title,
		Metadata: map[string]any{"path": path, "size": sent, "mode": fmt.Sprintf("%04o", f.Info().Mode.Perm())},
	}, nil
}
