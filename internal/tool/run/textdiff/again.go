package textdiff

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Again makes what a diff says of one file lead to another text: of the section of name,
// which leads to before, it makes the one that leads from the same beginning to now. Other
// sections, and lines between them, stay. was and is count the lines of that section. It
// is not ok where the section is cut, or does not lead to before; limit is that of Unified.
func Again(diff, name string, before, now []byte, limit int) (again string, was, is Stat, ok bool) {
	lines := strings.SplitAfter(diff, "\n")
	head := [2]string{"--- " + name + "\n", "+++ " + name + "\n"}
	for i := 0; i < len(lines); {
		if i+1 >= len(lines) || !strings.HasPrefix(lines[i], "--- ") || !strings.HasPrefix(lines[i+1], "+++ ") {
			i++
			continue
		}
		u := undoing{diff: lines[i+2:], text: splitLines(before)}
		whole := u.hunks()
		if lines[i] == head[0] && lines[i+1] == head[1] {
			if !whole {
				return "", was, is, false
			}
			section, is := Unified(name, u.old, now, Between(u.old, now), limit)
			rest := strings.Join(u.diff, "")
			return strings.Join(lines[:i], "") + section + rest, u.stat, is, !strings.HasPrefix(rest, "… ")
		}
		i = len(lines) - len(u.diff)
	}
	return "", was, is, false
}

// undoing goes through the hunks of one section, and back from the text that they lead to.
type undoing struct {
	diff []string // not read yet
	text []string // that the hunks lead to, behind those that are read
	done int      // its lines before that
	old  []byte   // what it was, up to there
	stat Stat
	// other: the text is another one. The hunks are read on, to their end.
	other bool
}

var hunkHead = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n$`) })

// hunks reads all hunks, and reports whether they lead to the text.
func (u *undoing) hunks() bool {
	for len(u.diff) > 0 {
		m := hunkHead().FindStringSubmatch(u.diff[0])
		if m == nil {
			break
		}
		u.diff = u.diff[1:]
		first, _ := strconv.Atoi(m[2])
		removed, added := spanOf(m[1]), spanOf(m[3])
		if added > 0 {
			first--
		}
		if u.other = u.other || first < u.done || first-u.done > len(u.text); !u.other {
			u.stay(first - u.done)
		}
		if !u.hunk(removed, added) {
			return false
		}
	}
	if !u.other {
		u.stay(len(u.text))
	}
	return !u.other
}

// stay takes lines that both texts have.
func (u *undoing) stay(n int) {
	u.old = append(u.old, strings.Join(u.text[:n], "")...)
	u.text, u.done = u.text[n:], u.done+n
}

// spanOf is a number of lines in a hunk's head.
func spanOf(s string) int {
	if s == "" {
		return 1
	}
	n, _ := strconv.Atoi(s) // digits; one that is too large is never reached
	return n
}

// hunk reads one hunk of so many lines of both texts; false where it ends before them.
func (u *undoing) hunk(removed, added int) bool {
	for removed > 0 || added > 0 {
		if len(u.diff) == 0 || len(u.diff[0]) < 2 || !strings.ContainsAny(u.diff[0][:1], " +-") {
			return false
		}
		mark, line := u.diff[0][0], u.diff[0][1:]
		u.diff = u.diff[1:]
		if len(u.diff) > 0 && u.diff[0] == "\\ No newline at end of file\n" {
			line, u.diff = strings.TrimSuffix(line, "\n"), u.diff[1:]
		}
		switch mark {
		case '-':
			u.stat.Removed++
		case '+':
			u.stat.Added++
		}
		if mark != '+' {
			removed--
			u.old = append(u.old, line...)
		}
		if mark != '-' {
			added--
			if u.other = u.other || len(u.text) == 0 || u.text[0] != line; !u.other {
				u.text, u.done = u.text[1:], u.done+1
			}
		}
	}
	return removed == 0 && added == 0
}
