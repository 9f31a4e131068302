package shell

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible is text for showing to a person who must decide about it: what cannot
// be seen, turns the direction of reading, or poses as another character is
// written as an escape (\u{202e}). Newlines and tabs stay. The backslash stays
// too, so the result is for reading, not for parsing.
func Visible(text string) string {
	if ascii(text) {
		return text
	}
	var b strings.Builder
	for start := 0; start < len(text); {
		end := wordEnd(text, start)
		visibleWord(&b, text[start:end])
		if end < len(text) {
			b.WriteByte(text[end])
			end++
		}
		start = end
	}
	return b.String()
}

func ascii(text string) bool {
	for i := 0; i < len(text); i++ {
		if b := text[i]; b >= 0x7f || b < ' ' && b != '\n' && b != '\t' {
			return false
		}
	}
	return true
}

// wordEnd is where the ASCII white space after start is.
func wordEnd(text string, start int) int {
	if i := strings.IndexAny(text[start:], " \n\t"); i >= 0 {
		return start + i
	}
	return len(text)
}

func visibleWord(b *strings.Builder, word string) {
	if ascii(word) {
		b.WriteString(word)
		return
	}
	mixed := disguised(word)
	for i := 0; i < len(word); {
		r, n := utf8.DecodeRuneInString(word[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(b, `\x%02x`, word[i])
		case hidden(r) || unicode.In(r, unicode.Mn, unicode.Me) || posing(r) || mixed && lookalike(r):
			fmt.Fprintf(b, `\u{%x}`, r)
		default:
			b.WriteString(word[i : i+n])
		}
		i += n
	}
}

// hidden reports whether r cannot be seen as what it is: controls, formats
// (zero width, direction), spaces and separators other than the ASCII ones, and
// what has no character.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == ' ':
		return false
	case r < 0x7f:
		return r < ' '
	}
	return !unicode.IsPrint(r) || blank[r]
}

// blank are letters and symbols that are drawn as nothing.
var blank = map[rune]bool{0x115f: true, 0x1160: true, 0x3164: true, 0xffa0: true, 0x2800: true}

// disguised reports whether a run of letters in text has ASCII letters and
// letters of another alphabet that look like such.
func disguised(text string) bool {
	ascii, alike := false, false
	for _, r := range text {
		switch {
		case 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z':
			ascii = true
		case r < utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsNumber(r):
			ascii, alike = false, false
		case lookalike(r):
			alike = true
		}
		if ascii && alike {
			return true
		}
	}
	return false
}

// lookalike reports whether r is of a script or block whose letters are drawn
// like ASCII ones. Accented Latin letters are not: they look like what they are.
func lookalike(r rune) bool {
	return unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Lisu, unicode.Coptic) ||
		unicode.Is(letterBlocks, r)
}

// posing reports whether r is drawn like an ASCII sign, or is an ASCII character
// in another dress: a person who reads “a; b” believes in quotes that bash does
// not see.
func posing(r rune) bool { return unicode.Is(signBlocks, r) }

var letterBlocks = &unicode.RangeTable{R16: []unicode.Range16{
	{0x0131, 0x0131, 1}, // dotless i
	{0x017f, 0x017f, 1}, // long s
	{0x0250, 0x02ff, 1}, // phonetic letters, modifier letters
	{0x1d00, 0x1dbf, 1}, // phonetic letters
	{0x2100, 0x214f, 1}, // letterlike symbols
	{0x2160, 0x217f, 1}, // Roman numerals
	{0xff21, 0xff5a, 1}, // full width letters
}, R32: []unicode.Range32{
	{0x1d400, 0x1d7ff, 1}, // mathematical letters
}}

var signBlocks = &unicode.RangeTable{R16: []unicode.Range16{
	{0x01c3, 0x01c3, 1}, // the click that looks like an exclamation mark
	{0x02b9, 0x02ff, 1}, // modifier letters: quotes, carets, colons
	{0x037e, 0x037e, 1}, // the Greek question mark, drawn as a semicolon
	{0x0589, 0x0589, 1}, // the Armenian full stop, drawn as a colon
	{0x05c3, 0x05c3, 1}, // sof pasuq, drawn as a colon
	{0x05f3, 0x05f4, 1}, // geresh, drawn as quotes
	{0x066a, 0x066d, 1}, // Arabic signs
	{0x1806, 0x1806, 1}, // Mongolian hyphen
	{0x2010, 0x2013, 1}, // hyphens
	{0x2018, 0x201f, 1}, // quotation marks
	{0x2024, 0x2024, 1}, // one dot leader
	{0x2032, 0x2037, 1}, // primes
	{0x2039, 0x203a, 1}, // angle quotation marks
	{0x2044, 0x2044, 1}, // fraction slash
	{0x204e, 0x2053, 1}, // low asterisk, reversed semicolon, swung dash
	{0x2212, 0x2223, 1}, // minus to divides
	{0x2236, 0x223c, 1}, // ratio to tilde
	{0x2768, 0x2775, 1}, // ornamental brackets
	{0x27e6, 0x27ef, 1}, // mathematical brackets
	{0x2983, 0x2998, 1}, // mathematical brackets
	{0x29f5, 0x29f9, 1}, // big slashes
	{0x3001, 0x3002, 1}, // ideographic comma and full stop
	{0xfe10, 0xfe6b, 1}, // forms for vertical writing, small forms
	{0xff00, 0xff0f, 1}, // full width signs
	{0xff1a, 0xff20, 1},
	{0xff3b, 0xff40, 1},
	{0xff5b, 0xff65, 1},
	{0xffe0, 0xffee, 1},
}}
