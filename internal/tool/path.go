package tool

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// home is what "~" is in the shells of a session.
const home = "/home/tool"

// renamed replaces the paths of an input by what to makes of them, and reports whether that changed
// any.
func (d *Definition) renamed(v values, to func(path string) string) (changed bool) {
	for _, key := range d.paths {
		path := v.text(key)
		if new := to(path); new != path {
			v[key], changed = new, true
		}
	}
	if d.rename != nil && d.rename(v, to) {
		changed = true
	}
	return changed
}

// below is path with to for the directory from, where it is that or below it.
func below(path, from, to string) string {
	if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || rest[0] == '/') {
		return to + rest
	}
	return path
}

// asMeant takes a path as people and shells write it: "~" and $HOME are the home directory, and a
// URL of a file of this host is its path.
func asMeant(path string) string {
	if rest, ok := strings.CutPrefix(path, "file://"); ok {
		if rest = below(rest, "localhost", ""); !strings.HasPrefix(rest, "/") {
			return path
		}
		if plain, err := url.PathUnescape(rest); err == nil && utf8.ValidString(plain) && !strings.ContainsRune(plain, 0) {
			return plain
		}
		return rest
	}
	for _, name := range []string{"~", "$HOME", "${HOME}"} {
		if at := below(path, name, home); at != path {
			return at
		}
	}
	return path
}
