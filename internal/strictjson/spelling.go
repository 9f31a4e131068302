package strictjson

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toold/toold/internal/plain"
)

// string gives what a string token says, which was read after offset from.
func (r *reader) string(t jsontext.Token, from int) (string, *Error) {
	s := t.String()
	if !r.Lax && strings.IndexByte(s, 0) >= 0 {
		return "", r.fail(Syntax, r.begin(from), "NUL character")
	}
	return s, nil
}

// number gives a number in its canonical spelling.
func (r *reader) number(t jsontext.Token, from int) (any, *Error) {
	text := t.String()
	if r.Lax {
		return json.Number(text), nil
	}
	canonical, ok := canonicalNumber(text)
	if !ok {
		return nil, r.fail(Syntax, r.begin(from), "number %s is out of range; write it as a string", plain.Cut(text, 40))
	}
	return json.Number(canonical), nil
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
