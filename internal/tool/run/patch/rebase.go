package patch

import (
	"reflect"
	"strings"
)

// headers are what stands before paths in patches of either form.
var headers = []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ", "--- ", "+++ ", "rename from ", "rename to "}

// Rebase replaces the directory from by to in the paths of a patch, and reports whether there
// were any. Where that would change anything but paths, as what looks like a header may be a line
// of a file, it does nothing.
func Rebase(text, from, to string) (string, bool) {
	before, err := Parse(text)
	if err != nil {
		return text, false
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		for _, h := range headers {
			mark := line
			if strings.HasPrefix(h, "***") {
				mark = strings.TrimLeft(line, " \t")
			}
			path, ok := strings.CutPrefix(mark, h)
			rest, below := strings.CutPrefix(path, from)
			if ok && below && (rest == "" || strings.ContainsRune("/\t\r", rune(rest[0]))) {
				lines[i] = line[:len(line)-len(mark)] + h + to + rest
			}
		}
	}
	rebased := strings.Join(lines, "\n")
	after, err := Parse(rebased)
	if err != nil || rebased == text {
		return text, false
	}
	for i := range before {
		for _, p := range []*string{&before[i].Path, &before[i].To} {
			if rest, below := strings.CutPrefix(*p, from); below && (rest == "" || rest[0] == '/') {
				*p = to + rest
			}
		}
	}
	if !reflect.DeepEqual(before, after) {
		return text, false
	}
	return rebased, true
}
