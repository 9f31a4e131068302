package tomltext

import (
	"bytes"
	"fmt"
)

func tooDeep(depth int) string {
	return fmt.Sprintf("is nested more than %d deep: remove what is deeper", depth)
}

// excess is the first place of a text that is beyond what may be read, nil where
// there is none. It looks at the signs of TOML outside of strings and comments,
// and it is right up to the first error of the text, where readers stop too.
func excess(text []byte, depth int) *Problem {
	open, dots, parts, line := 0, 0, 0, 1
	for i := 0; i < len(text); i++ {
		switch b := text[i]; b {
		case '\n':
			line++
			dots = 0 // a key ends with its line
		case '[', '{', '=', ',':
			dots = 0
			parts++
			if b == '[' || b == '{' {
				open++
			}
		case ']', '}':
			dots = 0
			open = max(open-1, 0)
		case '.':
			dots++
			parts++
		case '#':
			i += lineEnd(text[i:]) - 1
		case '"', '\'':
			n := quoted(text[i:])
			line += bytes.Count(text[i:i+n], []byte{'\n'})
			i += n - 1
		}
		switch {
		case open > depth || dots >= depth:
			return &Problem{Line: line, Message: tooDeep(depth)}
		case parts > maxParts:
			return &Problem{Line: line, Message: fmt.Sprintf("there are more than %d keys and elements up to here: make the text shorter", maxParts)}
		}
	}
	return nil
}

// lineEnd is how many bytes come before the end of the line.
func lineEnd(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i
	}
	return len(text)
}

// quoted is how long the string is with which text begins.
func quoted(text []byte) int {
	quote := text[:1]
	whole := bytes.Repeat(quote, 3)
	lines := bytes.HasPrefix(text, whole)
	if !lines {
		whole = quote
	}
	for i := len(whole); i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote[0] == '"':
			i++
		case bytes.HasPrefix(text[i:], whole):
			i += len(whole)
			for n := 0; lines && n < 2 && i < len(text) && text[i] == quote[0]; n++ {
				i++ // it may end in quotes of its own
			}
			return i
		case text[i] == '\n' && !lines:
			return i
		}
	}
	return len(text)
}
