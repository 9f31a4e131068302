package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// maxPicture is the largest picture that a result carries: the providers of models
// refuse a request with one that has more than 5 MiB as base64.
const maxPicture = 5 << 20 / 4 * 3

// attachable is the most bytes that a file of this kind may have.
func attachable(kind textfile.Kind) int64 {
	if strings.HasPrefix(kind.MIME, "image/") {
		return maxPicture
	}
	return maxAttachment
}

// tooLarge says why a file that begins with data cannot be attached, and what to do;
// size is what is known of its bytes. It is nil where it can be.
func tooLarge(title string, kind textfile.Kind, size int64, data []byte) *Result {
	most := attachable(kind)
	if most != maxPicture {
		if size <= most {
			return nil
		}
		return Failed(title, "cannot attach %s: it is a %s of more than %d MiB. Make a smaller one of it, or take its text out with a program such as pdftotext, and read that.",
			title, kind.Name, most>>20)
	}
	width, height, ok := textfile.Pixels(kind, data)
	if size <= most && (!ok || textfile.Fits(width, height)) {
		return nil
	}
	what := plain.Count(size, "byte", "bytes")
	if ok {
		what += fmt.Sprintf(" and %d × %d pixels", width, height)
	}
	return Failed(title, "cannot attach %s: it is a %s of %s, and models take pictures of at most %d bytes and %d pixels on a side. "+
		"Make a smaller copy and read that: for example with ImageMagick (magick IN -resize 2000x2000 OUT.jpg), ffmpeg or Python's Pillow, where they are installed.",
		title, kind.Name, what, most, textfile.MaxSide)
}

const (
	// shrinkTime is how long a picture may take to be made smaller.
	shrinkTime = 30 * time.Second
	// shrunkSide is the longest side that it gets, in pixels: providers scale down what is
	// larger themselves.
	shrunkSide = 2000
	maxSizes   = 256 // bytes of the line that the program writes first
)

// PictureBounds are those of what the program writes that Env.Shrink names.
func PictureBounds() (bytes, side int) { return maxPicture, shrunkSide }

// CheckPicture is the last argument of the program that Env.Shrink names where it is to say no more
// than whether a picture is broken.
const CheckPicture = "check"

// brokenPicture refuses a picture that is cut off or damaged: providers of models answer a request
// with one with an error, and so every later one of the conversation. nil: it is none, or unseen
// says that nobody could look into it.
func brokenPicture(ctx context.Context, env *Env, info root.Info, title string, kind textfile.Kind) (refused *Result, unseen bool) {
	switch kind.MIME {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
	default:
		return nil, false
	}
	var found struct{ Broken bool }
	said := ran(ctx, env, info, CheckPicture)
	if line, _, _ := bytes.Cut(said, []byte("\n")); len(line) > maxSizes || json.Unmarshal(line, &found) != nil {
		return nil, true
	}
	if !found.Broken {
		return nil, false
	}
	return broken(title, kind), false
}

// broken refuses what is cut off or damaged.
func broken(title string, kind textfile.Kind) *Result {
	return Failed(title, "cannot attach %s: it is a broken %s, cut off or damaged, which models are not shown. Make it anew, or look at it with bash.", title, kind.Name)
}

// ran is what the program that Env.Shrink names writes about a picture; nil where it fails.
func ran(ctx context.Context, env *Env, info root.Info, more ...string) []byte {
	if len(env.Shrink) == 0 || env.Exec == nil {
		return nil
	}
	out := &bounded{most: maxPicture + maxSizes}
	ended := make(chan bool, 1)
	go func() { // whose thread has not the tool user's ids, from which none could be changed to
		argv := append(slices.Clip(env.Shrink), info.Path, strconv.FormatUint(info.Version.Ino, 10))
		exit, err := env.Exec(ctx, Command{Argv: append(argv, more...), Stdout: out, Stderr: new(bounded), Timeout: shrinkTime})
		ended <- err == nil && exit.Reason == ReasonExit && exit.Code == 0
	}()
	if !<-ended {
		return nil
	}
	return out.b.Bytes()
}

// shrunk is a picture that is too large, made smaller by a program that has the tool user's
// rights and the call's limits; what it writes is believed no more than the file. It is
// refused where that fails.
func shrunk(ctx context.Context, env *Env, info root.Info, title string, kind textfile.Kind, refused *Result) *Result {
	if len(env.Shrink) == 0 || env.Exec == nil || attachable(kind) != maxPicture {
		return refused
	}
	held, err := env.Root.Reserve(ctx, attachmentCopies*maxPicture)
	if err != nil {
		return refused
	}
	r := refused
	if written := ran(ctx, env, info); written != nil {
		if small := shrunkResult(info, title, kind, written); small != nil {
			r = small
		}
	} else if broken, _ := brokenPicture(ctx, env, info, title, kind); broken != nil {
		r = broken // of which no smaller copy can be made either
	}
	if r.IsError || env.Keep == nil {
		held.Release()
		return r
	}
	env.Keep(held)
	return r
}

// shrunkResult checks what the program has written; nil = it is no smaller picture.
func shrunkResult(info root.Info, title string, was textfile.Kind, written []byte) *Result {
	line, data, ok := bytes.Cut(written, []byte("\n"))
	var size struct{ Width, Height int }
	if !ok || len(line) > maxSizes || json.Unmarshal(line, &size) != nil || len(data) > maxPicture {
		return nil
	}
	kind := textfile.Sniff(data[:min(len(data), textfile.SniffLen)])
	width, height, ok := textfile.Pixels(kind, data)
	if !ok || !textfile.Fits(width, height) || kind.MIME != "image/png" && kind.MIME != "image/jpeg" {
		return nil
	}
	base := info.Path[strings.LastIndexByte(info.Path, '/')+1:]
	return &Result{
		Title: title,
		Output: fmt.Sprintf("%s: %s, %s, %d × %d pixels, attached as a smaller copy: %d × %d pixels, %s",
			title, was.Name, plain.Count(info.Size, "byte", "bytes"), size.Width, size.Height, width, height, plain.Count(len(data), "byte", "bytes")),
		Metadata: map[string]any{
			"path": info.Path, "kind": was.Name, "mime": kind.MIME, "bytes": len(data), "truncated": false,
			"scaled": true, "width": width, "height": height,
		},
		Attachments: []Attachment{{Filename: base, MIME: kind.MIME, Data: data}},
	}
}

// bounded keeps what is written to it, up to a bound, and says that it has taken all.
type bounded struct {
	b    bytes.Buffer
	most int
}

// Write implements io.Writer.
func (w *bounded) Write(p []byte) (int, error) {
	w.b.Write(p[:min(len(p), max(w.most-w.b.Len(), 0))])
	return len(p), nil
}
