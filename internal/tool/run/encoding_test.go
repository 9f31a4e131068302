package run

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/png"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/toold/toold/internal/tool/run/shrink"
)

// inUTF16 is a text in UTF-16, with a byte order mark.
func inUTF16(order binary.AppendByteOrder, text string) string {
	b := order.AppendUint16(nil, 0xfeff)
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// TestReadUTF16: the lines of a file in UTF-16 are shown as those of any text; it is not edited, and
// what write makes of it is said.
func TestReadUTF16(t *testing.T) {
	long := strings.Repeat("zeile ä 𝄞\r\n", 9000)
	for name, content := range map[string]string{
		"little": inUTF16(binary.LittleEndian, "one ä\r\n𝄞 two\r\nthree"), "big": inUTF16(binary.BigEndian, "one ä\r\n𝄞 two\r\nthree"),
	} {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", content)
		r, err := callTool(t, env, Read{}, object{"file_path": "f"})
		if err != nil || r.IsError || !strings.HasPrefix(r.Output, "     1\tone ä\n     2\t𝄞 two\n     3\tthree\n") || !strings.Contains(r.Output, "the file is UTF-16 text ("+name+" endian)") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		r, err = callTool(t, env, Edit{}, object{"file_path": "f", "old_string": "two", "new_string": "2"})
		if err != nil || !r.IsError || !strings.Contains(r.Output, "iconv") {
			t.Errorf("%s: edit: %+v, %v", name, r, err)
		}
		writeFile(t, dir+"/g", inUTF16(binary.LittleEndian, long)+"\x3d\xd8") // and half a character
		r, err = callTool(t, env, Read{}, object{"file_path": "g", "offset": 8999})
		if err != nil || r.IsError || !strings.HasPrefix(r.Output, "  8999\tzeile ä 𝄞\n  9000\tzeile ä 𝄞\n  9001\t\ufffd\n") {
			t.Errorf("far below: %+v, %v", r, err)
		}
	}
}

// TestWriteKeeps: a tool that replaces a whole text keeps how its lines end and its mark, or says what changes.
func TestWriteKeeps(t *testing.T) {
	t.Parallel()
	utf32 := "\xff\xfe\x00\x00" + strings.NewReplacer("\r", "\r\x00\x00\x00", "\n", "\n\x00\x00\x00", "a", "a\x00\x00\x00").Replace("a\r\na\r\n")
	for _, tt := range []struct{ name, old, want, says string }{
		{"UTF-8, CRLF", "ä\r\nb\r\n", "x\r\ny\r\n", " Its lines end in CRLF, as before."},
		{"UTF-8 with its mark", "\ufeffä\n", "\ufeffx\ny\n", "removed."},
		{"with both", "\ufeffä\r\n", "\ufeffx\r\ny\r\n", " Its lines end in CRLF, as before."},
		{"ISO 8859-1", "caf\xe9\n", "x\ny\n", "perhaps ISO 8859-1 or Windows-1252) before, and is UTF-8 now: iconv in bash makes it what it was."},
		{"ISO 8859-1, CRLF", "caf\xe9\r\n", "x\r\ny\r\n", "and is UTF-8 now: iconv in bash makes it what it was. Its lines end in CRLF, as before."},
		{"UTF-16, CRLF", inUTF16(binary.LittleEndian, "a\r\nb\r\n"), "x\r\ny\r\n", "UTF-8 now: iconv in bash makes it what it was. Its lines end in CRLF, as before."},
		{"UTF-32, CRLF", utf32, "x\r\ny\r\n", "It was UTF-32 text before, and is UTF-8 now: iconv in bash makes it what it was. Its lines end in CRLF, as before."},
		{"no text", "\x00\r\n", "x\ny\n", "y"},
	} {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", tt.old)
		r, err := callTool(t, env, Write{}, object{"file_path": "f", "content": "x\ny\n"})
		if got := contentOf(t, dir+"/f"); err != nil || got != tt.want || !strings.HasSuffix(r.Output+r.Quote, tt.says) && tt.name != "no text" {
			t.Errorf("%s: %q, %+v, %v", tt.name, got, r, err)
		}
		if strings.HasPrefix(tt.name, "UTF-8") || tt.name == "with both" {
			writeFile(t, dir+"/f", tt.old)
			_, err := callTool(t, env, ApplyPatch{}, object{"patch": "*** Begin Patch\n*** Delete File: f\n*** Add File: f\n+x\n+y\n*** End Patch"})
			if got := contentOf(t, dir+"/f"); err != nil || got != tt.want {
				t.Errorf("%s, by a patch: %q, %v", tt.name, got, err)
			}
		}
	}
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", strings.Repeat("a\r\n", (maxEdit+3)/3))
	r, err := callTool(t, env, Write{}, object{"file_path": "f", "content": "x\n"})
	if err != nil || !strings.HasSuffix(r.Output+r.Quote, "too large to look at how its lines ended; they end in LF now.") {
		t.Errorf("too large: %+v, %v", r, err)
	}
}

// TestReadBroken: a picture that is cut off is not attached.
func TestReadBroken(t *testing.T) {
	var whole bytes.Buffer
	if err := png.Encode(&whole, image.NewNRGBA(image.Rect(0, 0, 300, 200))); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		content string
		broken  bool
	}{
		"whole": {whole.String(), false}, "cut off": {whole.String()[:whole.Len()/2], true}, "its first bytes": {whole.String()[:8], true},
		"damaged": {strings.Replace(whole.String(), "IDAT", "IDAT\x00", 1), true}, "no end": {whole.String()[:whole.Len()-12], true},
	} {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/p.png", tt.content)
		env.Shrink = []string{"/agent", "picture"}
		env.Exec = func(_ context.Context, c Command) (*Exit, error) {
			if err := shrink.Check(dir+"/p.png", c.Argv[3], c.Stdout); err != nil || c.Argv[4] != CheckPicture {
				t.Errorf("%q: %v", c.Argv, err)
			}
			return &Exit{Reason: ReasonExit}, nil
		}
		r, err := callTool(t, env, Read{}, object{"file_path": "p.png"})
		if err != nil || r.IsError != tt.broken || (len(r.Attachments) == 0) != tt.broken || tt.broken && !strings.Contains(r.Output, "broken PNG image") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		env.Exec = func(context.Context, Command) (*Exit, error) { return &Exit{Reason: ReasonExit, Code: 1}, nil }
		if r, err = callTool(t, env, Read{}, object{"file_path": "p.png"}); err != nil || r.IsError != tt.broken || !tt.broken && !strings.Contains(r.Output, "could not be looked into") {
			t.Errorf("%s, where that cannot be found out: %+v, %v", name, r, err)
		}
	}
}
