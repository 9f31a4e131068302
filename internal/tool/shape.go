package tool

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/strictjson"
)

// shape is what of a schema is needed to bring a value into its normal form.
type shape struct {
	types    []string // none means any
	required []string
	fields   map[string]*shape
	aliases  map[string]string // camelCase → the field's own name
	item     *shape
	// closed: it has no other fields than these.
	closed bool
	// positive: the least that a number may be is more than 0, so that 0 says the
	// same as to leave it out.
	positive bool
}

func shapeOf(s *jsonschema.Schema) *shape {
	if s == nil {
		return nil
	}
	out := &shape{
		types:    types(s),
		required: s.Required,
		fields:   make(map[string]*shape, len(s.Properties)),
		aliases:  make(map[string]string),
		item:     shapeOf(s.Items),
		closed:   s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil,
		positive: s.Minimum != nil && *s.Minimum > 0,
	}
	for name, field := range s.Properties {
		out.fields[name] = shapeOf(field)
		alias := camelCase(name)
		if _, taken := s.Properties[alias]; !taken {
			out.aliases[alias] = name
		}
	}
	return out
}

// camelCase is file_path as filePath.
func camelCase(name string) string {
	var b strings.Builder
	upper := false
	for _, r := range name {
		if r == '_' {
			upper = true
			continue
		}
		if upper && 'a' <= r && r <= 'z' {
			r -= 'a' - 'A'
		}
		upper = false
		b.WriteRune(r)
	}
	return b.String()
}

// takes reports whether values of JSON type t fit.
func (s *shape) takes(t string) bool {
	return len(s.types) == 0 || slices.Contains(s.types, t)
}

// normaliser walks a value beside the shape that it should have.
type normaliser struct {
	lenient    int      // conversions made
	aliases    []string // names that were replaced
	path       []string // where it is
	violations []client.Violation
}

// value gives v in its normal form: aliases renamed, null taken for absent, and
// the conversions made that models need. Whether the outcome fits the
// schema is not its business.
func (n *normaliser) value(v any, s *shape, depth int) any {
	if s == nil {
		return v
	}
	if text, ok := v.(string); ok && !s.takes("string") {
		v = n.convert(text, s, depth)
	}
	switch v := v.(type) {
	case map[string]any:
		n.object(v, s, depth)
	case []any:
		for i := range v {
			n.path = append(n.path, strconv.Itoa(i))
			v[i] = n.value(v[i], s.item, depth-1)
			n.path = n.path[:len(n.path)-1]
		}
	}
	return v
}

func (n *normaliser) object(obj map[string]any, s *shape, depth int) {
	for alias, name := range s.aliases {
		n.rename(obj, n.path, alias, name, CamelCase)
	}
	for name, field := range s.fields {
		v, ok := obj[name]
		switch {
		case !ok:
		case v == nil && !field.takes("null") && !slices.Contains(s.required, name):
			// Strict modes of providers cannot leave a field out and write null.
			delete(obj, name)
		default:
			n.path = append(n.path, name)
			obj[name] = n.value(v, field, depth-1)
			n.path = n.path[:len(n.path)-1]
			if field.positive && obj[name] == json.Number("0") && !slices.Contains(s.required, name) {
				delete(obj, name) // how many models write "not given"
				n.lenient++
			}
		}
	}
	for name, v := range obj {
		if _, known := s.fields[name]; !known && s.closed && asksNothing(name, v) && !s.spelt(name) {
			delete(obj, name)
			n.use(NoEffect)
		}
	}
}

// spelt reports whether a field differs from one of s in case and underscores only.
func (s *shape) spelt(name string) bool {
	for field := range s.fields {
		if plain.Folded(field) == plain.Folded(name) {
			return true
		}
	}
	return false
}

// NoEffect is what counts as the alias of a field that no tool of ours has, and that is left out
// as it asks for nothing. Other systems' schemas have many such, which models fill in.
const NoEffect = "no_effect"

// asksNothing reports whether a field that a tool does not know has a value that asks for
// nothing: null, "", [] and {} do not, nor do false and 0 but where they ask for something.
func asksNothing(name string, v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	case bool:
		return !v && !asksByNo(name)
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0 && !asksByNo(name)
	}
	return false
}

// asksByNo reports whether false or 0 asks for something in a field of this name: to do less than
// is done without it. Names are compared without case and underscores.
func asksByNo(name string) bool {
	name = plain.Folded(name)
	switch name {
	case "insertline", "overwrite", "create", "recursive", "casesensitive", "respectgitignore":
		return true
	}
	return strings.HasPrefix(name, "max") || strings.HasPrefix(name, "expected")
}

// convert is the leniency towards models that quote too much: a number, boolean,
// array or object given as a string where the schema takes no string. Text that
// does not read as a value of a fitting type stays what it is.
func (n *normaliser) convert(text string, s *shape, depth int) any {
	v, err := readStrict([]byte(text), depth)
	if err != nil {
		return text
	}
	fits := false
	switch v.(type) {
	case json.Number:
		fits = s.takes("number") || s.takes("integer")
	case bool:
		fits = s.takes("boolean")
	case []any:
		fits = s.takes("array")
	case map[string]any:
		fits = s.takes("object")
	}
	if !fits {
		return text
	}
	n.lenient++
	return v
}

// Bounds of an input, whatever its schema says.
const (
	maxDepth = 64
	// maxValues keeps a body of a few MiB from taking a hundred.
	maxValues = 1 << 17
)

// readStrict reads an input, or a value in it, whose depth is bounded.
func readStrict(text []byte, depth int) (any, *strictjson.Error) {
	return strictjson.Read(text, strictjson.Rules{Depth: depth, Values: maxValues})
}
