package policy

// Match reports whether a text matches a pattern as the rules have them.
func Match(pattern, text string) bool { return compilePattern(pattern).match(text) }

// MatchPath is Match for a resolved path.
func MatchPath(pattern, path string) bool { return compilePathPattern(pattern).match(path) }
