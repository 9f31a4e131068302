package tool

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// similar are at most three of names that name may have been meant to be, the
// nearest first.
func similar(name string, names []string) []string {
	const longest = 64 // nothing of ours is longer; bounds the comparison
	if len(name) > longest {
		return nil
	}
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	plain := plainName(name)
	for _, n := range names {
		other := plainName(n)
		d := levenshtein.ComputeDistance(plain, other)
		within := len(plain) >= 3 && (strings.Contains(other, plain) || strings.Contains(plain, other))
		if d <= max(2, len(other)/3) && d < len(other) || within {
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

// plainName takes away what spellings of one name differ in.
func plainName(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}
