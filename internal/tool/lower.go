package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toold/toold/internal/plain"
)

// toolName is what every provider takes as the name of a tool.
var toolName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// maxLowered bounds how deep objects and lists may nest: providers refuse deeper ones.
const maxLowered = 10

// flatten says what s says with fewer words, for formats that do not have them all: references
// are replaced by what they refer to, allOf by one object, oneOf by anyOf, const by an enum, a
// tuple by a list of any of its items, formats and patterns by words of the description. An
// error is why that cannot be.
func flatten(s *jsonschema.Schema) (*jsonschema.Schema, error) {
	f := flattener{root: s}
	out, err := f.flat(s, nil, 0)
	if err != nil {
		return nil, err
	}
	if err := oneObject(out); err != nil || len(out.AnyOf) > 0 {
		return nil, errNoObject
	}
	if out.Properties == nil {
		out.Properties = map[string]*jsonschema.Schema{}
	}
	out.AdditionalProperties = never()
	return out, nil
}

var errNoObject = errors.New("an input must be one object")

// oneObject refuses an input that is no object, which no format takes.
func oneObject(s *jsonschema.Schema) error {
	if s.Type != "object" {
		return errNoObject
	}
	return nil
}

type flattener struct{ root *jsonschema.Schema }

// flat flattens s, which stands at depth inside of these references.
func (f flattener) flat(s *jsonschema.Schema, in []string, depth int) (*jsonschema.Schema, error) {
	if depth > maxLowered {
		return nil, fmt.Errorf("it nests deeper than %d", maxLowered)
	}
	if s.Ref != "" {
		return f.referred(s, in, depth)
	}
	if err := unsayable(s); err != nil {
		return nil, err
	}
	if len(s.AllOf) > 0 {
		return f.merged(s, in, depth)
	}
	out := &jsonschema.Schema{
		Type: s.Type, Types: s.Types, Description: describedBy(s), Enum: s.Enum, Required: s.Required,
		Minimum: s.Minimum, Maximum: s.Maximum, MaxItems: s.MaxItems,
	}
	if s.Const != nil {
		out.Enum = []any{*s.Const}
	}
	if len(types(out)) == 0 {
		out.Type = impliedType(s, out.Enum)
	}
	if err := f.parts(s, out, in, depth); err != nil {
		return nil, err
	}
	return out, nil
}

