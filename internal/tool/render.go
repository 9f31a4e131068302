package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// formats are the shapes that Render knows, "" being our own.
var formats = map[string]func(*Definition) (any, error){
	"":                 ours,
	"anthropic":        anthropic,
	"openai":           openAI,
	"openai-responses": openAIResponses,
	"gemini":           gemini,
	"mcp":              mcp,
}

// Render gives a definition in the shape of format: "" (ours), anthropic,
// openai, openai-responses, gemini or mcp. Another format is a *client.Error with code
// invalid_request.
func Render(d *Definition, format string) (json.RawMessage, error) {
	shape, ok := formats[format]
	if !ok {
		return nil, &client.Error{
			Code:    client.CodeInvalidRequest,
			Message: fmt.Sprintf("unknown tool format %q", plain.Cut(format, 64)),
			Hint:    "use anthropic, openai, openai-responses, gemini or mcp, or leave it out",
		}
	}
	v, err := any(nil), error(nil)
	if format != "" && !toolName.MatchString(d.Name) {
		err = fmt.Errorf("the name %q is too long or has other signs than letters, digits, _ and -", plain.Cut(d.Name, maxNameShown))
	} else {
		v, err = shape(d)
	}
	if err != nil {
		return nil, &LoweringError{Format: format, Why: err.Error()}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("render %s for %q: %w", d.Name, format, err)
	}
	return raw, nil
}

func ours(d *Definition) (any, error) {
	return client.ToolDefinition{
		Name: d.Name, Description: d.Description, InputSchema: d.Schema,
		ReadOnly: d.ReadOnly, Destructive: d.Destructive, Idempotent: d.Idempotent, OpenWorld: d.OpenWorld, Command: d.Command,
	}, nil
}

// anthropic is a tool of the Messages API.
func anthropic(d *Definition) (any, error) {
	s := d.input.CloneSchemas()
	s.Schema = ""
	if len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) > 0 || s.Ref != "" {
		var err error
		if s, err = flatten(s); err != nil { // at the top it has to be one object
			return nil, err
		}
	}
	if err := oneObject(s); err != nil {
		return nil, err
	}
	return struct {
		Name        string             `json:"name"`
		Description string             `json:"description"`
		InputSchema *jsonschema.Schema `json:"input_schema"`
	}{d.Name, d.Description, s}, nil
}

// strictFunction is a function in strict mode.
type strictFunction struct {
	Type        string             `json:"type,omitempty"`
	Name        string             `json:"name"`
	Description string             `json:"description"`
	Strict      bool               `json:"strict"`
	Parameters  *jsonschema.Schema `json:"parameters"`
}

// openAI is a tool of the Chat Completions API in strict mode.
func openAI(d *Definition) (any, error) {
	s, err := flatten(d.input)
	if err != nil {
		return nil, err
	}
	return struct {
		Type     string         `json:"type"`
		Function strictFunction `json:"function"`
	}{"function", strictFunction{"", d.Name, d.Description, true, strictSchema(s)}}, nil
}

// openAIResponses is a tool of the Responses API in strict mode.
func openAIResponses(d *Definition) (any, error) {
	s, err := flatten(d.input)
	if err != nil {
		return nil, err
	}
	return strictFunction{"function", d.Name, d.Description, true, strictSchema(s)}, nil
}

// strictSchema is s in the subset that strict mode takes: every property is
// required, those that were optional can be null, and bounds are left out since
// the set of keywords differs between models. Parse checks the bounds and takes
// null for absent.
func strictSchema(s *jsonschema.Schema) *jsonschema.Schema {
	if free(s) {
		return &jsonschema.Schema{Type: "string", Description: asText(s)}
	}
	out := &jsonschema.Schema{
		Type:                 s.Type,
		Types:                s.Types,
		Description:          s.Description,
		Enum:                 s.Enum,
		PropertyOrder:        s.PropertyOrder,
		AdditionalProperties: s.AdditionalProperties,
	}
	if s.Items != nil {
		out.Items = strictSchema(s.Items)
	}
	for _, either := range s.AnyOf {
		out.AnyOf = append(out.AnyOf, strictSchema(either))
	}
	if s.Properties == nil {
		return out
	}
	out.Properties = make(map[string]*jsonschema.Schema, len(s.Properties))
	out.Required = s.PropertyOrder
	for name, field := range s.Properties {
		strict := strictSchema(field)
		if !slices.Contains(s.Required, name) {
			nullable(strict)
		}
		out.Properties[name] = strict
	}
	return out
}

// free reports whether s is any object at all. Two formats cannot say that: there it is the
// JSON of one as text, which Parse takes.
func free(s *jsonschema.Schema) bool {
	return s.Properties == nil && len(s.AnyOf) == 0 && len(s.Enum) == 0 && (s.Type == "object" || len(types(s)) == 0)
}

