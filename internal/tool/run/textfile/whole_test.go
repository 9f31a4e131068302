package textfile

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color/palette"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"

	"golang.org/x/image/bmp"
)

// TestCutOff: a file of each kind is whole, and none of its beginnings is.
func TestCutOff(t *testing.T) {
	t.Parallel()
	img := image.NewPaletted(image.Rect(0, 0, 37, 23), palette.Plan9)
	for i := range img.Pix {
		img.Pix[i] = byte(i * 7)
	}
	made := func(encode func(b *bytes.Buffer) error) []byte {
		var b bytes.Buffer
		if err := encode(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	// One pixel, by cwebp.
	webp, err := base64.StdEncoding.DecodeString("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")
	if err != nil {
		t.Fatal(err)
	}
	for mime, whole := range map[string][]byte{
		"image/png":  made(func(b *bytes.Buffer) error { return png.Encode(b, img) }),
		"image/jpeg": made(func(b *bytes.Buffer) error { return jpeg.Encode(b, img, nil) }),
		"image/bmp":  made(func(b *bytes.Buffer) error { return bmp.Encode(b, img) }),
		"image/gif": made(func(b *bytes.Buffer) error {
			return gif.EncodeAll(b, &gif.GIF{Image: []*image.Paletted{img, img, img}, Delay: []int{1, 1, 1}})
		}),
		"image/webp": webp, "application/pdf": []byte("%PDF-1.4\ntrailer\n%%EOF"),
	} {
		if k := Sniff(whole); k.MIME != mime || CutOff(k, whole) || CutOff(k, append(bytes.Clone(whole), "\x00\n\x00"...)) {
			t.Errorf("%s is %s, and not whole", mime, k.MIME)
		}
		for n := range whole {
			if !CutOff(Kind{MIME: mime}, whole[:n]) {
				t.Errorf("%s: the first %d bytes of %d are whole", mime, n, len(whole))
				break
			}
		}
	}
	damaged := made(func(b *bytes.Buffer) error { return png.Encode(b, img) })
	if damaged[len(damaged)/2] ^= 1; !CutOff(Kind{MIME: "image/png"}, damaged) {
		t.Error("a damaged PNG is whole")
	}
	if CutOff(NotUTF8, nil) {
		t.Error("what has no structure is cut off")
	}
}
