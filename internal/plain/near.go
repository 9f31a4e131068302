package plain

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// longestName bounds what Near compares: nothing of ours is longer.
const longestName = 64

// Near are at most three of names that name may have been meant to be, the nearest first:
// those that are Alike but for capitals and separators. names may be hostile, too.
func Near(name string, names []string) []string {
	if len(name) > longestName {
		return nil
	}
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	folded := Folded(name)
	for _, n := range names {
		if len(n) > longestName {
			continue
		}
		if d, ok := Alike(folded, Folded(n)); ok {
			near = append(near, candidate{n, d})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, c := range near[:min(len(near), 3)] {
		out = append(out, c.name)
	}
	return out
}

// Folded takes away what spellings of one name differ in.
func Folded(s string) string {
	if !strings.ContainsAny(s, "_-") {
		return strings.ToLower(s)
	}
	return separators.Replace(strings.ToLower(s))
}

var separators = strings.NewReplacer("_", "", "-", "")

// Alike reports how many characters name and other differ in, two in the wrong order
// being one; ok is false where that is more than a third of name's.
func Alike(name, other string) (distance int, ok bool) {
	most := utf8.RuneCountInString(name) / 3
	if n := utf8.RuneCountInString(other) - utf8.RuneCountInString(name); max(n, -n) > most {
		return 0, false
	}
	distance = levenshtein.ComputeDistance(name, other)
	if distance == 2 && swapped(name, other) {
		distance = 1
	}
	return distance, distance <= most
}

// swapped reports whether a is b with two neighbours in the wrong order.
func swapped(a, b string) bool {
	x, y := []rune(a), []rune(b)
	if len(x) != len(y) {
		return false
	}
	for i := range len(x) - 1 {
		if x[i] != y[i] {
			return x[i] == y[i+1] && x[i+1] == y[i] && string(x[i+2:]) == string(y[i+2:])
		}
	}
	return false
}
