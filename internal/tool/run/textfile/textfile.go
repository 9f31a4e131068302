// Package textfile tells the kind of a file from its first bytes: text that can
// be shown, a picture or document that can be attached, or another kind, with a
// name for the caller.
package textfile

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// BOM is the byte order mark with which some UTF-8 files begin.
var BOM = []byte("\xef\xbb\xbf")

// SniffLen is how much of the beginning of a file Sniff looks at.
const SniffLen = 8000

// maxControl is the share of control bytes above which a file is not text.
const maxControl = 0.30

// Kind is what a file seems to be.
type Kind struct {
	Name string // "UTF-8 text", "PNG image", "ELF program"
	MIME string // "" when it is not known or does not matter
	// Text: UTF-8, as far as was looked at.
	Text bool
	// UTF16 is the order of the bytes of text in UTF-16 that begins with a byte order mark; nil for
	// all else.
	UTF16 binary.ByteOrder
	// Attachable: an image or document that models understand as a whole.
	Attachable bool
}

// signature is how a known binary format begins.
type signature struct {
	offset     int
	magic      string
	name       string
	mime       string
	attachable bool
}

var signatures = []signature{
	{0, "\x89PNG\r\n\x1a\n", "PNG image", "image/png", true},
	{0, "\xff\xd8\xff", "JPEG image", "image/jpeg", true},
	{0, "GIF87a", "GIF image", "image/gif", true},
	{0, "GIF89a", "GIF image", "image/gif", true},
	{0, "%PDF-", "PDF document", "application/pdf", true},
	{0, "\x7fELF", "ELF program or library", "application/x-elf", false},
	{0, "\xca\xfe\xba\xbe", "Java class or Mach-O program", "", false},
	{0, "\xcf\xfa\xed\xfe", "Mach-O program", "", false},
	{0, "\xfe\xed\xfa\xce", "Mach-O program", "", false},
	{0, "\x00asm", "WebAssembly module", "application/wasm", false},
	{0, "!<arch>\n", "static library or package (ar)", "", false},
	{0, "PK\x03\x04", "ZIP archive (also jar, docx, xlsx …)", "application/zip", false},
	{0, "PK\x05\x06", "ZIP archive", "application/zip", false},
	{0, "\x1f\x8b", "gzip data", "application/gzip", false},
	{0, "BZh", "bzip2 data", "application/x-bzip2", false},
	{0, "\xfd7zXZ\x00", "xz data", "application/x-xz", false},
	{0, "\x28\xb5\x2f\xfd", "zstd data", "application/zstd", false},
	{0, "7z\xbc\xaf\x27\x1c", "7z archive", "", false},
	{0, "Rar!\x1a\x07", "RAR archive", "", false},
	{257, "ustar", "tar archive", "application/x-tar", false},
	{0, "SQLite format 3\x00", "SQLite database", "", false},
	{0, "PACK\x00\x00\x00", "git pack", "", false},
	{0, "DIRC\x00\x00\x00", "git index", "", false},
	{0, "\x00\x00\x01\x00", "icon", "image/x-icon", false},
	{0, "II*\x00", "TIFF image", "image/tiff", false},
	{0, "MM\x00*", "TIFF image", "image/tiff", false},
	{0, "ID3", "MP3 audio", "audio/mpeg", false},
	{0, "OggS", "Ogg media", "", false},
	{0, "fLaC", "FLAC audio", "", false},
	{4, "ftyp", "MP4, HEIF or AVIF media", "", false},
	{0, "\x1aE\xdf\xa3", "Matroska or WebM video", "", false},
	{0, "wOFF", "web font", "", false},
	{0, "wOF2", "web font", "", false},
}

// Sniff tells what begins with head, which should be SniffLen bytes long, or the
// whole file where that is shorter.
func Sniff(head []byte) Kind {
	head = head[:min(len(head), SniffLen)]
	if k, ok := known(head); ok {
		return k
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")), bytes.HasPrefix(head, []byte("\x00\x00\xfe\xff")):
		return utf32
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		return Kind{Name: "UTF-16 text (little endian)", UTF16: binary.LittleEndian}
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return Kind{Name: "UTF-16 text (big endian)", UTF16: binary.BigEndian}
	case bytes.IndexByte(head, 0) >= 0:
		return Kind{Name: "binary data (it has NUL bytes)"}
	}
	control := 0
	for _, c := range head {
		if c < 7 || c > 13 && c < 32 && c != 27 || c == 127 {
			control++
		}
	}
	if float64(control) > maxControl*float64(len(head)) {
		return Kind{Name: "binary data (it has many control bytes)"}
	}
	if at := InvalidUTF8(head, len(head) == SniffLen); at >= 0 {
		return NotUTF8
	}
	return Kind{Name: "UTF-8 text", MIME: "text/plain", Text: true}
}

// Ends is how the lines of a text end.
type Ends string

// The ends of lines. None is a text without a line's end.
const (
	None  Ends = ""
	LF    Ends = "LF"
	CRLF  Ends = "CRLF"
	Mixed Ends = "CRLF and LF"
)

// LineEnds says how the lines of a text end.
func LineEnds(text []byte) Ends {
	all, crlf := bytes.Count(text, []byte("\n")), bytes.Count(text, []byte("\r\n"))
	switch {
	case all == 0:
		return None
	case crlf == 0:
		return LF
	case crlf == all:
		return CRLF
	}
	return Mixed
}

