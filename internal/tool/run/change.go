package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/replace"
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

// metadataDiff bounds the diff in a result's metadata, which has room for 64 KiB in
// all.
const metadataDiff = 48 << 10

// changeState is what write and edit note in Prepared.State for their Run. Without
// it only the path was prepared, and Run goes by the file as it is.
type changeState struct {
	// Strategies are those that found the places of the edits.
	Strategies []replace.Strategy `json:"strategies,omitempty"`
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
	return textdiff.Unified(plain.Name(path), old, new, changes, MaxDiff-1024)
}

// diffWithin is the diff of two texts, of about most bytes.
func diffWithin(path string, old, new []byte, most int) (string, textdiff.Stat) {
	return textdiff.Unified(plain.Name(path), old, new, textdiff.Between(old, new), most)
}

// checkSize refuses a file that programs of the session could not write either.
func checkSize(env *Env, path string, size int64) error {
	if env.MaxFileSize <= 0 || size <= env.MaxFileSize {
		return nil
	}
	return &root.Error{Code: root.TooLarge, Msg: fmt.Sprintf(
		"cannot write %s: it would have %d bytes, and the session's limit for a file is %d (file_size)",
		plain.Name(path), size, env.MaxFileSize)}
}

// checkStale proves that the file is as Prepare saw it, as far as that looked.
func checkStale(now root.Info, was Target, old []byte) error {
	switch {
	case was.Exists && !now.Exists:
		return Errorf(CodeStale, "%s has been removed since the call was judged", plain.Name(was.Path))
	case !was.Exists && now.Exists:
		return Errorf(CodeStale, "%s has been created since the call was judged", plain.Name(was.Path))
	case was.SHA256 != "" && was.SHA256 != sha256Hex(old):
		return staleContent(was)
	}
	return nil
}

func staleContent(was Target) error {
	return Errorf(CodeStale, "%s has changed since the call was judged", plain.Name(was.Path))
}

// change is what a write or an edit makes of a file.
type change struct {
	refused *Result // why nothing is made of it
	content []byte
	diff    string
	stat    textdiff.Stat
	note    string           // of how its lines end, which says something of the old content; "" for nothing
	found   []*replace.Found // of each edit, none where nothing was looked for
}

// unlike reports whether a person was shown another change, in prep.
func (c *change) unlike(prep *Prepared) bool { return prep.State != nil && c.diff != prep.Diff }

// changed makes the result of a write or an edit that is done.
func changed(env *Env, done *root.Committed, c *change, created bool) *Result {
	title := relative(env, done.Info.Path)
	diff := cutMetadata(c.diff)
	if len(diff) < len(c.diff) {
		diff += fmt.Sprintf("… diff cut here: in all %s; read %s for the file as it is now\n", c.stat, title)
	}
	meta := map[string]any{
		"path": done.Info.Path, "bytes": len(c.content), "created": created, "truncated": false,
		"diff": diff, "lines_added": c.stat.Added, "lines_removed": c.stat.Removed,
	}
	if len(done.NotKept) > 0 {
		meta["not_kept"] = done.NotKept
	}
	return &Result{Title: title, Metadata: meta}
}

// cutMetadata cuts a diff to what metadata has room for.
func cutMetadata(diff string) string {
	if len(diff) <= metadataDiff {
		return diff
	}
	return diff[:strings.LastIndexByte(diff[:metadataDiff], '\n')+1]
}

// kept words what the new file could not be given, and which names the old one still has, for
// the end of an output.
func kept(done *root.Committed) string {
	text := ""
	if len(done.NotKept) > 0 {
		text = fmt.Sprintf("\nThe file could not keep its %v.", done.NotKept)
	}
	if done.Names > 0 {
		text += "\nThe file " + parted(done.Names)
	}
	return text
}

