package run

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/readrule"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/treetar"
)

// FilePutTree unpacks a tar into a directory as it arrives, as the tool user. Files and
// links that the rules for "edit" do not let it write stay as they are and are counted.
type FilePutTree struct{}

// Name implements Tool.
func (FilePutTree) Name() string { return "file_put_tree" }

// UnpackJob unpacks the call's input into the directory at path, which is made where it is
// missing. The tar, and its files together, have at most most bytes.
func UnpackJob(path string, most int64) Job { return treeJob(FilePutTree{}, path, most) }

// Prepare implements Tool.
func (FilePutTree) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	return prepareArchive(ctx, env, input, true)
}

// Run implements Tool.
func (FilePutTree) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	var in archiveInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	dir, err := preparedPath(ctx, env, in.Path, prep)
	if err != nil {
		return failure(plain.Name(in.Path), err)
	}
	unreadable, uneditable, err := rulesOf(env)
	if err != nil {
		return nil, err
	}
	u := &treetar.Unpacker{
		Root: env.Root, Top: dir, In: env.Input, Most: in.MaxBytes, MaxFile: env.MaxFileSize,
		Leaves:   func(path string, e *treetar.Entry) bool { return uneditable.leaves(path, e.Kind == treetar.Dir) },
		Readable: unreadable.readable,
	}
	err = u.Unpack(ctx)
	if code := root.CodeOf(err); code == root.Broken || code != "" && u.Files+u.Dirs+u.Links == 0 {
		return failure(relative(env, dir), err)
	}
	r := treeResult(env, dir, &u.Count, "Wrote", "be written", uneditable, [2]string{"entry not written", "entries not written"})
	if err != nil {
		r.Output += fmt.Sprintf("\n(It ended early: %s. What was written until then stays.)\n", err)
		r.Metadata["incomplete"] = plain.Cut(err.Error(), maxIncomplete)
	}
	r.IsError = err != nil || len(uneditable.left) > 0 || u.Failed.N > 0
	return r, nil
}

// maxIncomplete bounds metadata, in bytes.
const maxIncomplete = 1000

// readable says why a file may not be read.
func (u *unread) readable(path string) error {
	if action, source := u.judge(path); action != readrule.Allow {
		return fmt.Errorf("the rules for read do not allow that (%s)", source)
	}
	return nil
}
