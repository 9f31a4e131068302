package replace

import "strings"

// reindent gives replacement the indentation of the place where it lands.
// oldLines are the lines that were asked for and found those of the text; lines
// with the same number are taken to be the same line when their content is.
// Where within is set the first line begins in the middle of a line of the text
// and says nothing about indentation.
//
// What the text does to each indentation of the old lines is done to the same
// indentation in the replacement; deeper ones keep their extra depth, in the
// text's own tabs or spaces. A replacement that quoted the text with its right
// indentation is left alone.
func reindent(replacement string, oldLines, found []string, within bool) string {
	shift := newShift(oldLines, found, within)
	if shift.none {
		return replacement
	}
	lines := strings.Split(replacement, "\n")
	for i, line := range lines {
		if i == 0 && within || strings.TrimSpace(line) == "" {
			continue
		}
		indent, content := splitIndent(line)
		lines[i] = shift.of(indent, content) + line[len(indent):]
	}
	return strings.Join(lines, "\n")
}

// shift says which indentation of the old lines is which one of the text.
type shift struct {
	none     bool
	order    []string          // old indentations, as they first appear
	byIndent map[string]string // old indentation to the text's
	byLine   map[string]string // content of a line to its indentation in the text
	conflict bool              // one old indentation is several in the text
	lastWas  string            // where conflict is set: the last line that is still
	lastIs   string            // there, in the replacement and in the text
}

func newShift(oldLines, found []string, within bool) *shift {
	s := &shift{none: true, byIndent: make(map[string]string), byLine: make(map[string]string)}
	for i := range min(len(oldLines), len(found)) {
		if i == 0 && within {
			continue
		}
		was, content := splitIndent(oldLines[i])
		is, there := splitIndent(found[i])
		if content == "" || squeezed(content) != squeezed(there) {
			continue
		}
		s.none = s.none && was == is
		if known, ok := s.byIndent[was]; !ok {
			s.byIndent[was] = is
			s.order = append(s.order, was)
		} else if known != is {
			s.conflict = true
		}
		if _, ok := s.byLine[content]; !ok {
			s.byLine[content] = is
		}
	}
	return s
}

// of is the indentation that a line of the replacement gets.
func (s *shift) of(indent, content string) string {
	if s.conflict {
		// Old lines that were quoted without their indentation: a line that is
		// still there keeps the one it has.
		// A new line is taken to be as deep as the one before.
		if is, ok := s.byLine[content]; ok {
			s.lastWas, s.lastIs = indent, is
			return is
		}
		if indent == s.lastWas && s.lastIs != "" {
			return s.lastIs
		}
	}
	if is, ok := s.byIndent[indent]; ok {
		return is
	}
	nearest, ok := "", false
	for _, was := range s.order {
		if strings.HasPrefix(indent, was) && (!ok || len(was) > len(nearest)) {
			nearest, ok = was, true
		}
	}
	if ok {
		return s.byIndent[nearest] + s.inTextUnits(indent[len(nearest):])
	}
	// Shallower than all that is known: as much less deep in the text.
	for _, was := range s.order {
		if !ok || len(was) < len(nearest) {
			nearest, ok = was, true
		}
	}
	less := s.inTextUnits(strings.TrimPrefix(nearest, indent))
	return strings.TrimSuffix(s.byIndent[nearest], less)
}

// inTextUnits turns extra depth into tabs or spaces as the text uses them.
func (s *shift) inTextUnits(extra string) string {
	for _, was := range s.order {
		is := s.byIndent[was]
		switch {
		case was == "" || is == "":
		case isOnly(was, ' ') && isOnly(is, '\t') && isOnly(extra, ' '):
			unit := max(1, len(was)/len(is))
			return strings.Repeat("\t", len(extra)/unit) + strings.Repeat(" ", len(extra)%unit)
		case isOnly(was, '\t') && isOnly(is, ' ') && isOnly(extra, '\t'):
			return strings.Repeat(" ", len(extra)*max(1, len(is)/len(was)))
		}
	}
	return extra
}

func isOnly(s string, c byte) bool { return strings.Trim(s, string(c)) == "" }

func splitIndent(line string) (indent, content string) {
	content = strings.TrimLeft(line, " \t")
	return line[:len(line)-len(content)], strings.TrimRight(content, " \t")
}

// squeezed is content for comparison, with every run of blanks as one.
func squeezed(content string) string { return strings.Join(strings.Fields(content), " ") }
