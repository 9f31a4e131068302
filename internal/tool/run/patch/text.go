package patch

import (
	"strings"
	"unicode"

	"github.com/toold/toold/internal/tool/run/replace"
)

// bom is the byte order mark of UTF-8.
const bom = "\uFEFF"

// row is one line of a file.
type row struct {
	text, eol string
	open      bool // the ending is still to be chosen
}

// rowsOf splits a text into its lines. The last has no ending where the text has none.
func rowsOf(text string) []row {
	var rows []row
	for line := range strings.Lines(text) {
		t, eol := cutEOL(line)
		rows = append(rows, row{text: t, eol: eol})
	}
	return rows
}

func cutEOL(line string) (text, eol string) {
	if t, ok := strings.CutSuffix(line, "\r\n"); ok {
		return t, "\r\n"
	}
	if t, ok := strings.CutSuffix(line, "\n"); ok {
		return t, "\n"
	}
	return line, ""
}

// Level is how strictly lines were compared.
type Level int

// The levels, in the order in which they are tried.
const (
	Exact Level = iota
	RightTrimmed
	Trimmed
	Unicode
	levels
)

// String is the level as results name it.
func (l Level) String() string {
	return [...]string{"exact", "right_trimmed", "trimmed", "unicode"}[l]
}

// of is a line as a level sees it.
func (l Level) of(text string) string {
	if l == Exact {
		return text
	}
	text = strings.TrimRightFunc(strings.TrimPrefix(text, bom), unicode.IsSpace)
	if l >= Trimmed {
		text = strings.TrimSpace(text)
	}
	if l == Unicode {
		text = strings.TrimSpace(strings.ReplaceAll(strings.Map(replace.Typed, text), "…", "..."))
	}
	return text
}
