// Package tool is what tools are for the daemon: their definitions, the schemas
// of their inputs, strict parsing, and Access, which says what a call will
// touch. Nothing here does any I/O; the work itself is in package run, which is
// linked into the agent.
package tool

import (
	"encoding/json"

	"github.com/toold/toold/client"
)

// Definition is one tool as the daemon knows it.
type Definition struct {
	Name        string
	Description string          // from the tool's Markdown file
	Schema      json.RawMessage // JSON Schema 2020-12 of the input
	// Hidden tools are run by the daemon's own routes and never listed.
	Hidden bool
	// Streams: output arrives while it runs; Result.Output comes after it.
	Streams bool
	// Truncate is the default direction in which a long output is cut.
	Truncate string
	Access   func(input json.RawMessage) Access
}

// Access says what a call will touch.
type Access struct {
	Requests []Request
	// Prepare asks for a Prepare in the sandbox before the call is judged.
	Prepare bool
}

// Request is one permission that a call needs.
type Request struct {
	Permission string // "bash", "edit", "read" …
	Pattern    string // what the rules match: command, path, pattern, URL
	Path       string // as the input names it, to be resolved; "" for none
	Write      bool
}

// Invocation is an input that was parsed, checked and normalised: the bytes in
// Input are those that are judged, hashed, stored and run.
type Invocation struct {
	Tool  *Definition
	Input json.RawMessage
	// Lenient counts conversions of loosely typed values.
	Lenient int
}

// Registry is the list of all tools.
type Registry struct{}

// NewRegistry has the built-in tools.
func NewRegistry() *Registry { return &Registry{} }

// Parse checks raw against the schema of the tool called name. Errors are
// *client.Error with code unknown_tool or invalid_input and every violation.
func (r *Registry) Parse(name string, raw json.RawMessage) (*Invocation, error) {
	return nil, &client.Error{Code: client.CodeUnknownTool, Message: "no tools yet"}
}

// Get finds a tool by its exact name.
func (r *Registry) Get(name string) (*Definition, bool) { return nil, false }

// List gives the definitions that are not hidden, in a fixed order.
func (r *Registry) List() []*Definition { return nil }

// Render gives a definition in the shape of format: "" (ours), anthropic,
// openai, gemini or mcp.
func Render(d *Definition, format string) (json.RawMessage, error) { return nil, nil }
