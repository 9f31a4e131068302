package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/strictjson"
)

// aliases are what models call a tool and its input that were trained on other systems. They
// are taken as if they had used ours, and counted.
type aliases struct {
	// tools are names of the tool, folded. One that is several tools elsewhere says by which
	// value of which field it is this one: "strreplaceeditor command=view".
	tools []string
	// fields are other names of fields, "" for one that has no meaning here and is left out:
	// "glob" → "include". Those of the items of a list are "todos/step".
	fields map[string]string
	// values are other values of a field.
	values map[string]map[string]string
	// ways are fields of others that cannot be had here, and what does what they ask for.
	ways map[string]string
	// text is the field that an input means which is a text and no object; "" for none.
	text string
	// rewrite changes what names cannot say. It gives those of rewrites that it has replaced.
	rewrite  func(values) []string
	rewrites []string

	camel [][2]string // see camelCased, which makes it once
}

// CamelCase is what counts as the alias of every name that was spelled so.
const CamelCase = "camelCase"

// textInput is what counts as the alias of an input that is a text.
const textInput = "text"

// Aliases are all that calls of d may be counted with, sorted: other names of the tool, fields
// and values.
func (d *Definition) Aliases() []string {
	all := append([]string{CamelCase, NoEffect}, d.also.rewrites...)
	if d.also.text != "" {
		all = append(all, textInput)
	}
	for _, t := range d.also.tools {
		name, _, _ := strings.Cut(t, " ")
		all = append(all, name)
	}
	for path := range d.also.fields {
		all = append(all, path[strings.LastIndexByte(path, '/')+1:])
	}
	for _, v := range d.also.values {
		all = slices.AppendSeq(all, maps.Keys(v))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// prefixes are what providers put before the names of tools.
var prefixes = []string{"functions.", "default_api.", "default_api:", "mcp__toold__", "toold_"}

// bare is a name without such a prefix.
func bare(name string) string {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return rest
		}
	}
	return name
}

// known finds the tool that another system's name means, with what it is counted as.
func known(tools []*Definition, name string, raw json.RawMessage) (d *Definition, alias string) {
	folded := plain.Folded(name)
	var input values
	for _, d := range tools {
		for _, t := range d.also.tools {
			also, when, _ := strings.Cut(t, " ")
			if also != folded {
				continue
			}
			if when == "" {
				return d, also
			}
			if input == nil {
				v, _ := readStrict(raw, maxDepth)
				input, _ = v.(map[string]any)
				if input == nil {
					input = values{}
				}
			}
			if field, value, _ := strings.Cut(when, "="); input.text(field) == value {
				return d, also
			}
		}
	}
	return nil, ""
}

// asIs leaves out those of the fields that ask by true for what is done anyway.
func asIs(v values, names ...string) (used []string) {
	for _, name := range names {
		if yes, _ := v[name].(bool); yes {
			used = append(used, name)
			delete(v, name)
		}
	}
	return used
}

// camelCased are the fields of others in camelCase, each with its name, as far as it spells them in
// another way.
func (a *aliases) camelCased() (all [][2]string) {
	names := slices.Concat(a.rewrites, slices.Collect(maps.Keys(a.fields)), slices.Collect(maps.Keys(a.ways)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if camel := camelCase(name); camel != name && a.fields[camel] == "" && !strings.Contains(name, "/") {
			all = append(all, [2]string{camel, name})
		}
	}
	return all
}

// foreignNames is the normaliser's part that replaces them.
type foreignNames struct {
	*normaliser
	also *aliases
}

// whole replaces those of an input.
func (f foreignNames) whole(v any) any {
	if text, ok := v.(string); ok {
		v = f.convert(text, &shape{types: []string{"object"}}, maxDepth)
	}
	if text, ok := v.(string); ok && f.also.text != "" {
		f.use(textInput)
		return map[string]any{f.also.text: text}
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for _, c := range f.also.camel {
		f.rename(obj, nil, c[0], c[1], CamelCase)
	}
	if f.also.rewrite != nil {
		if used := f.also.rewrite(obj); len(used) > 0 {
			f.use(used...)
		}
	}
	paths := slices.Sorted(maps.Keys(f.also.fields))
	for _, path := range paths {
		if _, there := obj[path]; there && !strings.Contains(path, "/") {
			f.rename(obj, nil, path, f.also.fields[path], path)
		}
	}
	for _, path := range paths { // a list has its own name by now
		list, field, _ := strings.Cut(path, "/")
		items, _ := obj[list].([]any)
		for i, item := range items {
			if o, ok := item.(map[string]any); ok && field != "" {
				f.rename(o, []string{list, fmt.Sprint(i)}, field, f.also.fields[path], field)
			}
		}
	}
	for field, also := range f.also.values {
		if text, ok := obj[field].(string); ok && also[text] != "" {
			obj[field] = also[text]
			f.use(text)
		}
	}
	return obj
}

// rename gives a field the name that it has here, and counts that as an alias.
func (n *normaliser) rename(obj map[string]any, at []string, from, to, as string) {
	v, ok := obj[from]
	if !ok {
		return
	}
	n.use(as)
	delete(obj, from)
	if to == "" || v == nil {
		return
	}
	if _, both := obj[to]; both {
		what := "name"
		if as == CamelCase {
			what = "spelling"
		}
		n.violations = append(n.violations, client.Violation{
			Path:    strictjson.Pointer(append(slices.Clone(at), from)...),
			Message: fmt.Sprintf("is another %s of %q, which is there too: give one of them", what, to),
		})
		return
	}
	obj[to] = v
}

func (n *normaliser) use(names ...string) {
	for _, name := range names {
		if !slices.Contains(n.aliases, name) {
			n.aliases = append(n.aliases, name)
		}
	}
}
