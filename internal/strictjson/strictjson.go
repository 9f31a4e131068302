// Package strictjson reads hostile JSON so that it has one meaning for every program.
// encoding/json takes the last of two equal keys, matches the keys of structs in any
// case, ignores keys that it does not know, and repairs invalid Unicode: two programs
// could read two different calls from the same bytes, one to be judged and one to be
// run.
//
// The syntax is that of jsontext. This package adds bounds, the keys that an object may
// have, one spelling of every number, and errors that say where and what.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Rules are what a text has to keep to.
type Rules struct {
	// Depth is how deep arrays and objects may nest; the value itself is 1.
	Depth int
	// Values is how many values the text may hold. A parsed value takes some ten times
	// the bytes of its shortest spelling. Names: keys count as well.
	Values int
	Names  bool
	// Shape is what the keys of objects may be; nil: any.
	Shape *Shape
	// Lax takes all that encoding/json takes in strings and numbers, and keys that
	// differ only in case.
	Lax bool
	// Check: nobody wants the value. Read then gives nil.
	Check bool
}

// Shape is what the keys of a value may be. A nil Shape is free: any keys, but none
// twice.
type Shape struct {
	Fields map[string]*Shape // of an object; nil: any keys
	Elem   *Shape            // of the values of an array, or of an object without Fields
	// Raw, of the value of a key: any JSON, which is not looked at.
	Raw bool
}

func (s *Shape) elem() *Shape {
	if s == nil {
		return nil
	}
	return s.Elem
}

// Kind says what is wrong with a text.
type Kind int

// The kinds of errors.
const (
	Syntax   Kind = iota // it is not JSON, or none that has one meaning
	Trailing             // something stands after the value
	Twice                // a key that the object has already
	Case                 // a key that differs from another one only in case
	Unknown              // a key that the shape does not have
	Depth                // nested too deep
	Values               // too many values
)

// Error is what is wrong with a text, and where.
type Error struct {
	Kind   Kind
	Path   []string // keys and indexes
	Offset int      // byte at which it was seen
	Msg    string
	Key    string // of kind Twice, Case and Unknown
	// Other is the key from which Key differs in case; "" for none.
	Other string
}

// Error implements error.
func (e *Error) Error() string { return Pointer(e.Path...) + ": " + e.Msg }

// Pointer is the JSON pointer made of keys.
func Pointer(keys ...string) string {
	var b strings.Builder
	for _, key := range keys {
		b.WriteByte('/')
		b.WriteString(escaper.Replace(key))
	}
	return b.String()
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// IsObject reports whether text is a JSON object.
func IsObject(text []byte) bool {
	v := jsontext.Value(text)
	return v.Kind() == '{' && v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// Decode reads the one JSON value in text into v, as encoding/json does, but without keys
// that v does not have. It is for texts that no second program reads.
func Decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return errors.New("there is more than one JSON value")
	}
	return nil
}

// Read reads the one JSON value in text. Values come back as map[string]any, []any,
// string, bool, nil, json.Number in its canonical spelling, and json.RawMessage where
// the shape says so.
//
// Unless the rules are lax, refused besides what is no JSON are text that is not UTF-8,
// keys that differ only in case, escapes that name half a surrogate pair, NUL, and
// numbers that neither int64 nor float64 can hold.
func Read(text []byte, rules Rules) (any, *Error) {
	r := &reader{Rules: rules, text: text}
	// Of two equal keys this package has to say more than jsontext does.
	r.dec = jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(rules.Lax))
	v, err := r.value(rules.Shape)
	if err != nil {
		return nil, err
	}
	if end := r.skip(r.offset(), " \t\n\r"); end < len(text) {
		return nil, r.fail(Trailing, end, "unexpected data after the end of the JSON value")
	}
	return v, nil
}

// reader is one Read.
type reader struct {
	Rules
	dec    *jsontext.Decoder
	text   []byte
	opened int // levels
	values int
	path   []string
}

func (r *reader) offset() int { return int(r.dec.InputOffset()) }

func (r *reader) fail(kind Kind, offset int, format string, args ...any) *Error {
	return &Error{Kind: kind, Path: append([]string(nil), r.path...), Offset: offset, Msg: fmt.Sprintf(format, args...)}
}

// malformed is what jsontext says of a text that is not JSON.
func (r *reader) malformed(err error) *Error {
	offset, why := len(r.text), "unexpected end of JSON"
	if wrong, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		r.path = slices.Collect(wrong.JSONPointer.Tokens())
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			offset, why = int(wrong.ByteOffset), wrong.Err.Error()
		}
	}
	return r.fail(Syntax, offset, "%s", why)
}