// NotUTF8 is the Kind of text in an old encoding.
var NotUTF8 = Kind{Name: "text that is not UTF-8 (perhaps ISO 8859-1 or Windows-1252)"}

var utf32 = Kind{Name: "UTF-32 text"}

// Decoded is text of this kind as far as it is ASCII, so that its lines can be told: all of it in
// UTF-8 where it is UTF-16, and nil for what is no text.
func Decoded(k Kind, data []byte) []byte {
	switch {
	case k.UTF16 != nil:
		d := NewDecoder(k.UTF16)
		return append(d.Decode(data), d.End()...)
	case k == utf32:
		return bytes.ReplaceAll(data, []byte{0}, nil)
	case k == NotUTF8, k.Text:
		return data
	}
	return nil
}

// InvalidUTF8 is the offset of the first byte that is not valid UTF-8, or -1.
// Where cut is set, b may end within a character.
func InvalidUTF8(b []byte, cut bool) int {
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			if cut && !utf8.FullRune(b[i:]) {
				return -1
			}
			return i
		}
		i += size
	}
	return -1
}

func known(head []byte) (Kind, bool) {
	for _, s := range signatures {
		if len(head) >= s.offset && bytes.HasPrefix(head[s.offset:], []byte(s.magic)) {
			return Kind{Name: s.name, MIME: s.mime, Attachable: s.attachable}, true
		}
	}
	switch {
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		return Kind{Name: "WebP image", MIME: "image/webp", Attachable: true}, true
	case len(head) >= 12 && string(head[:4]) == "RIFF":
		return Kind{Name: "RIFF media (WAV, AVI)"}, true
	case isBMP(head):
		return Kind{Name: "BMP image", MIME: "image/bmp", Attachable: true}, true
	case len(head) >= 64 && string(head[:2]) == "MZ" && bytes.IndexByte(head, 0) >= 0:
		return Kind{Name: "Windows program"}, true
	}
	return Kind{}, false
}

// isBMP looks beyond the two letters, with which a text may begin as well.
func isBMP(head []byte) bool {
	if len(head) < 26 || string(head[:2]) != "BM" {
		return false
	}
	switch binary.LittleEndian.Uint32(head[14:]) {
	case 12, 40, 52, 56, 64, 108, 124:
		return true
	}
	return false
}

// Pixels reads the size of an image out of its header; ok is false when it is
// not found. Nothing is decoded.
func Pixels(k Kind, data []byte) (width, height int, ok bool) {
	switch k.MIME {
	case "image/png":
		return pngSize(data)
	case "image/gif":
		if len(data) >= 10 {
			return int(binary.LittleEndian.Uint16(data[6:])), int(binary.LittleEndian.Uint16(data[8:])), true
		}
	case "image/bmp":
		return bmpSize(data)
	case "image/webp":
		return webpSize(data)
	case "image/jpeg":
		return jpegSize(data)
	}
	return 0, 0, false
}

func pngSize(data []byte) (int, int, bool) {
	if len(data) < 24 || string(data[12:16]) != "IHDR" {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint32(data[16:])), int(binary.BigEndian.Uint32(data[20:])), true
}

func bmpSize(data []byte) (int, int, bool) {
	if len(data) < 26 {
		return 0, 0, false
	}
	if binary.LittleEndian.Uint32(data[14:]) == 12 {
		return int(binary.LittleEndian.Uint16(data[18:])), int(binary.LittleEndian.Uint16(data[20:])), true
	}
	width := int(int32(binary.LittleEndian.Uint32(data[18:])))
	height := int(int32(binary.LittleEndian.Uint32(data[22:])))
	return max(width, -width), max(height, -height), true // a negative height means top down
}

func webpSize(data []byte) (int, int, bool) {
	if len(data) < 30 {
		return 0, 0, false
	}
	switch string(data[12:16]) {
	case "VP8X":
		return 1 + uint24(data[24:]), 1 + uint24(data[27:]), true
	case "VP8L":
		bits := binary.LittleEndian.Uint32(data[21:])
		return 1 + int(bits&0x3fff), 1 + int(bits>>14&0x3fff), true
	case "VP8 ":
		return int(binary.LittleEndian.Uint16(data[26:]) & 0x3fff), int(binary.LittleEndian.Uint16(data[28:]) & 0x3fff), true
	}
	return 0, 0, false
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// jpegSize walks the segments to the frame header.
func jpegSize(data []byte) (int, int, bool) {
	for i := 2; i+9 < len(data); {
		if data[i] != 0xff {
			return 0, 0, false
		}
		marker := data[i+1]
		switch {
		case marker == 0xff: // padding
			i++
			continue
		case marker == 0x01 || marker >= 0xd0 && marker <= 0xd8: // no content
			i += 2
			continue
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			return int(binary.BigEndian.Uint16(data[i+7:])), int(binary.BigEndian.Uint16(data[i+5:])), true
		}
		size := int(binary.BigEndian.Uint16(data[i+2:]))
		if size < 2 {
			return 0, 0, false
		}
		i += 2 + size
	}
	return 0, 0, false
}

// MaxSide is the longest side, in pixels, of pictures that the providers of models
// take. It also bounds what a decoder of one has to hold.
const MaxSide = 8000

// Fits reports whether a picture of this size is taken.
func Fits(width, height int) bool { return width <= MaxSide && height <= MaxSide }
