package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tomltext"
)

// decoder puts the values of a document into a Config and collects what does
// not fit. It matches keys exactly: the TOML library would take "Socket" for
// "socket", and a file that two programs read differently is a trap.
type decoder struct {
	at       origins
	problems []tomltext.Problem
	notes    []tomltext.Problem
}

func (d *decoder) problem(path []string, format string, args ...any) {
	d.problems = append(d.problems, d.found(path, format, args...))
}

func (d *decoder) found(path []string, format string, args ...any) tomltext.Problem {
	at := d.at.of(path)
	return tomltext.Problem{Source: at.source, Line: at.line, Message: fmt.Sprintf(format, args...)}
}

// table decodes raw into the struct or map that v is.
func (d *decoder) table(path []string, v reflect.Value, raw map[string]any) {
	for name, value := range raw {
		child := append(slices.Clip(path), name)
		switch {
		case isPolicy(child):
		case matchesPath(tenantWeight, child):
			d.notes = append(d.notes, d.found(child, "%s has no effect in this version: remove it", tomltext.Dotted(child...)))
		case v.Kind() == reflect.Map:
			d.element(child, v, name, value)
		default:
			if f, ok := fieldOf(v, name); ok {
				d.value(child, f, value)
			} else {
				d.unknown(child, v)
			}
		}
	}
}

// tenantWeight is a setting of earlier versions. It never had an effect, so files
// that have it are still taken.
var tenantWeight = []string{"tenant", "*", "weight"}

// policyKeys are the keys that package policy reads.
var policyKeys = [][]string{
	{"permission"},
	{"rule"},
	{"test"},
	{"profile", "*", "permission"},
	{"profile", "*", "description"},
	{"tenant", "*", "permission"},
	{"tenant", "*", "profiles"},
}

// isPolicy reports whether package policy reads what is at path.
func isPolicy(path []string) bool {
	return slices.ContainsFunc(policyKeys, func(p []string) bool { return matchesPath(p, path) })
}

// matchesPath reports whether path is that of a pattern, in which "*" stands for any one
// part.
func matchesPath(pattern, path []string) bool {
	return slices.EqualFunc(pattern, path, func(p, part string) bool { return p == "*" || p == part })
}

// element decodes one entry of a map (a tenant, what a hook matches).
func (d *decoder) element(path []string, m reflect.Value, name string, raw any) {
	if m.IsNil() {
		m.Set(reflect.MakeMap(m.Type()))
	}
	e := reflect.New(m.Type().Elem()).Elem()
	d.value(path, e, raw)
	m.SetMapIndex(reflect.ValueOf(name), e)
}

func (d *decoder) value(path []string, v reflect.Value, raw any) {
	if v.Kind() == reflect.Struct || v.Kind() == reflect.Map {
		t, ok := raw.(map[string]any)
		if !ok {
			d.problem(path, "%s is a table: write [%s]", tomltext.Dotted(path...), tomltext.Dotted(path...))
			return
		}
		d.table(path, v, t)
		return
	}
	if isTables(v.Type()) {
		d.tables(path, v, raw)
		return
	}
	if err := assign(v, raw); err != nil {
		d.problem(path, "%s: %v", tomltext.Dotted(path...), err)
	}
}

