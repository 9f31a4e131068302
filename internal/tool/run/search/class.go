package search

import (
	"strings"
)

// class reads a bracketed class up to its end; the opening bracket is read
// already. In it classes nest, and && -- ~~ are operators of equal rank that
// take what is left of them so far and the items up to the next operator.
func (t *translator) class() (runeSet, error) {
	if t.depth++; t.depth > maxNesting {
		return nil, syntaxErrorf("classes are nested more than %d deep", maxNesting)
	}
	defer func() { t.depth-- }()
	rest, negated := strings.CutPrefix(t.rest, "^")
	t.rest = rest
	items, err := t.classStart()
	if err != nil {
		return nil, err
	}
	var left runeSet
	op := ""
	for {
		if t.rest == "" {
			return nil, syntaxErrorf("unclosed character class")
		}
		next := operator(t.rest)
		if t.rest[0] != ']' && next == "" {
			set, err := t.classItem()
			if err != nil {
				return nil, err
			}
			items = append(items, set...)
			continue
		}
		if err := t.work(len(items) + len(left)); err != nil {
			return nil, err
		}
		left = combine(left, op, t.folded(items.normal()))
		items = nil
		if op = next; op == "" {
			break
		}
		t.rest = t.rest[2:]
	}
	t.rest = t.rest[1:]
	if negated {
		left = left.negate()
	}
	return left, nil
}

// classStart reads what is literal only at the beginning of a class.
func (t *translator) classStart() (runeSet, error) {
	var items runeSet
	for strings.HasPrefix(t.rest, "-") {
		items = append(items, '-', '-')
		t.rest = t.rest[1:]
	}
	if len(items) == 0 && strings.HasPrefix(t.rest, "]") {
		set, err := t.classRange()
		return set, err
	}
	return items, nil
}

func operator(s string) string {
	for _, op := range []string{"&&", "--", "~~"} {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	return ""
}

func combine(left runeSet, op string, right runeSet) runeSet {
	switch op {
	case "&&":
		return left.intersect(right)
	case "--":
		return left.minus(right)
	case "~~":
		return left.minus(right).union(right.minus(left))
	default:
		return right
	}
}

func (t *translator) folded(s runeSet) runeSet {
	if t.fold {
		return s.fold()
	}
	return s
}

func (t *translator) classItem() (runeSet, error) {
	if t.rest[0] == '[' {
		if set, ok := t.posixClass(); ok {
			return set, nil
		}
		t.rest = t.rest[1:]
		return t.class()
	}
	if t.rest[0] == '\\' && len(t.rest) > 1 && strings.IndexByte("dDsSwWpP", t.rest[1]) >= 0 {
		t.rest = t.rest[1:]
		return t.escapedSet()
	}
	if t.verbose {
		before := t.rest
		if r := t.next(); t.skipped(r) {
			return nil, nil
		}
		t.rest = before
	}
	return t.classRange()
}

// classRange reads one character or two with a dash between them.
func (t *translator) classRange() (runeSet, error) {
	low, err := t.classRune()
	if err != nil {
		return nil, err
	}
	if len(t.rest) < 2 || t.rest[0] != '-' || t.rest[1] == ']' || t.rest[1] == '-' {
		return runeSet{low, low}, nil
	}
	t.rest = t.rest[1:]
	high, err := t.classRune()
	if err != nil {
		return nil, err
	}
	if high < low {
		return nil, syntaxErrorf("invalid character class range, the start must be <= the end")
	}
	return runeSet{low, high}, nil
}

func (t *translator) classRune() (rune, error) {
	if t.rest == "" {
		return 0, syntaxErrorf("unclosed character class")
	}
	if r := t.next(); r != '\\' {
		return r, nil
	}
	if t.rest == "" {
		return 0, syntaxErrorf("incomplete escape sequence, reached end of pattern prematurely")
	}
	return t.escapedRune()
}

// posixClass reads [:alpha:] where it stands.
func (t *translator) posixClass() (runeSet, bool) {
	name, rest, ok := strings.Cut(t.rest[1:], ":]")
	if !ok || !strings.HasPrefix(name, ":") {
		return nil, false
	}
	set, err := classSet("[[" + name + ":]]")
	if err != nil {
		return nil, false
	}
	t.rest = rest
	return set, true
}
