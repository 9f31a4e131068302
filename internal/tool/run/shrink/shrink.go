// Package shrink makes pictures small enough for models. It decodes what may be hostile, so
// it is run in a process of the tool user's alone (see Main), never in the agent.
package shrink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // decoders
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp" // likewise
	"golang.org/x/sys/unix"
)

// Bounds of what is decoded. A picture takes up to eight bytes a pixel, and more while it is decoded: this
// is for sessions that have no more than the default of memory, beside what they work on.
const (
	maxPixels = 16 << 20
	maxSource = 64 << 20
	// tries is how often a picture is made smaller until it has few enough bytes.
	tries   = 8
	quality = 85 // of JPEG
)

// Bounds are what the picture must keep.
type Bounds struct {
	Bytes int // of the file
	Side  int // in pixels
}

// Size is that of a picture in pixels, before and after.
type Size struct {
	Width     int `json:"width"`
	Height    int `json:"height"`
	NewWidth  int `json:"new_width"`
	NewHeight int `json:"new_height"`
}

// Picture scales a PNG, JPEG, GIF (its first frame) or WebP picture down. It is a JPEG
// where that is what it was, or where a PNG has too many bytes, and else a PNG.
func Picture(src []byte, b Bounds) ([]byte, Size, error) {
	c, format, err := image.DecodeConfig(bytes.NewReader(src))
	if err != nil {
		return nil, Size{}, err
	}
	s := Size{Width: c.Width, Height: c.Height}
	if c.Width <= 0 || c.Height <= 0 || c.Width > maxPixels/c.Height {
		return nil, s, fmt.Errorf("%d × %d pixels are more than %d", c.Width, c.Height, maxPixels)
	}
	img, _, err := image.Decode(bytes.NewReader(src))
	if err != nil {
		return nil, s, err
	}
	side := min(max(s.Width, s.Height), b.Side)
	for range tries {
		out := img
		if side < max(s.Width, s.Height) {
			out = scaled(img, side)
		}
		size := out.Bounds()
		s.NewWidth, s.NewHeight = size.Dx(), size.Dy()
		for _, lossy := range []bool{format == "jpeg", true} {
			data, err := encode(out, lossy)
			if err != nil {
				return nil, s, err
			}
			if len(data) <= b.Bytes {
				return data, s, nil
			}
		}
		side = side * 7 / 10
	}
	return nil, s, errors.New("it stays too large")
}

// scaled is a picture whose longer side has this many pixels.
func scaled(img image.Image, side int) image.Image {
	size := img.Bounds()
	w, h := size.Dx(), size.Dy()
	longer := max(w, h)
	out := image.NewNRGBA(image.Rect(0, 0, max(w*side/longer, 1), max(h*side/longer, 1)))
	draw.ApproxBiLinear.Scale(out, out.Bounds(), img, size, draw.Src, nil)
	return out
}

func encode(img image.Image, lossy bool) ([]byte, error) {
	var b bytes.Buffer
	var err error
	if lossy {
		err = jpeg.Encode(&b, img, &jpeg.Options{Quality: quality})
	} else {
		err = (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, img)
	}
	return b.Bytes(), err
}

// Main is a program that is given the path of a picture, and its inode: it writes the sizes
// as a line of JSON, and the smaller picture. Another file that has come to the path, also
// by a link, is refused.
func Main(path, inode string, b Bounds, out io.Writer) error {
	src, err := source(path, inode)
	if err != nil {
		return err
	}
	data, size, err := Picture(src, b)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(size); err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

// Broken is what Check writes, as JSON on a line.
type Broken struct {
	Broken bool `json:"broken"` // it is cut off or damaged
}

// Check decodes the picture that is the file path, and was the one with that inode number, and
// writes to out whether it is a broken one. What it cannot decode for another reason is none.
func Check(path, inode string, out io.Writer) error {
	src, err := source(path, inode)
	if err != nil {
		return err
	}
	c, format, err := image.DecodeConfig(bytes.NewReader(src))
	if err == nil && (c.Width <= 0 || c.Height <= 0 || c.Width > maxPixels/c.Height) {
		return fmt.Errorf("%d × %d pixels are more than %d", c.Width, c.Height, maxPixels)
	}
	if err == nil {
		_, _, err = image.Decode(bytes.NewReader(src))
	}
	return json.NewEncoder(out).Encode(Broken{broken(format, err)})
}

// broken reports whether a decoder's error means that a picture is cut off or damaged, and not
// that the decoder knows no such pictures.
func broken(format string, err error) bool {
	if err == nil {
		return false
	}
	_, newPNG := errors.AsType[png.UnsupportedError](err)
	_, newJPEG := errors.AsType[jpeg.UnsupportedError](err)
	switch format {
	case "png", "jpeg":
		return !newPNG && !newJPEG
	}
	return strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "not enough")
}

// source is the content of the file.
func source(path, inode string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if strconv.FormatUint(st.Ino, 10) != inode {
		return nil, fmt.Errorf("%s is another file by now", path)
	}
	src, err := io.ReadAll(io.LimitReader(f, maxSource+1))
	if err == nil && len(src) > maxSource {
		err = fmt.Errorf("it has more than %d bytes", maxSource)
	}
	return src, err
}