// parted says that a file was one of several names (hard links) of the same content.
func parted(names int) string {
	rest := "the others keep"
	if names == 2 {
		rest = "the other one keeps"
	}
	return fmt.Sprintf("had %s (hard links): %s the old content.", plain.Count(names, "name", "names"), rest)
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

// pathOf gives the path that the input of a tool that changes one file names. Nothing
// else of it is decoded: it may be large.
func pathOf(input json.RawMessage) (string, error) {
	in, err := inputOf[struct {
		FilePath string `json:"file_path"`
	}](input)
	return in.FilePath, err
}

// lookWhole resolves the path of an input and reads the file that is there, if
// one is. Memory is reserved for that and for the whole input before either is
// read; release must be called also after an error.
func lookWhole(ctx context.Context, env *Env, input json.RawMessage) (w whole, asked string, err error) {
	asked, err = pathOf(input)
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
	if err := checkRegular(w.info); err != nil {
		return w, asked, err
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

// resolveChange is Resolve of a tool that changes one file.
func resolveChange(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	asked, err := pathOf(input)
	if err != nil {
		return nil, err
	}
	return prepareTarget(ctx, env, asked, true, checkRegular)
}

// changeFailure is failure for a change of the file at path. Where nothing can be
// written in that place it says where something can.
func changeFailure(ctx context.Context, env *Env, path string, err error) (*Result, error) {
	result, failed := failure(relative(env, path), err)
	if result == nil || !errors.Is(err, unix.EROFS) && (root.CodeOf(err) != root.Denied || isBelow(path, env.Worktree)) {
		return result, failed
	}
	var places []string
	for _, dir := range []string{env.Worktree, env.Home, env.Tmp} {
		if dir != "" && !isBelow(path, dir) {
			places = append(places, plain.Name(dir))
		}
	}
	if len(places) > 0 {
		result.Output += "; files can be written below " + strings.Join(places, ", ")
	}
	if here, _ := inWorktree(ctx, env, path); here != "" {
		result.Output += ". There is " + plain.Name(here)
	}
	return result, failed
}

// checkRegular refuses what exists and is no regular file.
func checkRegular(info root.Info) error {
	if !info.Exists || info.Kind == root.KindFile {
		return nil
	}
	e := &root.Error{Code: root.NotRegular, Msg: fmt.Sprintf("%s is not a regular file but a %s", plain.Name(info.Path), info.Kind)}
	if info.Kind == root.KindDir {
		e.Msg, e.Hint = plain.Name(info.Path)+" is a directory", "name a file in it"
	}
	return e
}

// changeOf is what a change begins with: the target, which is looked for now where
// nobody did before, and what Prepare noted of it unless it has the result already.
func changeOf(ctx context.Context, t Direct, env *Env, input json.RawMessage, prep *Prepared) (*Prepared, changeState, error) {
	var s changeState
	if prep == nil {
		var err error
		if prep, err = t.Resolve(ctx, env, input); err != nil {
			return nil, s, err
		}
	}
	if prep.Result != nil || prep.State == nil {
		return prep, s, nil
	}
	if err := json.Unmarshal(prep.State, &s); err != nil {
		return nil, s, Errorf(CodeInternal, "what Prepare noted cannot be read: %v", err)
	}
	return prep, s, nil
}

// begun is a file that is locked for a change, with the memory that the change takes.
type begun struct {
	*root.Replacement
	held *root.Reservation
}

// Close gives both up.
func (b *begun) Close() {
	b.held.Release()
	b.Replacement.Close()
}

// commit puts a change in the file's place. It counts as seen before it is there: the
// next change of the file may begin at that moment, since the lock is on the file that
// was replaced.
func (b *begun) commit(ctx context.Context, env *Env, c *change, durable bool) (*root.Committed, error) {
	if env.Seen != nil && len(c.content) <= maxEdit {
		env.Seen.Note(b.Info().Path, sha256Hex(c.content))
	}
	return b.Commit(ctx, c.content, root.CommitOptions{Durable: durable})
}

// begin locks the target of a change. What does not exist is made, with its parents,
// and takes no memory but the input's.
func begin(ctx context.Context, env *Env, t Target, input json.RawMessage) (*begun, error) {
	var held *root.Reservation
	var err error
	if !t.Exists {
		if held, err = reserve(ctx, env, 0, input); err != nil {
			return nil, err
		}
	}
	p, err := env.Root.Begin(ctx, t.Path, root.BeginOptions{Parents: !t.Exists})
	if err == nil && held == nil {
		if held, err = reserve(ctx, env, p.Info().Size, input); err != nil {
			p.Close()
		}
	}
	if err != nil {
		if held != nil {
			held.Release()
		}
		return nil, err
	}
	return &begun{p, held}, nil
}
