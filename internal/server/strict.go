package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toold/toold/internal/plain"
)

// Bounds of a JSON body beside its length.
const (
	maxDepth = 64
	// maxValues bounds how many values and keys a body holds: each costs some
	// ten times its shortest spelling once it is parsed.
	maxValues = 1 << 17
)

// bodyError is what is wrong with a JSON body, and where.
type bodyError struct {
	path string // JSON pointer
	msg  string
}

func (e *bodyError) Error() string {
	if e.path == "" {
		return e.msg
	}
	return e.path + ": " + e.msg
}

// shape is what the keys of an object may be. A nil shape is free: any keys, but
// none twice.
type shape struct {
	fields map[string]*shape // of a struct, by JSON name; nil for maps
	elem   *shape            // of the values of a map or a list
	raw    bool              // the input of a tool, which has a stricter reader of its own
}

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	rawMessage  = reflect.TypeFor[json.RawMessage]()
)

// shapeOf derives the shape of t once, when the server starts.
func shapeOf(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		return &shape{elem: shapeOf(t.Elem())}
	case reflect.Struct:
		sh := &shape{fields: make(map[string]*shape)}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "input" && f.Type == rawMessage {
				sh.fields[name] = &shape{raw: true}
			} else if name != "-" && f.IsExported() {
				sh.fields[name] = shapeOf(f.Type)
			}
		}
		return sh
	}
	return nil
}

// decodeStrict decodes text into v, whose shape is sh. encoding/json alone would
// take the last of two equal keys, match keys in any case and ignore unknown
// ones, so that what a client believes to have said and what is done could
// differ. The input of a call is only known to be JSON: what is wrong inside of it
// is for the call's record, and no reason to refuse the request.
func decodeStrict(text []byte, sh *shape, v any) error {
	if !utf8.Valid(text) {
		return &bodyError{msg: "the body is not UTF-8"}
	}
	if !json.Valid(text) {
		return syntaxError(text)
	}
	w := walker{text: text}
	if err := w.value(sh, 0); err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return typeError(err)
	}
	return nil
}

// syntaxError says where text stops being JSON.
func syntaxError(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return &bodyError{msg: "the body is empty"}
	}
	var raw json.RawMessage
	err := json.Unmarshal(text, &raw)
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &bodyError{msg: fmt.Sprintf("not JSON at byte %d: %v", se.Offset, se)}
	}
	return &bodyError{msg: fmt.Sprintf("not JSON: %v", err)}
}

// typeError says which value does not fit its field.
func typeError(err error) error {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &bodyError{
			path: "/" + strings.ReplaceAll(te.Field, ".", "/"),
			msg:  fmt.Sprintf("a %s does not fit, expected %s", te.Value, te.Type.Kind()),
		}
	}
	return &bodyError{msg: err.Error()}
}

// walker goes once through text that is known to be valid JSON.
type walker struct {
	text   []byte
	pos    int
	values int
	path   []string
}

func (w *walker) fail(format string, args ...any) error {
	var b strings.Builder
	for _, p := range w.path {
		b.WriteByte('/')
		b.WriteString(pointer(p))
	}
	return &bodyError{path: b.String(), msg: fmt.Sprintf(format, args...)}
}

// pointer escapes a key for a JSON pointer.
func pointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(plain.Cut(key, maxShown))
}

func (w *walker) space() {
	for w.pos < len(w.text) && bytes.IndexByte([]byte(" \t\r\n"), w.text[w.pos]) >= 0 {
		w.pos++
	}
}

// value reads one value and the space around it.
func (w *walker) value(sh *shape, depth int) error {
	if w.values++; w.values > maxValues {
		return w.fail("the body holds more than %d values", maxValues)
	}
	w.space()
	var err error
	if sh != nil && sh.raw {
		w.raw()
		w.space()
		return nil
	}
	switch w.text[w.pos] {
	case '{':
		err = w.object(sh, depth+1)
	case '[':
		err = w.array(sh, depth+1)
	case '"':
		w.skip()
	default:
		w.scalar()
	}
	w.space()
	return err
}

// scalar goes over a number or a name.
func (w *walker) scalar() {
	for w.pos < len(w.text) && bytes.IndexByte([]byte(",]} \t\r\n"), w.text[w.pos]) < 0 {
		w.pos++
	}
}

// raw goes over a value and looks at nothing inside of it.
func (w *walker) raw() {
	for depth := 0; ; {
		switch w.text[w.pos] {
		case '"':
			w.skip()
		case '{', '[':
			depth++
			w.pos++
		case '}', ']':
			depth--
			w.pos++
		case ',', ':', ' ', '\t', '\r', '\n':
			w.pos++
		default:
			w.scalar()
		}
		if depth == 0 {
			return
		}
	}
}

func (w *walker) object(sh *shape, depth int) error {
	if depth > maxDepth {
		return w.fail("nested deeper than %d levels", maxDepth)
	}
	w.pos++
	w.space()
	seen := make(map[string]bool)
	for w.text[w.pos] != '}' {
		key := w.key()
		w.path = append(w.path, key)
		below, err := w.member(sh, key, seen)
		if err != nil {
			return err
		}
		w.space()
		w.pos++ // the colon
		if err := w.value(below, depth); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
		if w.text[w.pos] == ',' {
			w.pos++
			w.space()
		}
	}
	w.pos++
	return nil
}

// member checks a key and gives the shape of its value.
func (w *walker) member(sh *shape, key string, seen map[string]bool) (*shape, error) {
	if w.values++; w.values > maxValues {
		return nil, w.fail("the body holds more than %d values", maxValues)
	}
	if seen[key] {
		return nil, w.fail("the key is given twice")
	}
	seen[key] = true
	if sh == nil || sh.fields == nil {
		return sh.element(), nil
	}
	below, ok := sh.fields[key]
	if ok {
		return below, nil
	}
	for name := range sh.fields {
		if strings.EqualFold(name, key) {
			return nil, w.fail("unknown key; it is spelled %q", name)
		}
	}
	return nil, w.fail("unknown key")
}

func (sh *shape) element() *shape {
	if sh == nil {
		return nil
	}
	return sh.elem
}

func (w *walker) array(sh *shape, depth int) error {
	if depth > maxDepth {
		return w.fail("nested deeper than %d levels", maxDepth)
	}
	w.pos++
	w.space()
	for i := 0; w.text[w.pos] != ']'; i++ {
		w.path = append(w.path, strconv.Itoa(i))
		if err := w.value(sh.element(), depth); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
		if w.text[w.pos] == ',' {
			w.pos++
		}
	}
	w.pos++
	return nil
}

// skip goes over a string and reports whether it has escapes.
func (w *walker) skip() (escaped bool) {
	for w.pos++; w.text[w.pos] != '"'; w.pos++ {
		if w.text[w.pos] == '\\' {
			escaped = true
			w.pos++
		}
	}
	w.pos++
	return escaped
}

// key reads a key and gives what it spells: an escape does not make it another one.
func (w *walker) key() string {
	begin := w.pos
	if !w.skip() {
		return string(w.text[begin+1 : w.pos-1])
	}
	var s string
	_ = json.Unmarshal(w.text[begin:w.pos], &s) // valid JSON, a string
	return s
}