func asText(s *jsonschema.Schema) string {
	return strings.TrimSpace(s.Description + " Give the JSON of an object, as text.")
}

// nullable lets s be null as well.
func nullable(s *jsonschema.Schema) {
	if len(s.AnyOf) > 0 {
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "null"})
		return
	}
	if len(types(s)) == 0 || slices.Contains(types(s), "null") {
		return
	}
	s.Type, s.Types = "", append(slices.Clone(types(s)), "null")
	if s.Enum != nil {
		s.Enum = append(slices.Clone(s.Enum), nil)
	}
}

// geminiSchema is the part of OpenAPI's schema that Gemini's function
// declarations take: no references, one type, enums of strings.
type geminiSchema struct {
	Type             string                   `json:"type,omitempty"`
	AnyOf            []*geminiSchema          `json:"anyOf,omitempty"`
	Nullable         bool                     `json:"nullable,omitempty"`
	Description      string                   `json:"description,omitempty"`
	Enum             []string                 `json:"enum,omitempty"`
	Items            *geminiSchema            `json:"items,omitempty"`
	Properties       map[string]*geminiSchema `json:"properties,omitempty"`
	PropertyOrdering []string                 `json:"propertyOrdering,omitempty"`
	Required         []string                 `json:"required,omitempty"`
	Minimum          *float64                 `json:"minimum,omitempty"`
	Maximum          *float64                 `json:"maximum,omitempty"`
	MaxItems         *int                     `json:"maxItems,omitempty"`
}

// gemini is a function declaration.
func gemini(d *Definition) (any, error) {
	flat, err := flatten(d.input)
	if err != nil {
		return nil, err
	}
	s := toGemini(flat)
	return struct {
		Name        string        `json:"name"`
		Description string        `json:"description"`
		Parameters  *geminiSchema `json:"parameters"`
	}{d.Name, d.Description, s}, nil
}

// toGemini is a flat schema in that form. A union of types is said as any of them.
func toGemini(s *jsonschema.Schema) *geminiSchema {
	if free(s) {
		return &geminiSchema{Type: "string", Description: asText(s)}
	}
	out := &geminiSchema{
		Description: s.Description, PropertyOrdering: s.PropertyOrder, Required: s.Required,
		Minimum: s.Minimum, Maximum: s.Maximum, MaxItems: s.MaxItems,
	}
	several := make([]string, 0, 1)
	for _, t := range types(s) {
		if t == "null" {
			out.Nullable = true
		} else {
			several = append(several, t)
		}
	}
	for _, either := range s.AnyOf {
		if either.Type == "null" {
			out.Nullable = true
		} else {
			out.AnyOf = append(out.AnyOf, toGemini(either))
		}
	}
	switch {
	case len(s.Enum) > 0:
		out.Type = "string"
		for _, v := range s.Enum {
			if v != nil {
				out.Enum = append(out.Enum, fmt.Sprint(v))
			}
		}
	case len(several) == 1:
		out.Type = several[0]
	default:
		for _, t := range several {
			one := *s
			one.Type, one.Types, one.Description = t, nil, ""
			if t != "integer" && t != "number" {
				one.Minimum, one.Maximum = nil, nil
			}
			out.AnyOf = append(out.AnyOf, toGemini(&one))
		}
		out.Minimum, out.Maximum, out.MaxItems = nil, nil, nil
		if len(several) > 0 {
			return out
		}
	}
	if s.Items != nil {
		out.Items = toGemini(s.Items)
	}
	for _, name := range s.PropertyOrder {
		if out.Properties == nil {
			out.Properties = make(map[string]*geminiSchema)
		}
		out.Properties[name] = toGemini(s.Properties[name])
	}
	return out
}

// mcp is a tool as an MCP server lists it.
func mcp(d *Definition) (any, error) {
	if err := oneObject(d.input); err != nil {
		return nil, err
	}
	type annotations struct { // all of them: what is left out counts as the worst
		ReadOnlyHint    bool `json:"readOnlyHint"`
		DestructiveHint bool `json:"destructiveHint"`
		IdempotentHint  bool `json:"idempotentHint"`
		OpenWorldHint   bool `json:"openWorldHint"`
	}
	return struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Annotations annotations     `json:"annotations"`
	}{d.Name, d.Description, d.Schema, annotations{d.ReadOnly, d.Destructive, d.Idempotent, d.OpenWorld}}, nil
}

// LoweringError says that a format cannot say what the input of a tool is.
type LoweringError struct{ Format, Why string }

// Error implements error.
func (e *LoweringError) Error() string {
	return "format " + e.Format + " cannot say its input: " + e.Why
}
