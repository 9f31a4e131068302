package policy

import "unicode/utf8"

// covers reports whether every text that the pattern narrow matches is one that
// wide matches too. It may say no where the answer is yes, never the other way.
func covers(wide, narrow string) bool {
	for _, n := range spellings(narrow) {
		found := false
		for _, w := range spellings(wide) {
			if globCovers(w, n) {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// globCovers is covers for one glob each: wide matches the text of narrow, with a
// star of narrow being taken by nothing but a star of wide. It goes back to the
// last star only, like every matcher of wildcards that is not exponential.
func globCovers(wide, narrow string) bool {
	w, n := 0, 0
	star, from := -1, 0
	for n < len(narrow) {
		_, size := utf8.DecodeRuneInString(narrow[n:])
		switch {
		case w < len(wide) && wide[w] == '*':
			star, from = w, n
			w++
		case w < len(wide) && wide[w] == '?' && narrow[n] != '*':
			w++
			n += size
		case w < len(wide) && wide[w] != '?' && narrow[n] != '*' && wide[w] == narrow[n]:
			w++
			n++
		case star >= 0:
			_, size := utf8.DecodeRuneInString(narrow[from:])
			from += size
			w, n = star+1, from
		default:
			return false
		}
	}
	for w < len(wide) && wide[w] == '*' {
		w++
	}
	return w == len(wide)
}
