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

// unescape undoes escapes until there are none, those of escapes too, as servers behind servers do.
// wild, where it is not nil, says what stands for that of a wildcard.
func unescape(text string, wild func(escape string) string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		out = append(out, text[i])
		for n := len(out) - 3; n >= 0 && out[n] == '%' && isHex(out[n+1]) && isHex(out[n+2]); n = len(out) - 3 {
			c := unhex(out[n+1])<<4 | unhex(out[n+2])
			if wild != nil && (c == '*' || c == '?') {
				out = append(out[:n], wild(string(out[n:]))...)
				break
			}
			out = append(out[:n], c)
		}
	}
	return string(out)
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
