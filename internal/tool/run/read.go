package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// Read is the tool that shows a file or a directory.
type Read struct{}

type readInput struct {
	FilePath string `json:"file_path"`
	Offset   int    `json:"offset"` // from 1; 0 = not given
	Limit    int    `json:"limit"`  // 0 = not given
}

const (
	readLines   = 2000
	readColumns = 2000 // characters of a line
	// readBytes bounds the whole output, with line numbers and footer, so that
	// nothing later cuts the footer off.
	readBytes = 50 << 10
	// readAhead is how far behind the shown part the rest of a file is read to
	// count its lines and to know its hash. In a larger file the count is a
	// lower bound and says so.
	readAhead = 128 << 20
	// readSeek is how far into a file an offset is looked for.
	readSeek = 4 << 30
	// maxAttachment is the largest file that a result carries.
	maxAttachment = 20 << 20
	// attachmentCopies is how often it is held until the result is encoded.
	attachmentCopies = 4
)

// Name implements Tool.
func (Read) Name() string { return "read" }

func (Read) onlyFiles() {}

// Prepare implements Tool: it resolves the path. Whether the file exists shows
// in the target only; everything that would quote the tree is left to Run.
func (Read) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	in, err := inputOf[readInput](input)
	if err != nil {
		return nil, err
	}
	return prepareTarget(ctx, env, in.FilePath, false, nil)
}

// Run implements Tool.
func (Read) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	in, err := inputOf[readInput](input)
	if err != nil {
		return nil, err
	}
	if in.Offset < 0 || in.Limit < 0 {
		return nil, Errorf(CodeInvalidInput, "offset and limit count from 1; leave them out to read from the beginning")
	}
	if prep != nil && prep.Result != nil {
		return prep.Result, nil
	}
	path, err := preparedPath(ctx, env, in.FilePath, prep)
	if err != nil {
		return failure(plain.Name(in.FilePath), err)
	}
	title := relative(env, path)
	most, err := pageBytes(env)
	if err != nil {
		return nil, err
	}
	file, err := env.Root.Open(ctx, path)
	switch root.CodeOf(err) {
	case root.NotRegular:
		return readDir(ctx, env, path, in, most, err)
	case root.NotExist:
		return Failed(title, "%s", notFound(ctx, env, path)), nil
	}
	if err != nil {
		return failure(title, err)
	}
	defer func() { _ = file.Close() }()
	result, err := readFile(ctx, env, file, title, in, most)
	if err != nil {
		return failure(title, err)
	}
	return result, nil
}

// pageBytes is readBytes, or less for an agent that passes on less.
func pageBytes(env *Env) (int, error) {
	settings, err := settingsOf[struct {
		PageBytes int `json:"page_bytes"`
	}](env)
	return cmp.Or(min(settings.PageBytes, readBytes), readBytes), err
}

// readFile shows an open file according to what it is, in a page of so many bytes at most.
func readFile(ctx context.Context, env *Env, file *root.File, title string, in readInput, most int) (*Result, error) {
	ahead := textfile.SniffLen
	if left, ok := file.Left(); ok {
		ahead = min(left, ahead)
	}
	head := make([]byte, ahead)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	head = head[:n]
	kind := textfile.Sniff(head)
	switch {
	case kind.Attachable:
		return readAttachment(ctx, env, file, title, kind, head)
	case !kind.Text && kind.UTF16 == nil:
		return notText(title, kind), nil
	}
	return readText(ctx, env, file, title, in, most, kind, head)
}

func notText(title string, kind textfile.Kind) *Result {
	r := Failed(title, "cannot show %s: it is %s. Use bash with a program that understands it.", title, kind.Name)
	r.Metadata = map[string]any{"kind": kind.Name}
	return r
}

// readAttachment gives an image or a document whole. It is never decoded here: one that
// nobody would take is made smaller by a program of the tool user's, or refused.
func readAttachment(ctx context.Context, env *Env, file *root.File, title string, kind textfile.Kind, head []byte) (*Result, error) {
	if r := tooLarge(title, kind, file.Info().Size, head); r != nil {
		return shrunk(ctx, env, file.Info(), title, kind, r), nil
	}
	size := file.Info().Size
	held, err := env.Root.Reserve(ctx, attachmentCopies*size)
	if err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if !keep {
			held.Release()
		}
	}()
	refused, unseen := brokenPicture(ctx, env, file.Info(), title, kind)
	if refused != nil {
		return refused, nil
	}
	result, err := attachment(ctx, file, title, kind, head, min(size+maxGrowth, attachable(kind)))
	if err == nil && !result.IsError {
		result = checked(env, result, title, kind, unseen)
	}
	if err != nil || result.IsError || env.Keep == nil {
		return result, err
	}
	keep = true
	env.Keep(held)
	return result, nil
}

