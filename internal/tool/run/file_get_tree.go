package run

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/treetar"
)

// FileGetTree streams a tar of what is below a directory. Files and links that the rules
// for "read" hide are left out and counted.
type FileGetTree struct{}

// Name implements Tool.
func (FileGetTree) Name() string { return "file_get_tree" }

// PackJob sends the directory at path as a tar of at most most bytes.
func PackJob(path string, most int64) Job { return treeJob(FileGetTree{}, path, most) }

// Prepare implements Tool.
func (FileGetTree) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	return prepareArchive(ctx, env, input, false)
}

// kernelDirs hold what the kernel makes up as it is read.
var kernelDirs = map[string]bool{"/proc": true, "/sys": true}

// Run implements Tool.
func (FileGetTree) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	var in archiveInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	if prep != nil && prep.Result != nil {
		return prep.Result, nil
	}
	dir, err := preparedPath(ctx, env, in.Path, prep)
	if err != nil {
		return failure(plain.Name(in.Path), err)
	}
	hidden, err := unreadOf(env)
	if err != nil {
		return nil, err
	}
	hidden.next = oneByOne
	p := &treetar.Packer{Root: env.Root, Top: dir, Out: env.Stream, Most: in.MaxBytes, Skip: kernelDirs, Hides: hidden.leaves}
	err = p.Pack(ctx)
	switch {
	case errors.Is(err, treetar.ErrTooLarge):
		return Failed(relative(env, dir), "%s was not copied whole: %s; copy it in parts", plain.Name(dir), err), nil
	case err != nil:
		return failure(relative(env, dir), err)
	}
	return treeResult(env, dir, &p.Count, "Packed", "be read", hidden, [2]string{"entry left out", "entries left out"}), nil
}

// leaves reports whether the rules leave an entry of a tree out, and counts it then. Of a
// directory they hide the name alone.
func (u *unread) leaves(path string, dir bool) bool {
	if dir {
		return u.hidesName(path)
	}
	if !u.hides(path) {
		return false
	}
	u.count(path)
	return true
}
