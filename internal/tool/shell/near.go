package shell

import (
	"bytes"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Canonical is the command in one spelling: without comments, with one style of
// white space and of quotes. Two commands of the same canonical form do the
// same. A text that cannot be parsed only loses white space at its ends.
func Canonical(command string) string {
	if _, ok := readable(command); !ok {
		return strings.TrimSpace(command)
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil {
		return strings.TrimSpace(command)
	}
	plainQuotes(command, file)
	var b bytes.Buffer
	if syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, file) != nil {
		return strings.TrimSpace(command)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plainQuotes writes the words that are fixed in one way.
func plainQuotes(src string, file *syntax.File) {
	c := &scanner{findings: findings{out: &Result{}}, src: src}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Redirect:
			return n.Op != syntax.Hdoc && n.Op != syntax.DashHdoc // quotes matter
		case *syntax.Word:
			w := c.word(n)
			switch {
			case w.bare || !w.fixed:
			case w.tilde:
			default:
				n.Parts = []syntax.WordPart{&syntax.Lit{Value: quoted(w.value)}}
			}
			return !w.fixed
		}
		return true
	})
}