// skip is where the next byte stands, from i on, that is none of these.
func (r *reader) skip(i int, bytes string) int {
	for i < len(r.text) && strings.IndexByte(bytes, r.text[i]) >= 0 {
		i++
	}
	return i
}

// begin is where the token stands that was read after offset from.
func (r *reader) begin(from int) int { return r.skip(from, " \t\n\r,:") }

// token reads the next one, and says after which offset it stands.
func (r *reader) token() (jsontext.Token, int, *Error) {
	from := r.offset()
	t, err := r.dec.ReadToken()
	if err != nil {
		return t, 0, r.malformed(err)
	}
	return t, from, nil
}

// count adds a value.
func (r *reader) count(from int) *Error {
	if r.values++; r.values > r.Values {
		return r.fail(Values, r.begin(from), "more than %d values", r.Values)
	}
	return nil
}

// value reads a value of that shape.
func (r *reader) value(s *Shape) (any, *Error) {
	if s != nil && s.Raw {
		return r.raw()
	}
	t, from, err := r.token()
	if err != nil {
		return nil, err
	}
	return r.finish(t, from, s)
}

// raw reads a value that is not looked at.
func (r *reader) raw() (any, *Error) {
	from := r.offset()
	if err := r.count(from); err != nil {
		return nil, err
	}
	if r.Check {
		if err := r.dec.SkipValue(); err != nil {
			return nil, r.malformed(err)
		}
		return nil, nil
	}
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, r.malformed(err)
	}
	return json.RawMessage(bytes.Clone(v)), nil
}

// finish reads the rest of the value that begins with t.
func (r *reader) finish(t jsontext.Token, from int, s *Shape) (any, *Error) {
	if err := r.count(from); err != nil {
		return nil, err
	}
	switch kind := t.Kind(); kind {
	case '{', '[':
		if r.opened >= r.Depth {
			return nil, r.fail(Depth, r.begin(from), "nested deeper than %d levels", r.Depth)
		}
		r.opened++
		defer func() { r.opened-- }()
		if kind == '{' {
			return r.object(s)
		}
		return r.array(s.elem())
	case '"':
		return r.string(t, from)
	case '0':
		return r.number(t, from)
	case 'n':
		return nil, nil
	default:
		return kind == 't', nil
	}
}

func (r *reader) object(s *Shape) (any, *Error) {
	var obj map[string]any
	if !r.Check {
		obj = make(map[string]any)
	}
	seen := make(map[string]string) // folded key → key
	for {
		t, from, err := r.token()
		if err != nil {
			return nil, err
		}
		if t.Kind() == '}' {
			return obj, nil
		}
		key, err := r.string(t, from)
		if err != nil {
			return nil, err
		}
		r.path = append(r.path, key)
		below, err := r.key(key, s, seen)
		if err != nil {
			return nil, err
		}
		v, err := r.value(below)
		if err != nil {
			return nil, err
		}
		if obj != nil {
			obj[key] = v
		}
		r.path = r.path[:len(r.path)-1]
	}
}

// key checks a key against the others of its object and gives the shape of its value.
func (r *reader) key(key string, s *Shape, seen map[string]string) (*Shape, *Error) {
	if r.Names {
		if err := r.count(r.offset()); err != nil {
			return nil, err
		}
	}
	fold := key
	if !r.Lax {
		fold = foldKey(key)
	}
	switch other, dup := seen[fold]; {
	case dup && other == key:
		return nil, r.badKey(Twice, key, "", "the key %q appears twice", key)
	case dup:
		return nil, r.badKey(Case, key, other, "the keys %q and %q differ only in case", other, key)
	}
	seen[fold] = key
	if s == nil || s.Fields == nil {
		return s.elem(), nil
	}
	if below, ok := s.Fields[key]; ok {
		return below, nil
	}
	other := ""
	for name := range s.Fields {
		if strings.EqualFold(name, key) {
			other = name
		}
	}
	return nil, r.badKey(Unknown, key, other, "unknown key %q", key)
}

func (r *reader) badKey(kind Kind, key, other, format string, args ...any) *Error {
	err := r.fail(kind, r.offset(), format, args...)
	err.Key, err.Other = key, other
	return err
}

func (r *reader) array(elem *Shape) (any, *Error) {
	list := []any{}
	for i := 0; ; i++ {
		r.path = append(r.path, strconv.Itoa(i))
		t, from, err := r.token()
		if err != nil {
			return nil, err
		}
		if t.Kind() == ']' {
			r.path = r.path[:len(r.path)-1]
			return list, nil
		}
		v, err := r.finish(t, from, elem)
		if err != nil {
			return nil, err
		}
		if !r.Check {
			list = append(list, v)
		}
		r.path = r.path[:len(r.path)-1]
	}
}
