package replace

import (
	"bytes"
	"strings"
)

const (
	// minBlock is how many lines a block needs to be found by its ends.
	minBlock = 3
	// sizeTolerance is by how much of its size a block may be larger or smaller
	// than the old text.
	sizeTolerance = 0.25
	// blockSimilarity is the least mean similarity of a block's middle lines.
	blockSimilarity = 0.65
	// contextShare is the least share of equal lines between the ends of a block.
	contextShare = 0.5
	// wholeSimilarity is the least similarity of a whole block to the old text.
	wholeSimilarity = 0.7
)

// block is a run of lines that could be the old text.
type block struct {
	first, last int
	similarity  float64
}

// trimmedOld are the old lines without the white space around them, and those of the text;
// nil when they are too few for a block or have nothing in the first or last line to
// recognise it by.
func (f *finder) trimmedOld() (old [][]byte, x *lineIndex, err error) {
	if len(f.oldLines) < minBlock {
		return nil, nil, nil
	}
	old = make([][]byte, len(f.oldLines))
	for i, line := range f.oldLines {
		old[i] = []byte(strings.TrimSpace(line))
	}
	if len(old[0]) == 0 || len(old[len(old)-1]) == 0 {
		return nil, nil, nil
	}
	x, err = f.index()
	return old, x, err
}

// blockAnchor finds blocks with the same first and last line whose middle is
// similar, line by line.
func (f *finder) blockAnchor() ([]place, error) {
	old, x, err := f.trimmedOld()
	if old == nil || err != nil {
		return nil, err
	}
	tolerance := int(sizeTolerance * float64(len(old)))
	lasts := x.equalTo(old[len(old)-1])
	var blocks []block
	k := 0 // the first of lasts that may end a block that begins at first
	for _, first := range x.equalTo(old[0]) {
		shortest, longest := first+len(old)-1-tolerance, first+len(old)-1+tolerance
		for k < len(lasts) && lasts[k] < shortest {
			k++
		}
		best := block{similarity: -1}
		for i := k; i < len(lasts) && lasts[i] <= longest; i++ {
			n := max(min(len(old), lasts[i]-first+1)-2, 0)
			similarity, err := f.linesSimilarity(x, old[1:1+n], first+1)
			if err != nil {
				return nil, err
			}
			if similarity > best.similarity {
				best = block{first, lasts[i], similarity}
			}
		}
		if best.similarity >= blockSimilarity {
			blocks = append(blocks, best)
		}
	}
	return f.blockPlaces(blocks), nil
}

// equalTo gives the lines that are content but for the white space around them.
func (x *lineIndex) equalTo(content []byte) []int {
	var lines []int
	for i := range x.len() {
		if line := x.line(i); len(line) >= len(content) && bytes.Equal(bytes.TrimSpace(line), content) {
			lines = append(lines, i)
		}
	}
	return lines
}

// linesSimilarity is the mean similarity of lines with those of the text from first on,
// each with the one at the same distance; blank lines are equal to each other, and none
// at all to none.
func (f *finder) linesSimilarity(x *lineIndex, lines [][]byte, first int) (float64, error) {
	sum := 0.0
	for i, line := range lines {
		var there []byte
		if first+i < x.len() {
			there = x.trimmed(first + i)
		}
		similarity, err := f.similarity(line, there, maxCompared)
		if err != nil {
			return 0, err
		}
		sum += similarity
	}
	if len(lines) == 0 {
		return 1, nil
	}
	return sum / float64(len(lines)), nil
}

// contextAware finds blocks of the same size with the same ends and at least
// half of the lines between them; lines that are blank in both do not count.
func (f *finder) contextAware() ([]place, error) {
	old, x, err := f.trimmedOld()
	if old == nil || err != nil {
		return nil, err
	}
	var blocks []block
	for _, first := range x.equalTo(old[0]) {
		last := first + len(old) - 1
		if last >= x.len() || !bytes.Equal(x.trimmed(last), old[len(old)-1]) {
			continue
		}
		equal, counted := 0, 0
		for i := 1; i < len(old)-1; i++ {
			line := x.trimmed(first + i)
			if err := f.spendOn(line); err != nil {
				return nil, err
			}
			if len(line) == 0 && len(old[i]) == 0 {
				continue
			}
			counted++
			if bytes.Equal(line, old[i]) {
				equal++
			}
		}
		if share := float64(equal) / float64(max(counted, 1)); counted == 0 || share >= contextShare {
			blocks = append(blocks, block{first, last, share})
		}
	}
	return f.blockPlaces(blocks), nil
}

// similar finds the one block of as many lines whose text as a whole is similar.
func (f *finder) similar() ([]place, error) {
	x, err := f.index()
	if err != nil {
		return nil, err
	}
	old := []byte(strings.TrimSpace(strings.Join(f.oldLines, "\n")))
	var blocks []block
	for first := 0; first+len(f.oldLines) <= x.len(); first++ {
		last := first + len(f.oldLines) - 1
		text := bytes.TrimSpace(x.text[x.starts[first] : x.starts[last+1]-1])
		similarity, err := f.similarity(old, text, maxWhole)
		if err != nil {
			return nil, err
		}
		if similarity >= wholeSimilarity {
			blocks = append(blocks, block{first, last, similarity})
		}
	}
	return f.blockPlaces(blocks), nil
}

// blockPlaces keeps of blocks that overlap the more similar one: they are views
// of one place. Blocks are in the order of their first lines.
func (f *finder) blockPlaces(blocks []block) []place {
	var kept []block
	for _, b := range blocks {
		if n := len(kept); n > 0 && b.first <= kept[n-1].last {
			if b.similarity > kept[n-1].similarity {
				kept[n-1] = b
			}
			continue
		}
		kept = append(kept, b)
	}
	places := make([]place, len(kept))
	for i, b := range kept {
		places[i] = f.place(b.first, b.last)
	}
	return places
}
