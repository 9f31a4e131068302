package replace

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// Passage is a part of the text that resembles the old text.
type Passage struct {
	Line       int     // of its first line, from 1
	Similarity float64 // 0 to 1
	Text       string  // whole lines, cut after maxPassage lines
	Old        string  // the part of the old text that it was compared with
}

const (
	passages        = 3   // how many are reported
	candidates      = 12  // how many are compared for each key line
	maxPassage      = 40  // lines
	leastSimilarity = 0.4 // what is less similar helps nobody
	// nearestWork is what may be spent on a report; it is owed to the caller
	// even when the strategies have used up their share.
	nearestWork = 1 << 27
)

// notFound makes the report about a text that was not found.
func (f *finder) notFound() error {
	return &NotFoundError{Nearest: f.nearest(), Skipped: f.skipped}
}

// candidate is a line of the text that may be a line of old.
type candidate struct {
	line  int
	bound float64 // an estimate from above of how similar it is
}

// nearest looks for blocks of lines that resemble old. Some lines of old serve
// as keys: for each, the lines of the text that are made of much the same
// characters are found in one pass, and only the blocks around those are
// compared.
func (f *finder) nearest() []Passage {
	x, err := f.index()
	if err != nil || x.len() == 0 {
		return nil
	}
	f.work = nearestWork
	old := make([][]byte, 0, min(len(f.oldLines), maxPassage))
	for _, line := range f.oldLines[:min(len(f.oldLines), maxPassage)] {
		old = append(old, []byte(strings.TrimSpace(line)))
	}
	found := make(map[int]float64) // first line to similarity
	for _, key := range keyLines(old) {
		for _, c := range x.like(old[key]) {
			first := c.line - key
			if _, done := found[first]; done || first < 0 {
				continue
			}
			similarity, err := f.linesSimilarity(x, old, first)
			if err != nil { // there is no work left to spend
				break
			}
			found[first] = similarity
		}
	}
	return f.passages(x, found, len(old))
}

// keyLines picks the longest line, and the first and the last that are not blank.
func keyLines(old [][]byte) []int {
	longest, first, last := -1, -1, -1
	for i, line := range old {
		if len(line) == 0 {
			continue
		}
		if first < 0 {
			first = i
		}
		last = i
		if longest < 0 || len(line) > len(old[longest]) {
			longest = i
		}
	}
	if longest < 0 {
		return nil
	}
	keys := []int{longest, first, last}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// like gives the lines that may resemble key, the most promising first.
func (x *lineIndex) like(key []byte) []candidate {
	key = key[:min(len(key), maxCompared)]
	want := histogramOf(key)
	half := key[:(len(key)+1)/2]
	var best []candidate
	for i := range x.len() {
		line := x.trimmed(i)
		if len(line) == 0 {
			continue
		}
		bound := 0.0
		if len(line) <= 3*len(key) && len(key) <= 3*len(line) {
			bound = want.bound(len(key), line)
		} else if len(key) >= 8 && len(line) <= 1<<16 && bytes.Contains(line, half) {
			bound = leastSimilarity
		}
		if bound < leastSimilarity || len(best) == candidates && bound <= best[candidates-1].bound {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, bound, func(c candidate, b float64) int {
			if c.bound >= b {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, candidate{line: i, bound: bound})
		best = best[:min(len(best), candidates)]
	}
	return best
}

// histogram counts the bytes of a line; not for use by two goroutines.
type histogram [256]int32

func histogramOf(line []byte) *histogram {
	var h histogram
	for _, c := range line {
		h[c]++
	}
	return &h
}

// bound is the share of the longer line that both have, in any order.
func (h *histogram) bound(size int, line []byte) float64 {
	same := 0
	for _, c := range line {
		h[c]--
		if h[c] >= 0 {
			same++
		}
	}
	for _, c := range line {
		h[c]++
	}
	return float64(same) / float64(max(size, len(line)))
}

// passages makes the report: the best blocks that do not overlap.
func (f *finder) passages(x *lineIndex, found map[int]float64, size int) []Passage {
	firsts := make([]int, 0, len(found))
	for first, similarity := range found {
		if similarity >= leastSimilarity {
			firsts = append(firsts, first)
		}
	}
	slices.SortFunc(firsts, func(a, b int) int {
		return cmp.Or(cmp.Compare(found[b], found[a]), a-b)
	})
	var report []Passage
	var used []int
	for _, first := range firsts {
		if len(report) == passages {
			break
		}
		if slices.ContainsFunc(used, func(u int) bool { return first < u+size && u < first+size }) {
			continue
		}
		used = append(used, first)
		last := min(first+size, x.len()) - 1
		report = append(report, Passage{
			Line: first + 1, Similarity: found[first],
			Text: cutLong(string(x.text[x.starts[first] : x.starts[last+1]-1])),
			Old:  cutLong(strings.Join(f.oldLines[:min(len(f.oldLines), maxPassage)], "\n")),
		})
	}
	return report
}

// cutLong cuts every line to what a person would read.
func cutLong(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = plain.Cut(line, 300)
	}
	return strings.Join(lines, "\n")
}
