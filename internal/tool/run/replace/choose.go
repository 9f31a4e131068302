package replace

import "bytes"

// choose picks the one of places, in the order of the text, that the query means.
func (f *finder) choose(s Strategy, places []place) (place, error) {
	count := len(places)
	switch {
	case f.occurs > count:
		return place{}, &OccurrenceError{Occurrence: f.occurs, Count: count, Lines: f.linesOf(places)}
	case f.occurs > 0:
		return places[f.occurs-1], nil
	case count == 1:
		return places[0], nil
	case f.near > 0:
		return f.nearestTo(f.near, places)
	}
	return place{}, &AmbiguousError{Strategy: s, Count: count, Lines: f.linesOf(places)}
}

// nearestTo is the place that has the line, or comes nearest to it.
func (f *finder) nearestTo(line int, places []place) (place, error) {
	best, least, tie := 0, -1, -1
	at, first := 0, 1
	for i, p := range places {
		first += bytes.Count(f.text[at:p.start], []byte{'\n'})
		at = p.start
		last := first + bytes.Count(bytes.TrimSuffix(f.text[p.start:p.end], []byte{'\n'}), []byte{'\n'})
		away := max(first-line, line-last, 0)
		switch {
		case least < 0 || away < least:
			best, least, tie = i, away, -1
		case away == least:
			tie = i
		}
	}
	if tie >= 0 {
		two := []place{places[best], places[tie]}
		return place{}, &OccurrenceError{Line: line, Count: len(two), Lines: f.linesOf(two)}
	}
	return places[best], nil
}
