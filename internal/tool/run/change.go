package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/textdiff"
)

const (
	// maxEdit is the largest file that is read whole in order to change it, and
	// the largest that an edit makes.
	maxEdit = 32 << 20
	// changeCopies is how often a change holds the file and its input at a time,
	// counting each byte's worst form: as it is, with plain line endings, as a
	// tolerant strategy sees it, and changed.
	changeCopies = 4
	// maxGrowth is how much more than its size a file may turn out to have when
	// it is read whole. Files of /proc claim to have nothing.
	maxGrowth = 1 << 20
)

// reserve waits for the memory that a change of a file of size bytes takes.
func reserve(ctx context.Context, env *Env, size int64, input json.RawMessage) (*root.Reservation, error) {
	if size > maxEdit {
		size = 0 // it will not be read
	}
	return env.Root.Reserve(ctx, changeCopies*(size+int64(len(input))))
}

// readable is what may be read of a file of size bytes for which reserve was
// called.
func readable(size int64) int64 { return min(size+maxGrowth, maxEdit) }

// metadataDiff bounds the diff in a result's metadata.
const metadataDiff = 64 << 10

// changeState is what write and edit note in Prepared.State for their Run.
type changeState struct {
	Strategy string `json:"strategy,omitempty"`
	Places   int    `json:"places,omitempty"`
	Line     int    `json:"line,omitempty"` // of the first place
	Added    int    `json:"added"`
	Removed  int    `json:"removed"`
	// Version is the precondition for a file that is too large to hash.
	Version *root.Version `json:"version,omitempty"`
}

func (s changeState) json() json.RawMessage {
	b, _ := json.Marshal(s) // numbers and strings only
	return b
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// diffOf is the diff that a person judges the change by.
func diffOf(path string, old, new []byte, changes []textdiff.Change) (string, textdiff.Stat) {
	return textdiff.Unified(displayName(path), old, new, changes, MaxDiff-1024)
}

// checkSize refuses a file that programs of the session could not write either.
func checkSize(env *Env, path string, size int64) error {
	if env.MaxFileSize <= 0 || size <= env.MaxFileSize {
		return nil
	}
	return &root.Error{Code: root.TooLarge, Msg: fmt.Sprintf(
		"cannot write %s: it would have %d bytes, and the session's limit for a file is %d (file_size)",
		displayName(path), size, env.MaxFileSize)}
}

// checkStale proves that the file is as Prepare saw it.
func checkStale(p *root.Replacement, prep *Prepared, old []byte) error {
	if prep == nil || len(prep.Targets) == 0 {
		return nil
	}
	was, now := prep.Targets[0], p.Info()
	switch {
	case was.Exists && !now.Exists:
		return Errorf(CodeStale, "%s has been removed since the call was judged; repeat the call", displayName(was.Path))
	case !was.Exists && now.Exists:
		return Errorf(CodeStale, "%s has been created since the call was judged; read it and repeat the call", displayName(was.Path))
	case was.SHA256 != "" && was.SHA256 != sha256Hex(old):
		return Errorf(CodeStale, "%s has changed since the call was judged; read it again and repeat the call", displayName(was.Path))
	}
	return nil
}

// settingsOf reads the part of the configuration that is about the tool.
func settingsOf[T any](env *Env) (T, error) {
	var s T
	if len(env.Settings) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(env.Settings, &s); err != nil {
		return s, Errorf(CodeInternal, "the tool's settings cannot be read: %v", err)
	}
	return s, nil
}

// changed makes the result of a write or an edit that is done.
func changed(env *Env, done *root.Committed, content []byte, s changeState, diff string, created bool) *Result {
	if env.Seen != nil && len(content) <= maxEdit {
		env.Seen.Note(done.Info.Path, sha256Hex(content))
	}
	if len(diff) > metadataDiff {
		diff = diff[:metadataDiff] + "\n… diff cut here\n"
	}
	meta := map[string]any{
		"path": done.Info.Path, "bytes": len(content), "created": created, "truncated": false,
		"diff": diff, "lines_added": s.Added, "lines_removed": s.Removed,
	}
	if len(done.NotKept) > 0 {
		meta["not_kept"] = done.NotKept
	}
	return &Result{Title: relative(env, done.Info.Path), Metadata: meta}
}

// kept words what the new file could not be given, for the end of an output.
func kept(done *root.Committed) string {
	if len(done.NotKept) == 0 {
		return ""
	}
	return fmt.Sprintf("\nThe file could not keep its %v.", done.NotKept)
}

// whole is a file that is about to be changed, as Prepare sees it.
type whole struct {
	info root.Info // valid whenever its Path is not empty, also with an error
	old  []byte
	held *root.Reservation // nil with an error
}

// release gives back the memory that was reserved.
func (w *whole) release() {
	if w.held != nil {
		w.held.Release()
	}
}

// changeInput is the input of a tool that changes one file.
type changeInput interface{ path() string }

// pathOf gives the path that an input names. Of an input that is not small nothing
// else is decoded.
func pathOf[T changeInput](env *Env, input json.RawMessage) (string, error) {
	if len(input) <= keptInput {
		in, err := inputOf[T](env, input)
		return in.path(), err
	}
	var in struct {
		FilePath string `json:"file_path"`
	}
	err := decodeInput(input, &in)
	return in.FilePath, err
}

// lookWhole resolves the path of an input and reads the file that is there, if
// one is. Memory is reserved for that and for the whole input before either is
// read; release must be called also after an error.
func lookWhole[T changeInput](ctx context.Context, env *Env, input json.RawMessage) (w whole, asked string, err error) {
	asked, err = pathOf[T](env, input)
	if err != nil {
		return w, "", err
	}
	var file *root.File
	w.info, file, err = look(ctx, env, asked)
	if file != nil {
		defer func() { _ = file.Close() }()
	}
	if err != nil {
		return w, asked, err
	}
	if file == nil && w.info.Exists {
		return w, asked, &root.Error{Code: root.NotRegular, Msg: fmt.Sprintf("%s is not a regular file but a %s", displayName(w.info.Path), w.info.Kind)}
	}
	if file != nil {
		w.info = file.Info() // another file may have come since the path was resolved
	}
	if w.held, err = reserve(ctx, env, w.info.Size, input); err != nil || file == nil {
		return w, asked, err
	}
	w.old, err = file.ReadAll(ctx, readable(w.info.Size))
	return w, asked, err
}

// changeOf is what a change begins with: what Prepare saw, which is asked for now
// where nobody did before, and what it noted unless it has the result already.
func changeOf(ctx context.Context, t Tool, env *Env, input json.RawMessage, prep *Prepared) (*Prepared, changeState, error) {
	var s changeState
	if prep == nil {
		var err error
		if prep, err = t.Prepare(ctx, env, input); err != nil {
			return nil, s, err
		}
	}
	if prep.Result != nil {
		return prep, s, nil
	}
	if err := json.Unmarshal(prep.State, &s); err != nil {
		return nil, s, Errorf(CodeInternal, "what Prepare noted cannot be read: %v", err)
	}
	return prep, s, nil
}
