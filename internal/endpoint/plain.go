package endpoint

import (
	"strings"
)

// Plain is the request as a lenient server reads it: escapes are undone, a backslash is a slash,
// slashes that follow each other are one, parameters of segments are cut, and an empty query is
// none. It is to be judged, and never sent.
func (r Request) Plain() Request {
	path, query, asked := strings.Cut(r.Path, "?")
	r.Path = plainPath(unescape(path, nil))
	if asked && query != "" {
		r.Path += "?" + unescape(strings.ReplaceAll(query, "+", " "), nil)
	}
	return r
}

// plainGlob reads the path of a pattern so. An escaped wildcard is not one: it is any character
// in a pattern that closes, and nothing in one that opens.
func plainGlob(glob string, opens bool) string {
	wild := func(escape string) string {
		if opens {
			return escape
		}
		return "?"
	}
	path, rest, more := strings.Cut(glob, "?")
	path = plainPath(unescape(path, wild))
	if more {
		path += "?" + unescape(strings.ReplaceAll(rest, "+", " "), wild)
	}
	return path
}

// unescape undoes escapes, once. wild, where it is not nil, says what stands for that of a
// wildcard.
func unescape(text string, wild func(escape string) string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+2 >= len(text) || !isHex(text[i+1]) || !isHex(text[i+2]) {
			b.WriteByte(text[i])
			continue
		}
		c := unhex(text[i+1])<<4 | unhex(text[i+2])
		if wild != nil && (c == '*' || c == '?') {
			b.WriteString(wild(text[i : i+3]))
		} else {
			b.WriteByte(c)
		}
		i += 2
	}
	return b.String()
}

func unhex(c byte) byte {
	if c >= '0' && c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func plainPath(path string) string {
	parts := strings.Split(strings.ReplaceAll(path, `\`, "/"), "/")
	kept := parts[:0]
	for i, part := range parts {
		if part, _, _ = strings.Cut(part, ";"); part != "" || i == len(parts)-1 {
			kept = append(kept, part)
		}
	}
	return "/" + strings.Join(kept, "/")
}
