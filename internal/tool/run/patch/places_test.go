package patch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// simple is a hunk of a test: lines that it replaces, below an anchor or none.
type simple struct{ anchor, old string }

// repeats reports whether the lines of h begin with its anchor's last.
func (h simple) repeats() bool {
	return h.anchor != "" && strings.HasPrefix(h.old, h.anchor[len(h.anchor)-1:])
}

// ways are all ways to place hunks in a text of one letter a line, in their order.
func ways(text string, hunks []simple, from int) (all [][]int) {
	if len(hunks) == 0 {
		return [][]int{nil}
	}
	h := hunks[0]
	try := func(at int) {
		for _, rest := range ways(text, hunks[1:], at+len(h.old)) {
			if way := append([]int{at}, rest...); !slices.ContainsFunc(all, func(w []int) bool { return slices.Equal(w, way) }) {
				all = append(all, way)
			}
		}
	}
	for i := from; i < len(text); i++ {
		switch {
		case h.anchor == "" && strings.HasPrefix(text[i:], h.old):
			try(i)
		case h.anchor != "":
			at := i
			for _, c := range h.anchor {
				found := strings.IndexRune(text[at:], c)
				if found < 0 || at == i && found > 0 { // each begins at its own first anchor
					at = -1
					break
				}
				at += found + 1
			}
			if at < 0 {
				continue
			}
			if found := strings.Index(text[at:], h.old); found >= 0 {
				try(at + found)
			}
		}
	}
	return all
}

// TestPlaces: hunks go to the one way to place all of them in their order. Where there are more,
// the patch is a conflict that names two places of one hunk, and where there is none, it fails.
func TestPlaces(t *testing.T) {
	t.Parallel()
	seed, seen := uint64(4), map[int]int{}
	r := rand.New(rand.NewPCG(seed, 0))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc"[r.IntN(3)]
		}
		return string(b)
	}
	rows := func(prefix, text string) (all string) {
		for _, c := range text {
			all += prefix + string(c) + "\n"
		}
		return all
	}
	for range testrig.Rounds(20_000) {
		text, patch := word(1+r.IntN(9)), "*** Begin Patch\n*** Update File: f\n"
		var hunks []simple
		for i := range 1 + r.IntN(3) {
			h := simple{old: word(1 + r.IntN(2))}
			if r.IntN(3) == 0 {
				h.anchor = word(1 + r.IntN(2))
			}
			if h.anchor != "" && r.IntN(3) == 0 {
				h.old = ""
			}
			hunks = append(hunks, h)
			if h.anchor == "" {
				patch += "@@\n"
			}
			patch += rows("@@ ", h.anchor) + rows("-", h.old) + fmt.Sprintf("+%d\n", i)
		}
		all := ways(text, hunks, 0)
		got, err := apply(t.Context(), patch+"*** End Patch", map[string]string{"f": rows("", text)})
		what := fmt.Sprintf("seed %d: %v in %q, ways %v: got %q, %v", seed, hunks, text, all, got["f"], err)
		seen[min(len(all), 2)]++
		switch miss, _ := errors.AsType[*MismatchError](err); {
		case len(all) == 0 && slices.ContainsFunc(hunks, simple.repeats):
			// What is behind "@@" may be the first of the lines.
		case len(all) == 0:
			if miss == nil || miss.Places != [2]int{} {
				t.Fatal(what)
			}
		case len(all) > 1:
			has := func(line int) bool {
				return slices.ContainsFunc(all, func(w []int) bool { return w[miss.Hunk-1] == line-1 })
			}
			if miss == nil || miss.Places[0] == miss.Places[1] || !has(miss.Places[0]) || !has(miss.Places[1]) {
				t.Fatal(what)
			}
		default:
			want, done := "", 0
			for i, at := range all[0] {
				want += rows("", text[done:at]) + fmt.Sprintf("%d\n", i)
				done = at + len(hunks[i].old)
			}
			if want += rows("", text[done:]); err != nil || got["f"] != want {
				t.Fatalf("%s, want %q", what, want)
			}
		}
	}
	if len(seen) != 3 || seen[1] < testrig.Rounds(20_000)/50 {
		t.Errorf("that proves nothing: %v", seen)
	}
}
