// Package globpath finds the directory that a glob names. The daemon judges that
// directory, and the tools in the sandbox search it.
package globpath

import "strings"

// Split gives the directory to search and the rest of the pattern, which begins with
// a slash where it has to stand right below the directory: a pattern that is absolute
// where no path is given, or that goes up by "..", names a directory of its own. Of
// other patterns both stay as they are.
func Split(path, pattern string) (dir, rest string) {
	up := pattern == ".." || strings.HasPrefix(pattern, "../") || strings.Contains(pattern, "/../")
	absolute := strings.HasPrefix(pattern, "/")
	if !absolute && !up || absolute && path != "" {
		return path, pattern
	}
	fixed := Fixed(pattern)
	if fixed == "" {
		return path, pattern
	}
	rest = pattern[len(fixed):]
	if path == "" {
		return fixed, rest
	}
	return strings.TrimSuffix(path, "/") + "/" + fixed, rest
}

// Fixed is the beginning of a pattern up to the last slash before its first wildcard,
// without that slash.
func Fixed(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[{\!`); i >= 0 {
		pattern = pattern[:i]
	}
	return pattern[:max(strings.LastIndexByte(pattern, '/'), 0)]
}