// parts flattens what stands inside of s.
func (f flattener) parts(s, out *jsonschema.Schema, in []string, depth int) (err error) {
	for _, either := range append(slices.Clone(s.AnyOf), s.OneOf...) {
		o, err := f.flat(either, in, depth+1)
		if err != nil {
			return err
		}
		out.AnyOf = append(out.AnyOf, o)
	}
	if len(out.AnyOf) > 0 {
		out.Type, out.Types = "", nil
	}
	if tuple := append(slices.Clone(s.PrefixItems), s.ItemsArray...); len(tuple) > 0 {
		return f.tuple(tuple, out, in, depth)
	}
	if s.Items != nil {
		if out.Items, err = f.flat(s.Items, in, depth+1); err != nil {
			return err
		}
	} else if slices.Contains(types(out), "array") {
		out.Items = &jsonschema.Schema{Type: "string"}
	}
	if s.Properties == nil {
		return nil // any object at all, or a map: see free
	}
	out.Properties, out.AdditionalProperties = make(map[string]*jsonschema.Schema, len(s.Properties)), never()
	out.PropertyOrder = orderOf(s)
	for _, name := range out.PropertyOrder {
		if out.Properties[name], err = f.flat(s.Properties[name], in, depth+1); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// tuple makes a list of any of the items of a tuple.
func (f flattener) tuple(items []*jsonschema.Schema, out *jsonschema.Schema, in []string, depth int) error {
	n, each := len(items), make([]*jsonschema.Schema, 0, len(items))
	for _, item := range items {
		one, err := f.flat(item, in, depth+1)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(each, func(o *jsonschema.Schema) bool { return reflect.DeepEqual(o, one) }) {
			each = append(each, one)
		}
	}
	if out.Items = each[0]; len(each) > 1 {
		out.Items = &jsonschema.Schema{AnyOf: each}
	}
	out.Type, out.MaxItems = "array", &n
	out.Description = sentence(out.Description, fmt.Sprintf("Exactly %s, in order.", plain.Count(n, "item", "items")))
	return nil
}

// referred flattens what a reference leads to.
func (f flattener) referred(s *jsonschema.Schema, in []string, depth int) (*jsonschema.Schema, error) {
	if slices.Contains(in, s.Ref) {
		return nil, fmt.Errorf("%s contains itself", s.Ref)
	}
	name, ok := strings.CutPrefix(s.Ref, "#/$defs/")
	to := f.root.Defs[name]
	if !ok {
		name, ok = strings.CutPrefix(s.Ref, "#/definitions/")
		to = f.root.Definitions[name]
	}
	if !ok || to == nil {
		return nil, fmt.Errorf("%q leads to nothing in it", s.Ref)
	}
	out, err := f.flat(to, append(slices.Clone(in), s.Ref), depth)
	if err == nil && s.Description != "" {
		out.Description = s.Description
	}
	return out, err
}

// merged makes one object of several that all hold.
func (f flattener) merged(s *jsonschema.Schema, in []string, depth int) (*jsonschema.Schema, error) {
	own := *s
	own.AllOf = nil
	out := &jsonschema.Schema{Type: "object", Description: s.Description, Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: never()}
	for _, part := range append([]*jsonschema.Schema{&own}, s.AllOf...) {
		o, err := f.flat(part, in, depth)
		if err != nil {
			return nil, err
		}
		if o.Type != "object" && (part != &own || len(types(o)) > 0) || len(o.AnyOf) > 0 {
			return nil, fmt.Errorf("allOf of what is no object")
		}
		for _, name := range o.PropertyOrder {
			if _, twice := out.Properties[name]; twice {
				return nil, fmt.Errorf("allOf says of %q twice what it is", name)
			}
			out.Properties[name] = o.Properties[name]
			out.PropertyOrder = append(out.PropertyOrder, name)
		}
		out.Required = append(out.Required, o.Required...)
	}
	return out, nil
}

// unsayable says what of s has no words that are simpler.
func unsayable(s *jsonschema.Schema) error {
	for word, there := range map[string]bool{
		"not": s.Not != nil, "if": s.If != nil, "dependentSchemas": len(s.DependentSchemas) > 0, "dependentRequired": len(s.DependentRequired) > 0,
		"$dynamicRef": s.DynamicRef != "", "contains": s.Contains != nil, "propertyNames": s.PropertyNames != nil,
	} {
		if there {
			return fmt.Errorf("%s has no simpler words", word)
		}
	}
	if len(s.PatternProperties) > 0 && s.Properties != nil || s.Properties != nil && s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
		return fmt.Errorf("fields that have no name beside some that have")
	}
	return nil
}

// describedBy is the description of s, with what is said otherwise there.
func describedBy(s *jsonschema.Schema) string {
	text := s.Description
	if s.Format != "" {
		text = sentence(text, "Format: "+s.Format+".")
	}
	if s.Pattern != "" {
		text = sentence(text, "It matches "+s.Pattern+" .")
	}
	return text
}

func sentence(text, more string) string { return strings.TrimSpace(text + " " + more) }

// impliedType is the type of a schema that names none.
func impliedType(s *jsonschema.Schema, enum []any) string {
	switch {
	case s.Properties != nil:
		return "object"
	case s.Items != nil || len(s.PrefixItems) > 0 || len(s.ItemsArray) > 0:
		return "array"
	case len(enum) == 0:
		return ""
	}
	switch enum[0].(type) {
	case bool:
		return "boolean"
	case float64, int, json.Number:
		return "number"
	}
	return "string"
}

// orderOf are the names of the properties in the order in which they are to be filled.
func orderOf(s *jsonschema.Schema) []string {
	order := slices.Clone(s.PropertyOrder)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	return slices.DeleteFunc(order, func(name string) bool { return s.Properties[name] == nil })
}
