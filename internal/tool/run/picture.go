package run

import (
	"fmt"
	"strings"

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
	what := fmt.Sprintf("%d bytes", size)
	if ok {
		what += fmt.Sprintf(" and %d × %d pixels", width, height)
	}
	return Failed(title, "cannot attach %s: it is a %s of %s, and models take pictures of at most %d bytes and %d pixels on a side. "+
		"Make a smaller copy and read that: for example with ImageMagick (magick IN -resize 2000x2000 OUT.jpg), ffmpeg or Python's Pillow, where they are installed.",
		title, kind.Name, what, most, textfile.MaxSide)
}
