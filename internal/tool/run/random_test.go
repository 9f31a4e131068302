package run

import (
	"math/rand/v2"
	"strings"
)

// chooser picks parts of random tests.
type chooser struct{ *rand.Rand }

func newChooser(seed uint64) chooser { return chooser{rand.New(rand.NewPCG(seed, 1))} }

func (c chooser) of(parts ...string) string { return parts[c.IntN(len(parts))] }

// some joins up to n parts.
func (c chooser) some(n int, parts ...string) string {
	var b strings.Builder
	for range c.IntN(n) + 1 {
		b.WriteString(c.of(parts...))
	}
	return b.String()
}
