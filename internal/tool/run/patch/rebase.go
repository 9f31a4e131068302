package patch

import (
	"reflect"
	"strings"
)

// headers are what stands before paths in patches of either form.
var headers = []string{addMark, updateMark, deleteMark, moveMark, "--- ", "+++ ", "rename from ", "rename to "}

// Rename replaces paths of a patch by what rename makes of them, and reports whether that changed
// any. Where it would change anything but paths, as what looks like a header may be a line of a
// file, it does nothing.
func Rename(text string, rename func(path string) string) (string, bool) {
	lines, changed := strings.Split(text, "\n"), false
	for i, line := range lines {
		if path := pathIn(line); path != "" {
			if to := rename(path); to != path {
				at := strings.LastIndex(line, path)
				lines[i], changed = line[:at]+to+line[at+len(path):], true
			}
		}
	}
	if !changed {
		return text, false
	}
	before, err := Parse(text)
	if err != nil {
		return text, false
	}
	renamed := strings.Join(lines, "\n")
	after, err := Parse(renamed)
	if err != nil {
		return text, false
	}
	for i := range before {
		before[i].Path = rename(before[i].Path)
		if before[i].To != "" {
			before[i].To = rename(before[i].To)
		}
	}
	if !reflect.DeepEqual(before, after) {
		return text, false
	}
	return renamed, true
}

// pathIn is the path in a line that looks like a header; "" for none.
func pathIn(line string) string {
	for _, h := range headers {
		if strings.HasPrefix(h, "***") {
			if path, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), h); ok {
				return strings.TrimSpace(path)
			}
			continue
		}
		if path, ok := strings.CutPrefix(line, h); ok {
			path, _, _ = strings.Cut(path, "\t")
			return strings.TrimSpace(path)
		}
	}
	return ""
}
