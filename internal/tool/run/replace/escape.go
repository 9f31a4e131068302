package replace

import "strings"

// unescapes are the escapes that count as what they stand for.
var unescapes = map[byte]int{
	'n': '\n', 't': '\t', 'r': '\r', '\'': '\'', '"': '"', '`': '`', '\\': '\\', '$': '$', '\n': '\n',
}

// withoutEscapes is the view in which every escape is what it stands for.
func withoutEscapes(text []byte, piece func(from, to, out int)) {
	start := 0
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if plain, ok := unescapes[text[i+1]]; ok {
			cut(piece, start, i, literal)
			piece(i, i+2, plain)
			start = i + 2
			i++
		}
	}
	cut(piece, start, len(text), literal)
}

// escaped finds old where either it or the text has an escape for a character.
// When old had the escapes, new is taken to have them too, and those that old
// had are undone in it. When the text has them, they are made in new.
func (f *finder) escaped() ([]place, error) {
	plain := string(view(withoutEscapes).of([]byte(f.old)))
	if plain != f.old {
		if len(strings.TrimSpace(plain)) == 0 {
			return nil, nil
		}
		places, err := f.exact(plain, unescapeAs(f.old, f.new))
		if err != nil || len(places) > 0 {
			return places, err
		}
	}
	return f.escapedText(plain)
}

// escapedText finds plain in the text as it is without escapes.
func (f *finder) escapedText(plain string) ([]place, error) {
	seen := view(withoutEscapes).of(f.text)
	if len(seen) == len(f.text) {
		return nil, nil // nothing is escaped
	}
	offsets, err := f.occurrences(seen, []byte(plain))
	if err != nil {
		return nil, err
	}
	at, _ := view(withoutEscapes).locate(f.text, offsets)
	replacement := unescapeAs(f.old, f.new)
	head := commonPrefix([]byte(plain), []byte(replacement))
	tail := commonSuffix([]byte(plain[head:]), []byte(replacement[head:]))
	middle := replacement[head : len(replacement)-tail]
	var places []place
	for i := 0; i < len(at); i += 2 {
		span := f.text[at[i]:at[i+1]]
		// What stays keeps the escapes that it has.
		cuts, _ := view(withoutEscapes).locate(span, []int{head, len(plain) - tail})
		places = append(places, place{
			start: at[i] + cuts[0], end: at[i] + cuts[1],
			new: f.own(func() string { return escapeAs(string(span), middle) }),
		})
	}
	return places, nil
}

// unescapeAs undoes in s the escapes that occur in model, and that of the
// backslash itself.
func unescapeAs(model, s string) string {
	used := escapesIn(model)
	if used == "" {
		return s
	}
	var pairs []string
	for _, letter := range []byte(used + `\`) {
		pairs = append(pairs, `\`+string(letter), string(rune(unescapes[letter])))
	}
	return strings.NewReplacer(pairs...).Replace(s)
}

// escapeAs makes in s the escapes that occur in model, but for that of a line break by
// itself.
func escapeAs(model, s string) string {
	var pairs []string
	for _, letter := range []byte(escapesIn(model)) {
		if letter != '\n' {
			pairs = append(pairs, string(rune(unescapes[letter])), `\`+string(letter))
		}
	}
	return strings.NewReplacer(pairs...).Replace(s)
}

// escapesIn gives the letters that follow a backslash in s.
func escapesIn(s string) (letters string) {
	view(withoutEscapes)([]byte(s), func(from, _, out int) {
		if letter := s[from:]; out >= 0 && !strings.Contains(letters, letter[1:2]) {
			letters += letter[1:2]
		}
	})
	return letters
}
