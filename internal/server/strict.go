package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/strictjson"
)

// Bounds of a JSON body beside its length.
const (
	maxDepth = 64
	// maxValues bounds how many values and keys a body holds.
	maxValues = 1 << 17
)

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	rawMessage  = reflect.TypeFor[json.RawMessage]()
)

// shapeOf derives the shape of t once, when the server starts. The input of a call
// has a stricter reader of its own.
func shapeOf(t reflect.Type) *strictjson.Shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		return &strictjson.Shape{Elem: shapeOf(t.Elem())}
	case reflect.Struct:
		sh := &strictjson.Shape{Fields: make(map[string]*strictjson.Shape)}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "input" && f.Type == rawMessage {
				sh.Fields[name] = &strictjson.Shape{Raw: true}
			} else if name != "-" && f.IsExported() {
				sh.Fields[name] = shapeOf(f.Type)
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
func decodeStrict(text []byte, sh *strictjson.Shape, v any) error {
	if !utf8.Valid(text) {
		return errors.New("the body is not UTF-8")
	}
	if !json.Valid(text) {
		return syntaxError(text)
	}
	rules := strictjson.Rules{Depth: maxDepth, Values: maxValues, Names: true, Shape: sh, Lax: true, Check: true}
	if _, err := strictjson.Read(text, rules); err != nil {
		return refused(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return typeError(text, reflect.TypeOf(v), err)
	}
	return nil
}

// refused words what is wrong with a body that is JSON.
func refused(err *strictjson.Error) error {
	path := make([]string, len(err.Path))
	for i, key := range err.Path {
		path[i] = plain.Cut(key, maxShown)
	}
	msg := err.Msg
	switch err.Kind {
	case strictjson.Values:
		msg = "the body holds " + msg
	case strictjson.Twice:
		msg = "the key is given twice"
	case strictjson.Unknown:
		msg = "unknown key"
		if err.Other != "" {
			msg += fmt.Sprintf("; it is spelled %q", err.Other)
		}
	}
	return errors.New(strings.TrimPrefix(strictjson.Pointer(path...)+": "+msg, ": "))
}

// syntaxError says where text stops being JSON.
func syntaxError(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return errors.New("the body is empty")
	}
	var raw json.RawMessage
	err := json.Unmarshal(text, &raw)
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON at byte %d: %w", se.Offset, se)
	}
	return fmt.Errorf("not JSON: %w", err)
}

// typeError says which value does not fit its field: types that read themselves do not know where they
// stand.
func typeError(text []byte, t reflect.Type, err error) error {
	path, err := misfit(text, t, err)
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("a %s does not fit, expected %s", te.Value, te.Type.Kind())
	}
	if len(path) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strictjson.Pointer(path...), err)
}

// misfit finds the innermost value that does not fit, and why; err is why the whole of it does not.
func misfit(text []byte, t reflect.Type, err error) (path []string, why error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil, err
	}
	inner := func(key string, part json.RawMessage, t reflect.Type) bool {
		wrong := json.Unmarshal(part, reflect.New(t).Interface())
		if wrong != nil {
			path, why = misfit(part, t, wrong)
			path = append([]string{key}, path...)
		}
		return wrong != nil
	}
	var fields map[string]json.RawMessage
	var items []json.RawMessage
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		_ = json.Unmarshal(text, &fields) // else the whole is none
	case reflect.Slice, reflect.Array:
		_ = json.Unmarshal(text, &items)
	}
	for i, part := range items {
		if inner(strconv.Itoa(i), part, t.Elem()) {
			return path, why
		}
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		of := fieldType(t, key)
		if of != nil && inner(key, fields[key], of) {
			return path, why
		}
	}
	return nil, err
}

// fieldType is the type of a map's elements, or of a struct's field by its name in JSON; nil for none.
func fieldType(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Type
		}
	}
	return nil
}
