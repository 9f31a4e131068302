package tool

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/toold/toold/client"
)

// Bounds of an input, whatever its schema says.
const (
	// maxDepth is how deep arrays and objects may nest; the input itself is 1.
	maxDepth = 64
	// maxValues is how many values an input may hold. A parsed value takes some
	// ten times the bytes of its shortest spelling, so without this bound a body
	// of a few MiB could take a hundred.
	maxValues = 1 << 17
)

// syntaxError is text that is not JSON as we take it.
type syntaxError struct {
	path   []string // where, as keys and indexes
	offset int      // byte at which it was seen
	msg    string
}

// violation is the error as one place of an input.
func (e *syntaxError) violation() client.Violation {
	return client.Violation{Path: pointer(e.path...), Message: fmt.Sprintf("%s (at byte %d)", e.msg, e.offset)}
}

// parseStrict reads one JSON value, the only one in text. encoding/json is not
// used for it because it takes the last of two equal keys, matches keys of
// structs in any case, and repairs invalid Unicode: two programs could then read
// two different calls from the same bytes, one to be judged and one to be run.
//
// Refused besides what is no JSON: keys that are equal or differ only in case,
// data after the value, nesting deeper than depth, more than maxValues values,
// text that is not valid UTF-8, escapes that name half a surrogate pair, NUL,
// and numbers that neither int64 nor float64 can hold. Values come back as
// map[string]any, []any, string, bool, nil and json.Number in its canonical
// spelling.
func parseStrict(text string, depth int) (any, *syntaxError) {
	p := &parser{text: text, depth: depth}
	// Checked once and ahead, so that strings without escapes can be cut out of
	// the text as they are.
	if i := invalidUTF8(text); i >= 0 {
		p.pos = i
		return nil, p.fail("invalid UTF-8")
	}
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos < len(p.text) {
		return nil, p.fail("unexpected data after the end of the JSON value")
	}
	return v, nil
}

// parser holds the place in text that is being read.
type parser struct {
	text   string
	pos    int
	depth  int // levels that may still be opened
	values int
	path   []string
}

// invalidUTF8 is the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i := 0; ; {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
}

func (p *parser) fail(format string, args ...any) *syntaxError {
	return &syntaxError{
		path:   append([]string(nil), p.path...),
		offset: p.pos,
		msg:    fmt.Sprintf(format, args...),
	}
}

// unexpected words what stands at the current place where want should.
func (p *parser) unexpected(want string) *syntaxError {
	if p.pos >= len(p.text) {
		return p.fail("unexpected end of JSON, expected %s", want)
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return p.fail("unexpected %q, expected %s", r, want)
}

func (p *parser) space() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// next skips space and reports whether c follows; if so it is consumed.
func (p *parser) next(c byte) bool {
	p.space()
	if p.pos < len(p.text) && p.text[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *parser) value() (any, *syntaxError) {
	p.space()
	if p.values++; p.values > maxValues {
		return nil, p.fail("more than %d values", maxValues)
	}
	if p.pos >= len(p.text) {
		return nil, p.unexpected("a value")
	}
	switch c := p.text[p.pos]; {
	case c == '{':
		return p.object()
	case c == '[':
		return p.array()
	case c == '"':
		return p.string()
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	}
	for word, v := range literals {
		if strings.HasPrefix(p.text[p.pos:], word) {
			p.pos += len(word)
			return v, nil
		}
	}
	return nil, p.unexpected("a value")
}

var literals = map[string]any{"true": true, "false": false, "null": nil}

// open counts a level of nesting; close takes it back.
func (p *parser) open() *syntaxError {
	if p.depth == 0 {
		return p.fail("nested deeper than %d levels", maxDepth)
	}
	p.depth--
	p.pos++
	return nil
}

func (p *parser) close() { p.depth++ }

func (p *parser) object() (any, *syntaxError) {
	if err := p.open(); err != nil {
		return nil, err
	}
	defer p.close()
	obj := make(map[string]any)
	if p.next('}') {
		return obj, nil
	}
	seen := make(map[string]string) // folded key → key
	for {
		if err := p.member(obj, seen); err != nil {
			return nil, err
		}
		if p.next('}') {
			return obj, nil
		}
		if !p.next(',') {
			return nil, p.unexpected("',' or '}'")
		}
	}
}

// member reads one "key": value of obj.
func (p *parser) member(obj map[string]any, seen map[string]string) *syntaxError {
	p.space()
	if p.pos >= len(p.text) || p.text[p.pos] != '"' {
		return p.unexpected("a key in double quotes")
	}
	key, err := p.string()
	if err != nil {
		return err
	}
	p.path = append(p.path, key)
	fold := foldKey(key)
	switch other, dup := seen[fold]; {
	case dup && other == key:
		return p.fail("the key %q appears twice", key)
	case dup:
		return p.fail("the keys %q and %q differ only in case", other, key)
	}
	seen[fold] = key
	if !p.next(':') {
		return p.unexpected("':'")
	}
	v, err := p.value()
	if err != nil {
		return err
	}
	obj[key] = v
	p.path = p.path[:len(p.path)-1]
	return nil
}

// foldKey maps keys that differ only in case to one string. Like encoding/json
// it uses Unicode's simple folding, under which the Kelvin sign is a k.
func foldKey(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return strings.Map(foldRune, s)
		}
	}
	return s
}

