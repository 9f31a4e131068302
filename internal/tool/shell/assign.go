package shell

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// What rules say of a variable that a command sets holds for each spelling of it, and wherever it
// stands among others: in front of the command, behind env, in front of what runs it.

// declares are the builtins that set variables by their arguments.
var declares = setOf("declare", "typeset", "export", "readonly", "local")

// alsoSet adds to readings of a command those of the variables that are set for it: each in front of text, which is its
// plain form, and all.
func alsoSet(sets []string, text string, also []string) string {
	for _, v := range sets {
		also = append(also, v+" "+text)
	}
	if len(sets) > 1 {
		also = append(also, strings.Join(sets, " ")+" "+text)
	}
	return strings.Join(also, "\x00")
}

// judged are those of the variables that are set for a command of which there are readings. Where there are
// more than can be judged, the text is opaque.
func judged(f *findings, sets []string) []string {
	bytes := 0
	for i, v := range sets {
		if bytes += len(v); i >= maxReadings || bytes > maxExact {
			f.opaque("it sets more variables for a command than can be judged")
			return sets[:i:i]
		}
	}
	return sets
}

// spelled is an assignment as one would write it, with a value that needs quotes as it is without any; what
// is only known at run time stays as it is written.
func spelled(c *scanner, a *syntax.Assign) string {
	text := c.slice(a.Pos().Offset(), a.End().Offset())
	switch {
	case a.Naked && a.Name == nil && a.Value != nil:
		if value, known := unquoted(a.Value.Parts); known {
			return value
		}
	case a.Naked || a.Name == nil || a.Index != nil || a.Array != nil:
	case a.Value == nil:
		return a.Name.Value + "="
	default:
		if value, known := unquoted(a.Value.Parts); known {
			return a.Name.Value + "=" + value
		}
	}
	return text
}

// unquoted is what the shell makes of a value that is assigned, in which no wildcard and no list has a meaning.
// known: it has no expansion.
func unquoted(parts []syntax.WordPart) (value string, known bool) {
	if len(parts) == 1 {
		if lit, is := parts[0].(*syntax.Lit); is && !strings.Contains(lit.Value, `\`) {
			return lit.Value, true
		}
	}
	var b wordBuilder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.SglQuoted:
			if !p.Dollar {
				b.text.WriteString(p.Value)
				continue
			}
			text, ok := ansi(p.Value)
			if !ok {
				return "", false
			}
			b.text.WriteString(text)
		case *syntax.DblQuoted: // $"…" has the same text where there is no other language
			for _, inner := range p.Parts {
				if b.part(inner, true); b.dynamic {
					return "", false
				}
			}
		default:
			if b.part(part, false); b.dynamic {
				return "", false
			}
		}
	}
	return b.text.String(), true
}

// ansi is the text of $'…', as bash reads it. It is not known where that depends on the language.
func ansi(s string) (text string, known bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte("abeEfnrtv", s[i]); at >= 0 {
			b.WriteByte("\a\b\x1b\x1b\f\n\r\t\v"[at])
			continue
		}
		base, most, from := 16, 2, i+1
		switch s[i] {
		case '\\', '\'', '"', '?':
			b.WriteByte(s[i])
			continue
		case '0', '1', '2', '3', '4', '5', '6', '7':
			base, most, from = 8, 3, i
		case 'x':
		case 'u':
			most = 4
		case 'U':
			most = 8
		case 'c':
			return "", false
		default:
			b.WriteString(s[i-1 : i+1])
			continue
		}
		to := from
		for to < len(s) && to < from+most && isDigit(s[to], base) {
			to++
		}
		n, err := strconv.ParseUint(s[from:to], base, 32)
		switch {
		case err != nil: // there is none
			b.WriteString(s[i-1 : i+1])
			continue
		case n == 0:
			return b.String(), true // the rest is left out
		case n > 127 && most > 3:
			return "", false
		}
		b.WriteByte(byte(n))
		i = to - 1
	}
	return b.String(), true
}

// isDigit reports whether b is a digit to the base 8 or 16.
func isDigit(b byte, base int) bool {
	if base == 8 {
		return '0' <= b && b <= '7'
	}
	return slices.Contains([]byte("0123456789abcdefABCDEF"), b)
}
