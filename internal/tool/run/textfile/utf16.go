package textfile

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// Decoder makes UTF-8 of text in UTF-16 that comes in pieces, without its byte order mark. What is
// no character becomes U+FFFD.
type Decoder struct {
	order binary.ByteOrder
	begun bool
	rest  []byte // a part of a unit
	first rune   // of a pair of surrogates; 0 = none
}

// NewDecoder makes a Decoder of text with this order of bytes.
func NewDecoder(order binary.ByteOrder) *Decoder { return &Decoder{order: order} }

// Decode is the text of the next bytes.
func (d *Decoder) Decode(b []byte) []byte {
	d.rest = append(d.rest, b...)
	out := make([]byte, 0, len(d.rest))
	for ; len(d.rest) >= 2; d.rest = d.rest[2:] {
		unit := rune(d.order.Uint16(d.rest))
		if !d.begun {
			if d.begun = true; unit == '\uFEFF' {
				continue
			}
		}
		switch {
		case d.first != 0:
			pair := utf16.DecodeRune(d.first, unit)
			out = utf8.AppendRune(out, pair) // U+FFFD where they are none
			d.first = 0
			switch {
			case pair != utf8.RuneError:
			case unit >= 0xd800 && unit < 0xdc00:
				d.first = unit
			case !utf16.IsSurrogate(unit):
				out = utf8.AppendRune(out, unit)
			}
		case unit >= 0xd800 && unit < 0xdc00:
			d.first = unit
		default:
			out = utf8.AppendRune(out, unit)
		}
	}
	return out
}

// End is the text of what is left of the last character.
func (d *Decoder) End() []byte {
	if d.first != 0 || len(d.rest) > 0 {
		return []byte(string(utf8.RuneError))
	}
	return nil
}
