package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool/run/textfile"
)

// What the program that makes pictures smaller writes is checked: only a smaller picture is
// attached, and all else is refused as a picture that is too large.
func TestReadShrinks(t *testing.T) {
	img := image.NewNRGBA(image.Rect(0, 0, 1100, 1000))
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range img.Pix {
		img.Pix[i] = byte(rnd.Uint32())
	}
	var large, small bytes.Buffer
	if err := errors.Join(png.Encode(&large, img), png.Encode(&small, image.NewNRGBA(image.Rect(0, 0, 7, 5)))); err != nil {
		t.Fatal(err)
	}
	sizes := "{\"width\":1100,\"height\":1000}\n"
	for _, tt := range []struct {
		name, written string
		exit          Exit
		err           error
		ok            bool
	}{
		{"smaller", sizes + small.String(), Exit{Reason: ReasonExit}, nil, true},
		{"it failed", sizes + small.String(), Exit{Reason: ReasonExit, Code: 1}, nil, false},
		{"it was killed", sizes + small.String(), Exit{Reason: ReasonSignal, Code: -1}, nil, false},
		{"it could not be run", "", Exit{}, errors.New("no"), false},
		{"no sizes", small.String(), Exit{Reason: ReasonExit}, nil, false},
		{"no picture", sizes + "text", Exit{Reason: ReasonExit}, nil, false},
		{"a document", sizes + "%PDF-1.4", Exit{Reason: ReasonExit}, nil, false},
		{"as large as before", sizes + large.String(), Exit{Reason: ReasonExit}, nil, false},
		{"cut off", "", Exit{Reason: ReasonExit, Code: 1}, nil, false},
		{"nothing", "", Exit{Reason: ReasonExit}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/p.png", large.String())
			info, err := os.Stat(dir + "/p.png")
			if err != nil || info.Size() <= maxPicture {
				t.Fatalf("%d bytes, %v", info.Size(), err)
			}
			env.Shrink = []string{"/agent", "picture"}
			env.Exec = func(_ context.Context, c Command) (*Exit, error) {
				if !slices.Equal(c.Argv[:3], []string{"/agent", "picture", "/w/p.png"}) || len(c.Argv) != 4 && (len(c.Argv) != 5 || c.Argv[4] != CheckPicture) {
					t.Errorf("ran %q", c.Argv)
				}
				if len(c.Argv) == 5 {
					_, _ = fmt.Fprintf(c.Stdout, "{\"broken\":%t}\n", tt.name == "cut off")
					return &Exit{Reason: ReasonExit}, nil
				}
				_, _ = c.Stderr.Write([]byte("said"))
				_, _ = fmt.Fprint(c.Stdout, tt.written)
				return &tt.exit, tt.err
			}
			r, err := callTool(t, env, Read{}, object{"file_path": "p.png"})
			if err != nil || r.IsError == tt.ok || len(r.Attachments) == 1 != tt.ok {
				t.Fatalf("%+v, %v", r, err)
			}
			if tt.ok && (!strings.Contains(r.Output, "attached as a smaller copy: 7 × 5 pixels") || r.Metadata["scaled"] != true) {
				t.Errorf("%q", r.Output)
			}
			if !tt.ok && !strings.Contains(r.Output, "cannot attach p.png") || !tt.ok && strings.Contains(r.Output, "broken PNG") != (tt.name == "cut off") {
				t.Errorf("%q", r.Output)
			}
		})
	}
}

// TestReadSaysBounds: the description of read has the bounds of pictures that there are.
func TestReadSaysBounds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../read.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("of a picture of more than %g MiB or %d pixels on a side", float64(maxPicture)/(1<<20), textfile.MaxSide); !strings.Contains(string(text), want) {
		t.Errorf("read.md does not say %q", want)
	}
}