// foldRune is the same rune for all that fold to each other: the lower-case
// ASCII letter where there is one, else the smallest.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}

func (p *parser) array() (any, *syntaxError) {
	if err := p.open(); err != nil {
		return nil, err
	}
	defer p.close()
	list := []any{}
	if p.next(']') {
		return list, nil
	}
	for {
		p.path = append(p.path, strconv.Itoa(len(list)))
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		p.path = p.path[:len(p.path)-1]
		if p.next(']') {
			return list, nil
		}
		if !p.next(',') {
			return nil, p.unexpected("',' or ']'")
		}
	}
}

// string reads a quoted string that begins at the current place.
func (p *parser) string() (string, *syntaxError) {
	p.pos++
	begin := p.pos
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"':
			p.pos++
			return p.text[begin : p.pos-1], nil
		case c == '\\':
			return p.escaped(begin)
		case c < ' ':
			return "", p.fail("control character %U in a string; write it as an escape", c)
		}
		p.pos++
	}
	return "", p.unexpected("the end of a string")
}

// escaped reads on a string that began at begin and has its first escape here.
func (p *parser) escaped(begin int) (string, *syntaxError) {
	var b strings.Builder
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"':
			b.WriteString(p.text[begin:p.pos])
			p.pos++
			return b.String(), nil
		case c == '\\':
			b.WriteString(p.text[begin:p.pos])
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
			begin = p.pos
		case c < ' ':
			return "", p.fail("control character %U in a string; write it as an escape", c)
		default:
			p.pos++
		}
	}
	return "", p.unexpected("the end of a string")
}

var shortEscapes = map[byte]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// escape reads one escape, or two \u that make one surrogate pair.
func (p *parser) escape() (rune, *syntaxError) {
	if p.pos+1 >= len(p.text) {
		p.pos = len(p.text)
		return 0, p.unexpected("an escape")
	}
	c := p.text[p.pos+1]
	if r, ok := shortEscapes[c]; ok {
		p.pos += 2
		return r, nil
	}
	if c != 'u' {
		return 0, p.fail("unknown escape \\%c", c)
	}
	r, ok := hex4(p.text[p.pos:])
	if !ok {
		return 0, p.fail("\\u needs four hexadecimal digits")
	}
	if utf16.IsSurrogate(r) {
		low, _ := hex4(p.text[p.pos+6:])
		if r = utf16.DecodeRune(r, low); r == unicode.ReplacementChar {
			return 0, p.fail("\\u escape is half of a surrogate pair")
		}
		p.pos += 6
	}
	if r == 0 {
		return 0, p.fail("NUL character")
	}
	p.pos += 6
	return r, nil
}

// hex4 reads \uXXXX at the beginning of s.
func hex4(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[2:6], 16, 32)
	return rune(n), err == nil
}

// number reads a number and spells it canonically.
func (p *parser) number() (any, *syntaxError) {
	n := numberLen(p.text[p.pos:])
	if n == 0 {
		return nil, p.fail("malformed number")
	}
	canonical, ok := canonicalNumber(p.text[p.pos : p.pos+n])
	if !ok {
		return nil, p.fail("number %s is out of range; write it as a string", cut(p.text[p.pos:p.pos+n], 40))
	}
	p.pos += n
	return json.Number(canonical), nil
}

// cut shortens ASCII text for a message.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

// numberLen is the length of the JSON number that s begins with, 0 for none.
func numberLen(s string) int {
	i := 0
	digits := func() bool {
		from := i
		for i < len(s) && '0' <= s[i] && s[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(s) && s[i] == '-' {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else if !digits() {
		return 0
	}
	if i < len(s) && s[i] == '.' {
		i++
		if !digits() {
			return 0
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	return i
}

// canonicalNumber gives every number one spelling: whole numbers that fit into
// int64 as plain digits (1e2 and 100.0 are 100, so that they decode into Go
// integers), all others as the shortest text that reads back as the same
// float64. Digits that no int64 holds are refused rather than rounded.
func canonicalNumber(s string) (string, bool) {
	if !strings.ContainsAny(s, ".eE") {
		n, err := strconv.ParseInt(s, 10, 64)
		return strconv.FormatInt(n, 10), err == nil
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return "", false
	case f == math.Trunc(f) && math.Abs(f) < 1<<63:
		return strconv.FormatInt(int64(f), 10), true
	case math.Abs(f) < 1e-6 || math.Abs(f) >= 1<<63:
		return strconv.FormatFloat(f, 'e', -1, 64), true
	default:
		return strconv.FormatFloat(f, 'f', -1, 64), true
	}
}
