package session

import (
	"bytes"
	"encoding/base64"
	"image"
	_ "image/jpeg" // a decoder
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// A picture that is too large for models is read as a smaller copy, which is made in the
// sandbox; one that cannot be made smaller is refused with its size.
func TestRealPictureIsMadeSmaller(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, ``, nil)
	img := image.NewNRGBA(image.Rect(0, 0, 1500, 1000))
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range img.Pix {
		img.Pix[i] = byte(rnd.Uint32())
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.NoCompression}).Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"large.png": b.Bytes(), "half.png": b.Bytes()[:b.Len()*3/4]} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		t.Fatal(err)
	}
	c := realCall(t, m, s.ID, "read", object{"file_path": "large.png"})
	if c.IsError || c.Metadata["scaled"] != true || !strings.Contains(c.Output, "1500 × 1000 pixels, attached as a smaller copy: ") || len(c.Attachments) != 1 {
		t.Fatalf("%+v %q, %d attachments", c.Error, c.Output, len(c.Attachments))
	}
	_, text, _ := strings.Cut(c.Attachments[0].URL, "base64,")
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) > 5<<20/4*3 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if got, format, err := image.DecodeConfig(bytes.NewReader(data)); err != nil || format != "png" && format != "jpeg" || got.Width > 2000 {
		t.Errorf("%+v, %s, %v", got, format, err)
	}
	c = realCall(t, m, s.ID, "read", object{"file_path": "half.png"})
	if !c.IsError || !strings.Contains(c.Output, "cannot attach half.png: it is a broken PNG image, cut off or damaged") || len(c.Attachments) != 0 {
		t.Errorf("half a picture: %+v %q", c.Error, c.Output)
	}
}
