package tool

import (
	"bytes"
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
	// shadowed are tools of later sources that may not be.
	shadowed []Absent
}

// builtIn is the source of the tools of this version.
type builtIn struct{}

func (builtIn) Name() string         { return "built in" }
func (builtIn) Tools() []*Definition { return builtin() }

// builtin lists the tools of this version in the order in which they are offered.
func builtin() []*Definition {
	return []*Definition{
		bashTool(),
		readTool(),
		writeTool(),
		editTool(),
		multiEditTool(),
		applyPatchTool(),
		globTool(),
		grepTool(),
		listTool(),
		todowriteTool(),
		todoreadTool(),
		batchTool(),
		skillTool(),
		filePutTool(),
		fileGetTool(),
		filePutTreeTool(),
		fileGetTreeTool(),
		fileFormatTool(),
	}
}

// NewRegistry has the built-in tools, and those of further sources. A later source may not take
// the name of an earlier one's tool; such a tool is left out, as is one whose definition is
// wrong, and sets say so.
func NewRegistry(more ...Source) *Registry {
	return newRegistry(append([]Source{builtIn{}}, more...)...)
}

// newRegistry has the tools of these sources, of which the first is our own.
func newRegistry(sources ...Source) *Registry {
	r := &Registry{byName: make(map[string]*Definition)}
	of := make(map[string]string)
	for i, src := range sources {
		for _, d := range src.Tools() {
			if other, taken := of[d.Name]; taken {
				r.shadowed = append(r.shadowed, Absent{d.Name, fmt.Sprintf("that of %s: the name is taken by %s", src.Name(), other)})
				continue
			}
			if err := d.compile(); err != nil {
				if i == 0 {
					panic(err) // a definition of our own is wrong: no input can cause it
				}
				r.shadowed = append(r.shadowed, Absent{d.Name, fmt.Sprintf("that of %s: %v", src.Name(), err)})
				continue
			}
			r.tools = append(r.tools, d)
			r.byName[d.Name], of[d.Name] = d, src.Name()
		}
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
	d.also.camel = d.also.camelCased()
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
	d, alias, err := r.find(name, raw)
	if err != nil {
		return nil, err
	}
	if other, input := r.meant(d, raw); other != nil {
		return other.parse(input)
	}
	inv, err := d.parse(raw)
	if err == nil && alias != "" {
		inv.Aliases = append([]string{alias}, inv.Aliases...)
	}
	return inv, err
}

// meant is another tool than d, with its input, that an input of d means; nil for none.
func (r *Registry) meant(d *Definition, raw json.RawMessage) (*Definition, json.RawMessage) {
	if d.instead == nil || !bytes.Contains(raw, []byte(d.insteadOf)) {
		return nil, nil
	}
	v, _ := readStrict(raw, maxDepth)
	given, _ := v.(map[string]any)
	name, input := d.instead(given)
	other := r.byName[name]
	if other == nil {
		return nil, nil
	}
	text, err := json.Marshal(input)
	if err != nil {
		return nil, nil
	}
	return other, text
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
	d, _, err := r.find(name, raw)
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

// find looks for a tool that is not hidden. It corrects case, takes names of other systems, and
// says what there is instead.
func (r *Registry) find(name string, raw json.RawMessage) (d *Definition, alias string, err error) {
	if d, ok := r.byName[name]; ok && !d.Hidden {
		return d, "", nil
	}
	shown := r.List()
	for _, d := range shown {
		if plain.Folded(d.Name) == plain.Folded(bare(name)) {
			return d, "", nil
		}
	}
	if d, alias = known(shown, bare(name), raw); d != nil {
		return d, alias, nil
	}
	return nil, "", &client.Error{
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
			Path: strictjson.Pointer(serr.Path...), Message: fmt.Sprintf("%s (at byte %d)%s", serr.Msg, serr.Offset, wayOf(serr)),
		}})
	}
	var n normaliser
	v = foreignNames{&n, &d.also}.whole(v)
	v = n.value(v, d.shape, maxDepth)
	fields, _ := v.(map[string]any) // the schema wants an object
	d.renamed(fields, asMeant)
	if err := d.compiled.Validate(v); err != nil {
		n.violations = append(n.violations, violationsOf(err, d.input.PropertyOrder)...)
	} else if d.check != nil {
		n.violations = append(n.violations, d.check(fields)...)
	}
	if len(n.violations) > 0 {
		return nil, invalidInput(d.Name, d.worded(n.violations))
	}
	input, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("normalise input of %s: %w", d.Name, err)
	}
	return &Invocation{Tool: d, JSON: input, Input: d.decode(fields), Lenient: n.lenient, Aliases: n.aliases}, nil
}

// worded gives violations the words of what can be done instead, where the definition has them.
func (d *Definition) worded(violations []client.Violation) []client.Violation {
	for i, v := range violations {
		field, top := strings.CutPrefix(v.Path, "/")
		if way := d.also.ways[field]; top && way != "" {
			violations[i].Message = way
		}
	}
	return violations
}

// wayOf is what to do about a spelling that JSON has and no text here may have; "" of others.
func wayOf(e *strictjson.Error) string {
	if strings.HasPrefix(e.Msg, "NUL") {
		return ": bash writes such bytes, as from base64 (base64 -d > FILE)"
	}
	return ""
}
