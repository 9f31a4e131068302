package tool

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/toold/toold/internal/plain"
)

//go:embed brief.md
var briefText string

var briefTemplate = template.Must(parseDescription("brief", briefText))

// Brief is what a system prompt may say of the place where tools work.
func (f Facts) Brief() (string, error) {
	var b strings.Builder
	if err := briefTemplate.Execute(&b, f); err != nil {
		return "", fmt.Errorf("describe a session: %w", err)
	}
	return b.String(), nil
}

// ToolWords lists the tools that may be named.
func (f Facts) ToolWords() string {
	all := make([]string, len(f.Tools))
	for i, name := range f.Tools {
		all[i] = "`" + name + "`"
	}
	return plain.Enumerate(all)
}
