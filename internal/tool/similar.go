package tool

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/toold/toold/internal/plain"
)

// similarField is plain.Near for the keys of an input, whose names are made of words: one
// that has a word of theirs may be meant too ("path" for "file_path").
func similarField(name string, fields []string) []string {
	if near := plain.Near(name, fields); len(near) > 0 {
		return near
	}
	words := strings.FieldsFunc(snakeCase(name), isSeparator)
	var near []string
	for _, f := range fields {
		if slices.ContainsFunc(strings.FieldsFunc(f, isSeparator), func(w string) bool { return slices.Contains(words, w) }) {
			near = append(near, f)
		}
	}
	return near[:min(len(near), 3)]
}

func isSeparator(r rune) bool { return r == '_' || r == '-' }

// snakeCase is filePath as file_path.
func snakeCase(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// foreign are names that other systems have trained models on, folded, of tools that do
// what none does here. Those of tools that do are with our own (see Definition).
var foreign = []string{
	"task", "agent", "webfetch", "websearch", "googlewebsearch",
	"savememory", "memory", "exitplanmode", "askuserquestion", "question", "bashoutput", "killshell", "killbash",
	"taskoutput", "lsp", "computer", "browser",
}

// insteadOf is the hint for a name that is none of the tools'.
func insteadOf(name string, tools []*Definition) string {
	folded := plain.Folded(name)
	names := make([]string, len(tools))
	for i, d := range tools {
		names[i] = d.Name
	}
	all := "the tools are " + strings.Join(names, ", ")
	for _, d := range tools {
		if slices.Contains(d.alike, folded) {
			return fmt.Sprintf("use %s, which does that here; %s", d.Name, all)
		}
	}
	if slices.Contains(foreign, folded) {
		return "no tool does that here; " + all
	}
	if near := plain.Near(name, names); len(near) > 0 {
		return fmt.Sprintf("did you mean %s? %s", strings.Join(near, " or "), "T"+all[1:])
	}
	return all
}
