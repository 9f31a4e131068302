package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/toold/toold/client"
)

// changeName is the path of a change as git writes paths: quoted where it has characters
// that act, bytes that are no UTF-8, or quotes. So it is safe to show, and no two paths
// have the same name.
func changeName(c *client.Change) string {
	if len(c.Bytes) > 0 {
		return gitQuoted(string(c.Bytes))
	}
	return gitQuoted(c.Path)
}

// gitEscapes are the short escapes of git's quoted paths.
var gitEscapes = map[byte]string{
	'\a': `\a`, '\b': `\b`, '\t': `\t`, '\n': `\n`, '\v': `\v`, '\f': `\f`, '\r': `\r`, '"': `\"`, '\\': `\\`,
}

func gitQuoted(path string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		bad := r == utf8.RuneError && n == 1
		if !bad && !acts(r) && r != '"' && r != '\\' {
			b.WriteRune(r)
		} else {
			quoted = true
			for j := range n {
				b.WriteString(gitEscape(path[i+j]))
			}
		}
		i += n
	}
	if !quoted {
		return path
	}
	return `"` + b.String() + `"`
}

func gitEscape(c byte) string {
	if short, ok := gitEscapes[c]; ok {
		return short
	}
	return fmt.Sprintf(`\%03o`, c)
}