// checked is a file that is attached, if it is whole as far as that shows. unseen says that nobody
// could decode it.
func checked(env *Env, r *Result, title string, kind textfile.Kind, unseen bool) *Result {
	structured := kind.MIME == "image/bmp" || kind.MIME == "application/pdf" || kind.MIME == "image/gif"
	unseen = unseen && len(env.Shrink) > 0
	switch {
	case (structured || unseen) && textfile.CutOff(kind, r.Attachments[0].Data):
		return broken(title, kind)
	case unseen:
		r.Output += " (it is not cut off, but could not be looked into, as it is large or memory is short: a smaller copy can be, should it not be taken)"
	}
	return r
}

// attachment is readAttachment with the memory for a file of limit bytes.
func attachment(ctx context.Context, file *root.File, title string, kind textfile.Kind, head []byte, limit int64) (*Result, error) {
	rest, err := file.ReadAll(ctx, limit)  // which it compares with the size of all
	if root.CodeOf(err) == root.TooLarge { // it has grown, or did not say its size
		return tooLarge(title, kind, attachable(kind)+1, head), nil
	}
	if err != nil {
		return nil, err
	}
	data := append(head, rest...)
	if r := tooLarge(title, kind, int64(len(data)), data); r != nil {
		return r, nil
	}
	base := file.Info().Path[strings.LastIndexByte(file.Info().Path, '/')+1:]
	return &Result{
		Title:       title,
		Output:      fmt.Sprintf("%s: %s, %s, attached", title, kind.Name, plain.Count(len(data), "byte", "bytes")),
		Metadata:    map[string]any{"path": file.Info().Path, "kind": kind.Name, "mime": kind.MIME, "bytes": len(data), "truncated": false},
		Attachments: []Attachment{{Filename: base, MIME: kind.MIME, Data: data}},
	}, nil
}

// readText shows a page of lines. Any page counts as having seen the file in its
// present state (for edit's require_read): a large file could never be edited if
// all of it had to be shown.
func readText(ctx context.Context, env *Env, file *root.File, title string, in readInput, most int, kind textfile.Kind, head []byte) (*Result, error) {
	p := newPage(max(in.Offset, 1), in.Limit, most)
	hash := sha256.New()
	hash.Write(head)
	text, last := func(b []byte) []byte { return b }, func() []byte { return nil }
	if kind.UTF16 != nil {
		d := textfile.NewDecoder(kind.UTF16)
		text, last, p.encoding = d.Decode, d.End, kind.Name
	}
	p.feed(bytes.TrimPrefix(text(head), textfile.BOM))
	total := int64(len(head))
	buf := make([]byte, bufferFor(file))
	whole := false
	for !p.full() && total < readSeek || p.full() && !p.invalid && total < readAhead {
		if ctx.Err() != nil {
			return nil, Errorf(CodeAborted, "stopped before it was done: %v", context.Cause(ctx))
		}
		n, err := file.Read(buf)
		if errors.Is(err, io.EOF) {
			whole = true
			break
		}
		if err != nil {
			return nil, err
		}
		total += int64(n)
		if total <= maxEdit {
			hash.Write(buf[:n])
		}
		p.feed(text(buf[:n]))
	}
	if whole {
		p.feed(last())
	}
	p.end(whole)
	if p.invalid {
		return notText(title, textfile.NotUTF8), nil
	}
	if p.shown == 0 && (p.first > 1 || !whole) {
		return outOfRange(title, p, whole), nil
	}
	if whole && total <= maxEdit && env.Seen != nil {
		env.Seen.Note(file.Info().Path, hex.EncodeToString(hash.Sum(nil)))
	}
	return p.result(file.Info().Path, title, whole), nil
}

// bufferFor is how much of a file is read at a time.
func bufferFor(file *root.File) int {
	if left, ok := file.Left(); ok {
		return max(left, 1)
	}
	return int(max(4<<10, min(256<<10, file.Info().Size)))
}

func outOfRange(title string, p *page, whole bool) *Result {
	if whole {
		return Failed(title, "offset %d is past the end of %s, which has %s", p.first, title, plain.Count(p.count, "line", "lines"))
	}
	return Failed(title, "line %d of %s is more than %d GiB into the file, farther than read looks; "+
		"the part that was looked at has %s. Use bash, for example tail or sed -n.", p.first, title, readSeek>>30, plain.Count(p.count, "line", "lines"))
}
