package textfile

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
)

func TestSniff(t *testing.T) {
	tests := []struct {
		name, head, want string
		text, attach     bool
	}{
		{"empty", "", "UTF-8 text", true, false},
		{"ascii", "package main\n", "UTF-8 text", true, false},
		{"utf-8", "grüße — 世界\n", "UTF-8 text", true, false},
		{"bom", "\xef\xbb\xbfabc", "UTF-8 text", true, false},
		{"colours", strings.Repeat("\x1b[31mx\x1b[0m", 100), "UTF-8 text", true, false},
		{"cut in a character", strings.Repeat("é", 3999) + "x\xc3\xa9", "UTF-8 text", true, false},
		{"latin-1", "caf\xe9 au lait", NotUTF8.Name, false, false},
		{"latin-1 at the end", "caf\xe9", NotUTF8.Name, false, false},
		{"surrogate", "\xed\xa0\x80", NotUTF8.Name, false, false},
		{"nul", "abc\x00", "binary data (it has NUL bytes)", false, false},
		{"just 30 %", "\x01\x02\x03abcdefg", "UTF-8 text", true, false},
		{"more than 30 %", "\x01\x02\x03\x04abcdefg", "binary data (it has many control bytes)", false, false},
		{"utf-16", "\xff\xfea\x00", "UTF-16 text (little endian)", false, false},
		{"utf-16 be", "\xfe\xff\x00a", "UTF-16 text (big endian)", false, false},
		{"utf-32", "\xff\xfe\x00\x00a\x00\x00\x00", "UTF-32 text", false, false},
		{"elf", "\x7fELF", "ELF program or library", false, false},
		{"tar", strings.Repeat("a", 257) + "ustar", "tar archive", false, false},
		{"short for tar", strings.Repeat("a", 200), "UTF-8 text", true, false},
		{"mp4", "\x00\x00\x00\x18ftypmp42", "MP4, HEIF or AVIF media", false, false},
		{"exe", "MZ\x90" + strings.Repeat("\x00", 64), "Windows program", false, false},
		{"text that begins with MZ", "MZ is how it begins, and then it goes on as text for long enough to be one", "UTF-8 text", true, false},
		{"text that begins with BM", "BM is how it begins, and then it goes on as text", "UTF-8 text", true, false},
		{"bmp", "BM" + strings.Repeat("\x00", 12) + "\x28\x00\x00\x00" + strings.Repeat("\x00", 20), "BMP image", false, true},
		{"webp", "RIFF\x00\x00\x00\x00WEBPVP8 ", "WebP image", false, true},
		{"wav", "RIFF\x00\x00\x00\x00WAVEfmt ", "RIFF media (WAV, AVI)", false, false},
		{"pdf", "%PDF-1.4", "PDF document", false, true},
	}
	for _, tt := range tests {
		k := Sniff([]byte(tt.head))
		if k.Name != tt.want || k.Text != tt.text || k.Attachable != tt.attach {
			t.Errorf("%s: %+v, want %q", tt.name, k, tt.want)
		}
	}
}

// Sizes agree with what a decoder says.
func TestPixels(t *testing.T) {
	img := image.NewPaletted(image.Rect(0, 0, 321, 123), color.Palette{color.Black, color.White})
	var p, j, g bytes.Buffer
	if err := png.Encode(&p, img); err != nil {
		t.Fatal(err)
	}
	if err := jpeg.Encode(&j, img, nil); err != nil {
		t.Fatal(err)
	}
	if err := gif.Encode(&g, img, nil); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	bmp := append([]byte("BM\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00"), le.AppendUint32(le.AppendUint32(nil, 321), ^uint32(122))...)
	core := append([]byte("BM\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0c\x00\x00\x00"), le.AppendUint16(le.AppendUint16(nil, 321), 123)...)
	webp := func(kind string, rest ...byte) []byte {
		return append([]byte("RIFF\x00\x00\x00\x00WEBP"+kind), append(rest, make([]byte, 20)...)...)
	}
	tests := map[string][]byte{
		"png": p.Bytes(), "jpeg": j.Bytes(), "gif": g.Bytes(), "bmp": bmp, "old bmp": append(core, 0, 0, 0, 0),
		"webp VP8X": webp("VP8X", 10, 0, 0, 0, 0, 0, 0, 0, 0x40, 1, 0, 122, 0, 0),
		"webp VP8L": webp("VP8L", 10, 0, 0, 0, 0x2f, 0x40, 0x81, 0x1e, 0),
		"webp VP8":  webp("VP8 ", 10, 0, 0, 0, 0, 0, 0, 0x9d, 1, 0x2a, 0x41, 1, 123, 0),
	}
	for name, data := range tests {
		w, h, ok := Pixels(Sniff(data), data)
		if !ok || w != 321 || h != 123 {
			t.Errorf("%s: %d × %d, %v", name, w, h, ok)
		}
		if !Fits(w, h) {
			t.Errorf("%s does not fit", name)
		}
	}
	huge := bytes.Clone(p.Bytes())
	for _, size := range [][2]uint32{{MaxSide + 1, 1}, {1, MaxSide + 1}, {50000, 50000}, {1 << 31, 1}} {
		binary.BigEndian.PutUint32(huge[16:], size[0])
		binary.BigEndian.PutUint32(huge[20:], size[1])
		if w, h, ok := Pixels(Sniff(huge), huge); !ok || Fits(w, h) {
			t.Errorf("%d × %d: %d × %d, %t", size[0], size[1], w, h, ok)
		}
	}
}

// Nothing that calls itself an image makes the reader of headers panic.
func FuzzPixels(f *testing.F) {
	f.Add([]byte("\xff\xd8\xff\xe0\x00\x10JFIF"))
	f.Add([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"))
	f.Add([]byte("RIFF\x00\x00\x00\x00WEBPVP8X"))
	f.Add([]byte("GIF89a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if w, h, _ := Pixels(Sniff(data), data); w < 0 || h < 0 {
			t.Errorf("%d × %d", w, h)
		}
	})
}

// TestLineEnds: how lines end is said of the lines that have an end; a carriage return elsewhere is none.
func TestLineEnds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Ends{
		"": None, "a": None, "a\r": None, "\n": LF, "a\nb": LF, "a\rb\n": LF, "\r\n": CRLF, "a\r\nb": CRLF, "a\r\nb\r\n": CRLF,
		"a\r\nb\n": Mixed, "a\nb\r\n": Mixed,
	} {
		if got := LineEnds([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
