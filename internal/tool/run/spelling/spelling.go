// Package spelling says which names another may have been meant to be.
package spelling

import (
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

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
