package shell

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// FromWords is the text of a command that is given as the words of an execve: the script where
// it is a shell with one, else the words, quoted where that is needed.
func FromWords(words []string) string {
	if len(words) == 3 && (words[1] == "-c" || words[1] == "-lc") {
		if name := path.Base(words[0]); name == "bash" || name == "sh" {
			return words[2]
		}
	}
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = quoted(w)
	}
	return strings.Join(all, " ")
}

// quoted is a word as bash is told it, with quotes where they are needed.
func quoted(w string) string {
	q, err := syntax.Quote(w, syntax.LangBash)
	if err != nil { // it is no text
		q = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return q
}
