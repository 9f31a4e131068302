package shipped

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	_ "image/gif" // decoders
	_ "image/jpeg"
	_ "image/png"
	"strings"
)

// Pixel is a PNG of one pixel, in base64.
const Pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// largePNG is one of 1600 × 1200 pixels, in base64: stripes.
var largePNG = "iVBORw0KGgoAAAANSUhEUgAABkAAAASwAQAAAACLers6AAADxElEQVQY0+3PQREAAAjDsB3+PYMKPru0CpJNx5OS" +
	strings.Repeat("QEBA", 311) + "PjrKJmz7XxxWeQAAAABJRU5ErkJggg=="

// headJPEG begins a JPEG of 1600 × 1200 pixels, in base64. Of it a bit 0 is a coefficient that is as the last
// one was, and the end of a block: what follows is zeros.
const headJPEG = "/9j/2wBDABAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBD/" +
	"wAALCASwBkABAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/"

// scanJPEG begins that.
const scanJPEG = "2gAIAQEAAD8A"

// draw is a command that makes a PNG of base64. It has that in two: it is not to be found there.
func draw(name, picture string) string {
	half := len(picture) / 2
	return "printf %s%s " + picture[:half] + " " + picture[half:] + " | base64 -d >" + name + "; "
}

// drawJPEG is a command that makes the JPEG, with comments in it that make 600 kB of it, as a photograph has.
func drawJPEG(name string) string {
	return "{ printf " + headJPEG + " | base64 -d; for i in 1 2 3 4 5 6 7 8 9; do printf '\\376\\377\\377'; head -c 65533 /dev/zero; printf '\\377'; done; " +
		"printf " + scanJPEG + " | base64 -d; head -c 7500 /dev/zero; printf '\\377\\331'; } >" + name + "; "
}

// Pictures are those of a question, in base64 and in order.
func (q *Question) Pictures() []string {
	var v any
	_ = json.Unmarshal(q.body, &v) // it was read before
	return picturesIn(v, nil)
}

func picturesIn(v any, found []string) []string {
	switch v := v.(type) {
	case string:
		if _, data, ok := strings.Cut(v, ";base64,"); ok && strings.HasPrefix(v, "data:") {
			v = data
		}
		if _, _, err := decoded(v); err == nil {
			found = append(found, v)
		}
	case []any:
		for _, item := range v {
			found = picturesIn(item, found)
		}
	case map[string]any:
		for _, item := range v {
			found = picturesIn(item, found)
		}
	}
	return found
}

// decoded is what a picture in base64 says of itself; of a WebP that it is one.
func decoded(text string) (c image.Config, format string, err error) {
	data, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
	case len(data) > 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		format = "webp"
	default:
		c, format, err = image.DecodeConfig(bytes.NewReader(data))
	}
	return c, format, err
}

// described is a picture in base64, for people.
func described(picture string) string {
	c, format, err := decoded(picture)
	if err != nil {
		return "no picture"
	}
	if c.Width == 0 {
		return fmt.Sprintf("a %s of %s", strings.ToUpper(format), bytesOf(base64.StdEncoding.DecodedLen(len(picture))))
	}
	return fmt.Sprintf("a %s of %d × %d pixels and %s", strings.ToUpper(format), c.Width, c.Height, bytesOf(base64.StdEncoding.DecodedLen(len(picture))))
}