// isTables reports whether t is read from an array of tables.
func isTables(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// tables decodes an array of tables; the path of each has its number.
func (d *decoder) tables(path []string, v reflect.Value, raw any) {
	list, ok := raw.([]map[string]any)
	if !ok {
		d.problem(path, "%s is an array of tables: write [[%s]]", tomltext.Dotted(path...), tomltext.Dotted(path...))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
	for i, t := range list {
		d.table(append(slices.Clip(path), strconv.Itoa(i+1)), v.Index(i), t)
	}
}

// unknown words the problem of a key that nothing is known about.
func (d *decoder) unknown(path []string, v reflect.Value) {
	name, hint := path[len(path)-1], "remove it"
	names := keysOf(v.Type())
	for _, p := range policyKeys {
		if last := len(p) - 1; len(p) == len(path) && matchesPath(p[:last], path[:last]) {
			names = append(names, p[last])
		}
	}
	for _, known := range names {
		if strings.EqualFold(known, name) {
			d.problem(path, "unknown key %s: keys are case-sensitive, write %s", tomltext.Dotted(path...), known)
			return
		}
	}
	if known, ok := foreignKeys[tomltext.Dotted(path...)]; ok {
		hint = known
	} else if near := plain.Near(name, names); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %s?", near[0])
	}
	d.problem(path, "unknown key %s: %s", tomltext.Dotted(path...), hint)
}

// keyOf is the key of a struct field: its toml tag, or its JSON name for
// structs that are shared with the API. "" for fields that are no setting.
func keyOf(f reflect.StructField) string {
	if tag := f.Tag.Get("toml"); tag != "" {
		return tag
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range reflect.VisibleFields(t) {
		if k := keyOf(f); k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// fieldOf finds the field of a key. Fields that are no setting have the key "",
// which a file can contain.
func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if key != "" && keyOf(f) == key {
			return v.FieldByIndex(f.Index), true
		}
	}
	return reflect.Value{}, false
}

// assign sets v from a decoded TOML value. Errors say what was expected.
func assign(v reflect.Value, raw any) error {
	switch p := v.Addr().Interface().(type) {
	case *client.Size:
		return assignSize(p, raw)
	case *client.Duration:
		return assignDuration(p, raw)
	}
	switch v.Kind() {
	case reflect.String:
		return set(v.SetString, raw, "a string")
	case reflect.Bool:
		return set(v.SetBool, raw, "true or false")
	case reflect.Float64:
		switch n := raw.(type) {
		case int64:
			v.SetFloat(float64(n))
		case float64:
			v.SetFloat(n)
		default:
			return wants("a number", raw)
		}
	case reflect.Int, reflect.Int64:
		return set(v.SetInt, raw, "a whole number")
	case reflect.Uint32:
		n, ok := raw.(int64)
		if !ok || n < 0 || n > math.MaxUint32 {
			return wants("a whole number from 0 to 4294967295", raw)
		}
		v.SetUint(uint64(n))
	case reflect.Slice:
		return assignList(v, raw)
	default:
		return fmt.Errorf("a setting of type %s cannot be read", v.Type())
	}
	return nil
}

// set gives a value to a setting that takes just such ones.
func set[T any](to func(T), raw any, what string) error {
	x, ok := raw.(T)
	if !ok {
		return wants(what, raw)
	}
	to(x)
	return nil
}

func assignSize(p *client.Size, raw any) error {
	switch x := raw.(type) {
	case int64:
		if x < 0 {
			return wants(`a size such as "256MiB"`, raw)
		}
		*p = client.Size(x)
		return nil
	case string:
		v, err := client.ParseSize(x)
		if err == nil {
			*p = v
		}
		return err
	}
	return wants(`a size such as "256MiB"`, raw)
}

func assignDuration(p *client.Duration, raw any) error {
	switch x := raw.(type) {
	case int64:
		if x == 0 {
			*p = 0
			return nil
		}
		return fmt.Errorf("%d what? write \"%ds\"", x, x)
	case string:
		v, err := client.ParseDuration(x)
		if err == nil {
			*p = v
		}
		return err
	}
	return wants(`a duration with its unit, such as "30s" or "10m"`, raw)
}

func assignList(v reflect.Value, raw any) error {
	items, ok := raw.([]any)
	if !ok {
		return wants("a list in [ ]", raw)
	}
	list := reflect.Zero(v.Type())
	for i, item := range items {
		e := reflect.New(v.Type().Elem()).Elem()
		if err := assign(e, item); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
		list = reflect.Append(list, e)
	}
	v.Set(list)
	return nil
}

func wants(what string, got any) error {
	switch got.(type) {
	case map[string]any, []map[string]any:
		return fmt.Errorf("want %s, not a table", what)
	case []any:
		return fmt.Errorf("want %s, not a list", what)
	case string:
		return fmt.Errorf("want %s, not %q", what, got)
	}
	return fmt.Errorf("want %s, not %v", what, got)
}
