package tool

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

// dialect is the JSON Schema that all definitions are written in.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// field is one property of an input.
type field struct {
	name     string
	required bool
	schema   *jsonschema.Schema
}

// required is a field that every input has.
func required(name string, s *jsonschema.Schema) field { return field{name, true, s} }

// optional is a field that may be left out or, which is the same, null.
func optional(name string, s *jsonschema.Schema) field { return field{name, false, s} }

// object is the schema of an input: these fields, in this order, and no others.
// The order is kept in every rendering because models fill fields in it.
func object(fields ...field) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:                 "object",
		Properties:           make(map[string]*jsonschema.Schema, len(fields)),
		AdditionalProperties: never(),
	}
	for _, f := range fields {
		s.Properties[f.name] = f.schema
		s.PropertyOrder = append(s.PropertyOrder, f.name)
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

// never is the schema that nothing matches; it is written as false.
func never() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

// text is a string of minLen to maxLen characters; maxLen 0 is no bound.
func text(minLen, maxLen int, description string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: description}
	if minLen > 0 {
		s.MinLength = &minLen
	}
	if maxLen > 0 {
		s.MaxLength = &maxLen
	}
	return s
}

// integer is a whole number from low to high.
func integer(low, high float64, description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: &low, Maximum: &high, Description: description}
}

// boolean is true or false.
func boolean(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "boolean", Description: description}
}

// choice is one of the given strings.
func choice(description string, values ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: description}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// listOf is an array of at most maxItems items.
func listOf(item *jsonschema.Schema, maxItems int, description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: item, MaxItems: &maxItems, Description: description}
}

// The largest numbers and texts that schemas allow where nothing tighter is due.
const (
	// maxCount is more lines than any file has.
	maxCount = 1e12
	// maxPath is PATH_MAX without its NUL.
	maxPath = 4095
)

// compile makes a validator of s. An error means that the definition is wrong.
func compile(name string, s *jsonschema.Schema) (*validator.Schema, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", name, err)
	}
	doc, err := validator.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", name, err)
	}
	c := validator.NewCompiler()
	c.DefaultDraft(validator.Draft2020)
	url := "tool:" + name
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", name, err)
	}
	compiled, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", name, err)
	}
	return compiled, nil
}

// types are the JSON types that s takes; none means any.
func types(s *jsonschema.Schema) []string {
	if s.Type != "" {
		return []string{s.Type}
	}
	return s.Types
}
