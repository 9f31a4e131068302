package run

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/toold/toold/internal/plain"
)

// maxForms bounds of how many names noteForms says how to write them, and maxSame of how many that look the same.
const maxForms, maxSame = 5, 4

// noteForms says at the end of an answer which of its names look the same and differ in their
// Unicode form, and how to write each.
func noteForms(b *strings.Builder, names []string) {
	seen := make(map[string][]string) // by what they look like
	var several []string
	for _, name := range names {
		if isASCII(name) {
			continue
		}
		shape := norm.NFC.String(name)
		if slices.Contains(seen[shape], name) {
			continue
		}
		if seen[shape] = append(seen[shape], name); len(seen[shape]) == 2 {
			several = append(several, shape)
		}
	}
	for _, shape := range several[:min(len(several), maxForms)] {
		same := seen[shape]
		more := len(same) - maxSame
		same = same[:min(len(same), maxSame)]
		for i, name := range same {
			same[i] = fmt.Sprintf("%s (%s)", strconv.QuoteToASCII(name), formOf(name))
		}
		if more > 0 {
			same = append(same, fmt.Sprintf("and %d more", more))
		}
		fmt.Fprintf(b, "\n(These look the same and are several, since their Unicode forms differ: %s. Give a path as it is written here.)\n", strings.Join(same, ", "))
	}
	if more := len(several) - maxForms; more > 0 {
		fmt.Fprintf(b, "\n(There are several of %s above that look the same: ask for fewer at once to see how each is written.)\n", plain.Count(more, "more name", "more names"))
	}
}

// formOf is the Unicode form of a name that is not ASCII.
func formOf(name string) string {
	switch {
	case norm.NFC.IsNormalString(name):
		return "NFC"
	case norm.NFD.IsNormalString(name):
		return "NFD"
	}
	return "mixed"
}

// otherUnicode are the other Unicode forms of a text, none for most.
func otherUnicode(text string) (all []string) {
	for _, form := range []norm.Form{norm.NFC, norm.NFD} {
		if other := form.String(text); !isASCII(text) && other != text {
			all = append(all, other)
		}
	}
	return all
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}
