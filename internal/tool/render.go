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
	"":          ours,
	"anthropic": anthropic,
	"openai":    openAI,
	"gemini":    gemini,
	"mcp":       mcp,
}

// Render gives a definition in the shape of format: "" (ours), anthropic,
// openai, gemini or mcp. Another format is a *client.Error with code
// invalid_request.
func Render(d *Definition, format string) (json.RawMessage, error) {
	shape, ok := formats[format]
	if !ok {
		return nil, &client.Error{
			Code:    client.CodeInvalidRequest,
			Message: fmt.Sprintf("unknown tool format %q", plain.Cut(format, 64)),
			Hint:    "use anthropic, openai, gemini or mcp, or leave it out",
		}
	}
	v, err := shape(d)
	if err != nil {
		return nil, fmt.Errorf("render %s for %q: %w", d.Name, format, err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("render %s for %q: %w", d.Name, format, err)
	}
	return raw, nil
}

func ours(d *Definition) (any, error) {
	return client.ToolDefinition{Name: d.Name, Description: d.Description, InputSchema: d.Schema, ReadOnly: d.ReadOnly}, nil
}

// anthropic is a tool of the Messages API.
func anthropic(d *Definition) (any, error) {
	s := d.input.CloneSchemas()
	s.Schema = ""
	return struct {
		Name        string             `json:"name"`
		Description string             `json:"description"`
		InputSchema *jsonschema.Schema `json:"input_schema"`
	}{d.Name, d.Description, s}, nil
}

// openAI is a tool of the Chat Completions API in strict mode.
func openAI(d *Definition) (any, error) {
	type function struct {
		Name        string             `json:"name"`
		Description string             `json:"description"`
		Strict      bool               `json:"strict"`
		Parameters  *jsonschema.Schema `json:"parameters"`
	}
	return struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{d.Name, d.Description, true, strictSchema(d.input)}}, nil
}

// strictSchema is s in the subset that strict mode takes: every property is
// required, those that were optional can be null, and bounds are left out since
// the set of keywords differs between models. Parse checks the bounds and takes
// null for absent.
func strictSchema(s *jsonschema.Schema) *jsonschema.Schema {
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

// nullable lets s be null as well.
func nullable(s *jsonschema.Schema) {
	s.Type, s.Types = "", append(slices.Clone(types(s)), "null")
	if s.Enum != nil {
		s.Enum = append(slices.Clone(s.Enum), nil)
	}
}

// geminiSchema is the part of OpenAPI's schema that Gemini's function
// declarations take: no references, one type, enums of strings.
type geminiSchema struct {
	Type             string                   `json:"type"`
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
	s, err := toGemini(d.input)
	if err != nil {
		return nil, err
	}
	return struct {
		Name        string        `json:"name"`
		Description string        `json:"description"`
		Parameters  *geminiSchema `json:"parameters"`
	}{d.Name, d.Description, s}, nil
}

func toGemini(s *jsonschema.Schema) (*geminiSchema, error) {
	out := &geminiSchema{
		Description:      s.Description,
		PropertyOrdering: s.PropertyOrder,
		Required:         s.Required,
		Minimum:          s.Minimum,
		Maximum:          s.Maximum,
		MaxItems:         s.MaxItems,
	}
	for _, t := range types(s) {
		switch {
		case t == "null":
			out.Nullable = true
		case out.Type == "":
			out.Type = t
		default:
			return nil, fmt.Errorf("a union of types (%s) cannot be said", strings.Join(types(s), ", "))
		}
	}
	for _, v := range s.Enum {
		out.Type, out.Enum = "string", append(out.Enum, fmt.Sprint(v))
	}
	if s.Items != nil {
		items, err := toGemini(s.Items)
		if err != nil {
			return nil, err
		}
		out.Items = items
	}
	for name, field := range s.Properties {
		g, err := toGemini(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if out.Properties == nil {
			out.Properties = make(map[string]*geminiSchema)
		}
		out.Properties[name] = g
	}
	return out, nil
}

// mcp is a tool as an MCP server lists it.
func mcp(d *Definition) (any, error) {
	type annotations struct {
		ReadOnlyHint bool `json:"readOnlyHint"`
	}
	return struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Annotations annotations     `json:"annotations"`
	}{d.Name, d.Description, d.Schema, annotations{d.ReadOnly}}, nil
}
