package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// shellQuote writes argv as a command line that a POSIX shell splits into exactly
// these words again, so that `run -- printf '%s\n' "a  b"` runs what it says.
// A word that is not UTF-8 cannot travel as JSON and is written with bash's
// $'…'. Words of the shell's grammar are quoted, so that they are taken as names
// of programs.
func shellQuote(argv []string) string {
	var b strings.Builder
	for i, word := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		switch {
		case !utf8.ValidString(word):
			quoteBytes(&b, word)
		case isBare(word) && (i > 0 || !shellKeywords[word]):
			b.WriteString(word)
		default:
			b.WriteString("'" + strings.ReplaceAll(word, "'", `'\''`) + "'")
		}
	}
	return b.String()
}

var shellKeywords = map[string]bool{
	"if": true, "then": true, "else": true, "elif": true, "fi": true, "for": true,
	"while": true, "until": true, "do": true, "done": true, "case": true, "esac": true,
	"in": true, "select": true, "function": true, "time": true, "coproc": true,
}

// isBare reports whether no shell gives any character of word a meaning. "=" is
// not among them: a first word with it would be an assignment.
func isBare(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_./:@%+,-", r)
	})
}

func quoteBytes(b *strings.Builder, word string) {
	b.WriteString("$'")
	for i := range len(word) {
		c := word[i]
		if c < 0x20 || c >= 0x7f || c == '\'' || c == '\\' {
			fmt.Fprintf(b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
}
