package main

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	eastasian "golang.org/x/text/width"
)

// helpWidth is how wide help is where no terminal says it.
const helpWidth = 80

// fold breaks text at spaces, so that no line is wider than that; 0 is any width. The
// lines that it makes begin with hang. A command to be typed stays whole: a terminal
// lets it be copied, and a line break in it would cut it in two.
func fold(text string, wide int, hang string) string {
	if wide == 0 {
		return text
	}
	var all []string
	for l := range strings.SplitSeq(text, "\n") {
		begins := len(l) - len(strings.TrimLeft(l, " ")) // what stands before the first word
		for width(l) > wide && !isCommand(l) {
			space := strings.LastIndexByte(l[:fitting(l, wide)+1], ' ')
			if space < begins {
				// One word, which cannot be broken: the line is as long as that.
				if space = strings.IndexByte(l[begins:], ' '); space < 0 {
					break
				}
				space += begins
			}
			all = append(all, strings.TrimRight(l[:space], " "))
			l, begins = hang+strings.TrimLeft(l[space:], " "), len(hang)
		}
		all = append(all, l)
	}
	return strings.Join(all, "\n")
}

// isCommand reports whether a line is one to be typed, and no sentence that begins with one.
func isCommand(line string) bool {
	rest, indented := strings.CutPrefix(strings.TrimPrefix(line, "toolctl:"), "  ")
	return indented && !strings.Contains(rest, "; ") && slices.ContainsFunc([]string{"toolctl ", "diff -u ", "git merge-file "}, func(command string) bool {
		return strings.HasPrefix(strings.TrimLeft(rest, " "), command)
	})
}

// reflow is fold for help: the lines of a paragraph are joined before; those that are
// indented, and what stands behind them, stay as they are.
func reflow(text string, wide int) string {
	if wide == 0 {
		return text
	}
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") && !strings.Contains(p, "\n ") {
			p = strings.ReplaceAll(p, "\n", " ")
		}
		paragraphs[i] = fold(p, wide, "")
	}
	return strings.Join(paragraphs, "\n\n")
}

// width counts the columns of s on a terminal.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// columns is how many columns a character takes: none for marks that combine
// with the one before, two for the wide ones of East Asian scripts and emoji. Of some a
// terminal may think otherwise; it then breaks a line early.
func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case r == 0x200c || r == 0x200d || unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	}
	switch eastasian.LookupRune(r).Kind() {
	case eastasian.EastAsianWide, eastasian.EastAsianFullwidth:
		return 2
	}
	return 1
}

// fitting is how many bytes of s fit into so many columns.
func fitting(s string, wide int) int {
	n := 0
	for i, r := range s {
		if n += columns(r); n > wide {
			return i
		}
	}
	return len(s)
}

// clipped is s in so many columns, with a mark where something is missing.
func clipped(s string, wide int) string {
	if width(s) <= wide {
		return s
	}
	return s[:fitting(s, wide-1)] + "…"
}

// tail is the end of s in at most so many columns.
func tail(s string, wide int) string {
	for width(s) > wide {
		_, n := utf8.DecodeRuneInString(s)
		s = s[n:]
	}
	return s
}
