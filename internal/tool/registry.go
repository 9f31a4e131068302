package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/strictjson"
)

// Registry is the list of all tools. It does not change after it was made and
// may be used from any goroutine.
type Registry struct {
	tools  []*Definition
	byName map[string]*Definition
}

// builtin lists the tools of this version in the order in which they are offered.
func builtin() []*Definition {
	return []*Definition{
		bashTool(),
		readTool(),
		writeTool(),
		editTool(),
		globTool(),
		grepTool(),
		listTool(),
		filePutTool(),
		fileGetTool(),
		filePutTreeTool(),
		fileGetTreeTool(),
		fileFormatTool(),
	}
}

// NewRegistry has the built-in tools.
func NewRegistry() *Registry { return newRegistry(builtin()) }

func newRegistry(tools []*Definition) *Registry {
	r := &Registry{byName: make(map[string]*Definition)}
	for _, d := range tools {
		if err := d.compile(); err != nil {
			panic(err) // a definition of our own is wrong: no input can cause it
		}
		r.tools = append(r.tools, d)
		r.byName[d.Name] = d
	}
	return r
}

// compile fills in what is derived from the definition's input.
func (d *Definition) compile() error {
	d.input.Schema = dialect
	compiled, err := compile(d.Name, d.input)
	if err != nil {
		return err
	}
	schema, err := json.Marshal(d.input)
	if err != nil {
		return fmt.Errorf("schema of %s: %w", d.Name, err)
	}
	d.compiled, d.Schema, d.shape = compiled, schema, shapeOf(d.input)
	if d.template, err = parseDescription(d.Name, d.Description); err != nil {
		return fmt.Errorf("description of %s: %w", d.Name, err)
	}
	plain, err := d.Describe(Facts{})
	if err != nil {
		return err
	}
	d.Description, d.Schema, d.input = plain.Description, plain.Schema, plain.input
	return nil
}

// Get finds a tool by its exact name, hidden ones included.
func (r *Registry) Get(name string) (*Definition, bool) {
	d, ok := r.byName[name]
	return d, ok
}

// All gives all definitions, hidden ones included.
func (r *Registry) All() []*Definition { return slices.Clone(r.tools) }

// List gives the definitions that are not hidden, in a fixed order.
func (r *Registry) List() []*Definition {
	var out []*Definition
	for _, d := range r.tools {
		if !d.Hidden {
			out = append(out, d)
		}
	}
	return out
}

// Parse checks raw against the schema of the tool called name. Errors are
// *client.Error with code unknown_tool or invalid_input and every violation. A
// hidden tool does not exist here, whatever its input.
func (r *Registry) Parse(name string, raw json.RawMessage) (*Invocation, error) {
	d, err := r.find(name)
	if err != nil {
		return nil, err
	}
	return d.parse(raw)
}

// ParseHidden is Parse that finds hidden tools by their exact name: for calls of the
// daemon's own and for records of calls, never for a name that a client gives.
func (r *Registry) ParseHidden(name string, raw json.RawMessage) (*Invocation, error) {
	if d, ok := r.byName[name]; ok {
		return d.parse(raw)
	}
	return r.Parse(name, raw)
}

// Malformed is what a client asked for that Parse refused, as a call's record has it.
// Nothing runs it.
func (r *Registry) Malformed(name string, raw json.RawMessage) *Invocation {
	d, err := r.find(name)
	if err != nil {
		d = &Definition{Name: shownName(name)}
	}
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	if _, err := readStrict(raw, maxDepth); err != nil {
		// As a text it has one meaning for everybody, and no depth.
		raw, _ = json.Marshal(string(raw)) // never fails for a string
	}
	return &Invocation{Tool: &Definition{Name: d.Name, Truncate: truncateHead}, JSON: raw}
}

// shownName is a name that a client gave, fit to be kept and printed.
func shownName(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	return plain.Cut(name, maxNameShown)
}

// find looks for a tool that is not hidden. It corrects case and says what there is
// instead.
func (r *Registry) find(name string) (*Definition, error) {
	if d, ok := r.byName[name]; ok && !d.Hidden {
		return d, nil
	}
	shown := r.List()
	for _, d := range shown {
		if strings.EqualFold(d.Name, name) {
			return d, nil
		}
	}
	return nil, &client.Error{
		Code:    client.CodeUnknownTool,
		Message: fmt.Sprintf("there is no tool called %q", shownName(name)),
		Hint:    insteadOf(name, shown),
	}
}

// parse turns what a client sent into what is judged and run.
func (d *Definition) parse(raw json.RawMessage) (*Invocation, error) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}") // so that what is missing is named
	}
	v, serr := readStrict(raw, maxDepth)
	if serr != nil {
		return nil, invalidInput(d.Name, []client.Violation{{
			Path: strictjson.Pointer(serr.Path...), Message: fmt.Sprintf("%s (at byte %d)", serr.Msg, serr.Offset),
		}})
	}
	var n normaliser
	v = n.value(v, d.shape, maxDepth)
	if err := d.compiled.Validate(v); err != nil {
		n.violations = append(n.violations, violationsOf(err, d.input.PropertyOrder)...)
	}
	if len(n.violations) > 0 {
		return nil, invalidInput(d.Name, d.worded(n.violations))
	}
	input, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("normalise input of %s: %w", d.Name, err)
	}
	fields, _ := v.(map[string]any) // the schema wants an object
	return &Invocation{Tool: d, JSON: input, Input: d.decode(fields), Lenient: n.lenient}, nil
}

func (d *Definition) worded(violations []client.Violation) []client.Violation {
	if d.word == nil {
		return violations
	}
	for i, v := range violations {
		if own := d.word(v); own != "" {
			violations[i].Message = own
		}
	}
	return violations
}
