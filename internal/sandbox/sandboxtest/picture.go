package sandboxtest

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"strings"

	"github.com/toold/toold/internal/testrig"
)

// testPicture: a picture that is too wide for models is read as a smaller copy, which a program
// of the tool user's makes in the sandbox.
func testPicture(s *suite) {
	var wide bytes.Buffer
	testrig.Must(s, png.Encode(&wide, image.NewGray(image.Rect(0, 0, 8001, 2))))
	b := s.create(s.spec())
	var octal strings.Builder // which every shell's printf has
	for _, c := range wide.Bytes() {
		fmt.Fprintf(&octal, `\%03o`, c)
	}
	b.out("printf '" + octal.String() + "' >wide.png")
	r := b.tool("read", `{"file_path": "wide.png"}`)
	if r.IsError || !strings.Contains(r.Output, "attached as a smaller copy: ") || len(r.Attachments) != 1 {
		s.Fatalf("got %q with %d attachments", r.Output, len(r.Attachments))
	}
	small, format, err := image.DecodeConfig(bytes.NewReader(r.Attachments[0].Data))
	if err != nil || format != "png" || small.Width > 2000 || small.Height < 1 {
		s.Errorf("the copy is a %s of %d × %d pixels, %v", format, small.Width, small.Height, err)
	}
}
