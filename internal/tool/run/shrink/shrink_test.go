package shrink

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
)

// noise is a picture that no format makes small.
func noise(w, h int) image.Image {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range img.Pix {
		img.Pix[i] = byte(rnd.Uint32())
	}
	return img
}

func encoded(t *testing.T, format string, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, img)
	case "jpeg":
		err = jpeg.Encode(&b, img, nil)
	case "gif":
		err = gif.Encode(&b, img, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPicture(t *testing.T) {
	plain := image.NewUniform(color.NRGBA{10, 20, 30, 255})
	flat := image.NewNRGBA(image.Rect(0, 0, 300, 100))
	for y := range 100 {
		for x := range 300 {
			flat.Set(x, y, plain.At(x, y))
		}
	}
	for _, tt := range []struct {
		name, format string
		img          image.Image
		b            Bounds
		w, h         int
		made         string
	}{
		{"too wide", "png", flat, Bounds{1 << 20, 150}, 150, 50, "png"},
		{"a jpeg stays one", "jpeg", flat, Bounds{1 << 20, 150}, 150, 50, "jpeg"},
		{"a frame of a gif", "gif", flat, Bounds{1 << 20, 30}, 30, 10, "png"},
		{"too many bytes", "png", noise(400, 400), Bounds{200 << 10, 1000}, 0, 0, "jpeg"},
	} {
		data, size, err := Picture(encoded(t, tt.format, tt.img), tt.b)
		if err != nil || len(data) > tt.b.Bytes || size.Width != tt.img.Bounds().Dx() {
			t.Errorf("%s: %d bytes, %+v, %v", tt.name, len(data), size, err)
			continue
		}
		c, format, err := image.DecodeConfig(bytes.NewReader(data))
		if err != nil || format != tt.made || c.Width != size.NewWidth || tt.w > 0 && (c.Width != tt.w || c.Height != tt.h) {
			t.Errorf("%s: %s of %d × %d, %v", tt.name, format, c.Width, c.Height, err)
		}
	}
	if _, _, err := Picture(encoded(t, "png", noise(600, 600)), Bounds{100, 1000}); err == nil || !strings.Contains(err.Error(), "stays too large") {
		t.Errorf("got %v", err)
	}
}

// A picture that claims more pixels than are decoded is refused before any is.
func TestPictureBounds(t *testing.T) {
	huge := encoded(t, "gif", noise(2, 2))
	huge[6], huge[7], huge[8], huge[9] = 0xff, 0xff, 0xff, 0xff
	if _, size, err := Picture(huge, Bounds{1 << 20, 1000}); err == nil || size.Width != 65535 || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%+v, %v", size, err)
	}
	for sides, decodes := range map[[2]uint16]bool{{4096, 4096}: true, {4096, 4097}: false, {1, 65535}: true} {
		claims := encoded(t, "gif", noise(2, 2))
		binary.LittleEndian.PutUint16(claims[6:], sides[0])
		binary.LittleEndian.PutUint16(claims[8:], sides[1])
		path := t.TempDir() + "/p.gif"
		if err := os.WriteFile(path, claims, 0o600); err != nil {
			t.Fatal(err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		_, _, err := Picture(claims, Bounds{1 << 20, 1000})
		checked := Check(path, fmt.Sprint(st.Ino), io.Discard)
		if bounded := err != nil && strings.Contains(err.Error(), "more than"); bounded == decodes || (checked == nil) != decodes {
			t.Errorf("%v: %v, %v", sides, err, checked)
		}
	}
	if _, _, err := Picture([]byte("no picture"), Bounds{1 << 20, 1000}); err == nil {
		t.Error("no picture was taken for one")
	}
	cut := encoded(t, "png", noise(50, 50))
	if _, _, err := Picture(cut[:len(cut)/2], Bounds{1 << 20, 10}); err == nil {
		t.Error("half a picture was taken for one")
	}
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/p.png"
	if err := os.WriteFile(path, encoded(t, "png", noise(100, 50)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("p.png", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	inode := fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino)
	var out bytes.Buffer
	if err := Main(path, inode, Bounds{1 << 20, 20}, &out); err != nil {
		t.Fatal(err)
	}
	line, data, _ := bytes.Cut(out.Bytes(), []byte("\n"))
	var size Size
	if err := json.Unmarshal(line, &size); err != nil || size != (Size{100, 50, 20, 10}) {
		t.Errorf("%s, %v", line, err)
	}
	if _, _, err := image.DecodeConfig(bytes.NewReader(data)); err != nil {
		t.Error(err)
	}
	if err := Main(path, inode+"1", Bounds{1 << 20, 20}, &out); err == nil {
		t.Error("another file was taken")
	}
	for _, bad := range []string{dir + "/link", dir + "/none", dir} {
		if err := Main(bad, inode, Bounds{1 << 20, 20}, &out); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// FuzzPicture: no bytes make it panic, and what it makes keeps its bounds.
func FuzzPicture(f *testing.F) {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewNRGBA(image.Rect(0, 0, 3, 3)))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, src []byte) {
		c, _, err := image.DecodeConfig(bytes.NewReader(src))
		if err != nil || c.Width*c.Height > 1<<20 {
			return
		}
		data, size, err := Picture(src, Bounds{1 << 16, 64})
		if err == nil && (len(data) > 1<<16 || size.NewWidth > 64 || size.NewHeight > 64) {
			t.Errorf("%d bytes, %+v", len(data), size)
		}
	})
}
