package strictjson

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// place is where a token is due, for the words of an error: jsontext's name the state of
// its machine, and these what the writer of the text has to write.
type place struct {
	after byte   // what has to stand in front; 0: nothing
	or    string // how that is called
	key   bool   // what is due is a key
	index bool   // the path ends with the index of what is due
}

var (
	alone     = place{}
	firstKey  = place{key: true}
	nextKey   = place{after: ',', or: "',' or '}'", key: true}
	member    = place{after: ':', or: "':'"}
	firstItem = place{index: true}
	nextItem  = place{after: ',', or: "',' or ']'", index: true}
)

// explain says why no token could be read at a place, which begins at offset i.
func (r *reader) explain(p place, i int) *Error {
	i = r.space(i)
	if p.after != 0 {
		if i == len(r.text) || r.text[i] != p.after {
			if p.index {
				r.path = r.path[:len(r.path)-1]
			}
			return r.unexpected(i, p.or)
		}
		i = r.space(i + 1)
	}
	switch {
	case i < len(r.text) && r.text[i] == '"':
		return r.badString(i)
	case p.key:
		return r.unexpected(i, "a key in double quotes")
	case i < len(r.text) && (r.text[i] == '-' || '0' <= r.text[i] && r.text[i] <= '9'):
		return r.fail(Syntax, i, "malformed number")
	}
	return r.unexpected(i, "a value")
}

// unexpected words what stands at offset i where want should.
func (r *reader) unexpected(i int, want string) *Error {
	if i >= len(r.text) {
		return r.fail(Syntax, len(r.text), "unexpected end of JSON, expected %s", want)
	}
	c, _ := utf8.DecodeRune(r.text[i:])
	return r.fail(Syntax, i, "unexpected %q, expected %s", c, want)
}

// badString says what is wrong with the string that begins at offset i.
func (r *reader) badString(i int) *Error {
	for i++; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			return r.fail(Syntax, i, "malformed string") // jsontext knows more than we do
		case c < ' ':
			return r.fail(Syntax, i, "control character %U in a string; write it as an escape", c)
		case c == '\\':
			n, err := r.escape(i)
			if err != nil {
				return err
			}
			i += n - 1
		}
	}
	return r.unexpected(i, "the end of a string")
}

// escape is the length of the escape at offset i, or of the two of a surrogate pair.
func (r *reader) escape(i int) (int, *Error) {
	if i+1 >= len(r.text) {
		return 0, r.unexpected(i+1, "an escape")
	}
	c := r.text[i+1]
	if c != 'u' {
		if strings.IndexByte(`"\/bfnrt`, c) >= 0 {
			return 2, nil
		}
		return 0, r.fail(Syntax, i, "unknown escape \\%c", c)
	}
	high, ok := hex4(r.text[i:])
	switch {
	case !ok:
		return 0, r.fail(Syntax, i, "\\u needs four hexadecimal digits")
	case high == 0:
		return 0, r.fail(Syntax, i, "NUL character")
	case !utf16.IsSurrogate(high):
		return 6, nil
	}
	if low, _ := hex4(r.text[i+6:]); utf16.DecodeRune(high, low) == unicode.ReplacementChar {
		return 0, r.fail(Syntax, i, "\\u escape is half of a surrogate pair")
	}
	return 12, nil
}

// hex4 reads \uXXXX at the beginning of s.
func hex4(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s[2:6]), 16, 32)
	return rune(n), err == nil
}
