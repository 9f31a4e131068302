package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// FilePut moves an uploaded file to its place, as the tool user. The daemon has
// laid the bytes down in the read-only output directory.
type FilePut struct{}

type filePutInput struct {
	From string `json:"from"`
	Path string `json:"path"`
	// Mode is the permission bits of a new file, 0 = 0666 less the umask.
	Mode uint32 `json:"mode"`
}

// Name implements Tool.
func (FilePut) Name() string { return "file_put" }

// UploadJob puts the bytes that lie at from into the file at path. Of mode the permission
// bits count, for a new file; 0 = as usual.
func UploadJob(from, path string, mode uint32) Job {
	fields := map[string]any{"from": from, "path": path}
	if mode != 0 {
		fields["mode"] = mode & 0o777
	}
	return jobOf(FilePut{}, fields)
}

// Prepare implements Tool.
func (FilePut) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	var in filePutInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	return prepareTarget(ctx, env, in.Path, true, func(info root.Info) error {
		if info.Exists && info.Kind == root.KindDir {
			return Errorf(CodeNotRegularFile, "%s is a directory; name the file in it", plain.Name(info.Path))
		}
		return checkRegular(info)
	})
}

// Resolve implements Direct.
func (f FilePut) Resolve(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	return f.Prepare(ctx, env, input)
}

// Run implements Tool.
func (f FilePut) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	var in filePutInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	if err := checkUpload(env, in.From); err != nil {
		return nil, err
	}
	if prep == nil {
		var err error
		if prep, err = f.Prepare(ctx, env, input); err != nil {
			return nil, err
		}
	}
	if prep.Result != nil {
		return prep.Result, nil
	}
	path := prep.Targets[0].Path
	title := relative(env, path)
	src, err := env.Root.Open(ctx, in.From)
	if err != nil {
		return failure(title, err)
	}
	defer func() { _ = src.Close() }()
	if err := checkSize(env, path, src.Info().Size); err != nil {
		return failure(title, err)
	}
	p, err := env.Root.Begin(ctx, path, root.BeginOptions{Parents: true})
	if err != nil {
		return failure(title, err)
	}
	defer p.Close()
	if err := checkStale(p.Info(), prep.Targets[0], nil); err != nil {
		return failure(title, err)
	}
	if err := p.AppendFile(ctx, src); err != nil {
		return failure(title, err)
	}
	var o root.CommitOptions
	if mode := fs.FileMode(in.Mode) & fs.ModePerm; mode != 0 {
		o.Mode = &mode
	}
	done, err := p.Commit(ctx, nil, o)
	if err != nil {
		return failure(title, err)
	}
	return &Result{
		Title:  title,
		Output: fmt.Sprintf("Wrote %s: %s.%s", title, plain.Count(done.Info.Size, "byte", "bytes"), kept(done)),
		Metadata: map[string]any{
			"path": path, "bytes": done.Info.Size, "created": !p.Info().Exists,
			"mode": fmt.Sprintf("%04o", done.Info.Mode.Perm()),
		},
	}, nil
}

// checkUpload accepts only the name of a file right in the output directory.
func checkUpload(env *Env, from string) error {
	name, ok := strings.CutPrefix(from, strings.TrimSuffix(env.OutputDir, "/")+"/")
	if !ok || name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return Errorf(CodeInvalidPath, "%q is not a file of %s", from, env.OutputDir)
	}
	return nil
}
