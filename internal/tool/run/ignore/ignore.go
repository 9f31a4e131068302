// Package ignore reads patterns as in a .gitignore, and says what they leave out.
package ignore

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	// MaxPatterns bounds the patterns of one list, MaxPattern the bytes of one.
	MaxPatterns = 1000
	MaxPattern  = 4096
)

// List is patterns as in a .gitignore at the top of a worktree.
type List []pattern

// pattern is one line. It is matched byte by byte, as git does: each byte is a character
// of its regular expression, which takes time linear in the path.
type pattern struct {
	match    *regexp.Regexp
	keep     bool // it begins with "!"
	dirs     bool // it ends with "/"
	basename bool // it names no directory, and counts in all of them
}

// New reads patterns, one a line.
func New(lines []string) (List, error) {
	if len(lines) > MaxPatterns {
		return nil, fmt.Errorf("exclude: more than %d patterns", MaxPatterns)
	}
	var ig List
	for _, line := range lines {
		if len(line) > MaxPattern {
			return nil, fmt.Errorf("exclude: a pattern of more than %d bytes", MaxPattern)
		}
		line = trimBlanks(line)
		if line == "" || line[0] == '#' {
			continue
		}
		p := pattern{}
		line, p.keep = strings.CutPrefix(line, "!")
		line, p.dirs = strings.CutSuffix(line, "/")
		p.basename = !strings.Contains(line, "/")
		text, ok := translate(strings.TrimPrefix(line, "/"))
		if !ok {
			continue // git takes it, and it matches nothing
		}
		var err error
		if p.match, err = regexp.Compile(text); err != nil {
			return nil, fmt.Errorf("exclude: %.100q: %w", line, err)
		}
		ig = append(ig, p)
	}
	return ig, nil
}

// trimBlanks removes the blanks at the end of a line but for those after a backslash.
func trimBlanks(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' && i+1 < len(line) {
			i++
		} else if line[i] == ' ' {
			continue
		}
		end = i + 1
	}
	return line[:end]
}

// Has says whether a path is left out by its own name. What is in a directory that is left
// out is so too, which the caller knows.
func (ig List) Has(rel string, dir bool) bool {
	out, _ := ig.Decide(rel, dir)
	return out
}

// Decide is Has, and says whether any pattern speaks of the path: where none does, the list of
// a directory above may.
func (ig List) Decide(rel string, dir bool) (out, known bool) {
	if len(ig) == 0 {
		return false, false
	}
	whole, base := latin1(rel), latin1(path.Base(rel))
	for _, p := range slices.Backward(ig) {
		text := whole
		if p.basename {
			text = base
		}
		if (dir || !p.dirs) && p.match.MatchString(text) {
			return !p.keep, true
		}
	}
	return false, false
}

// latin1 makes each byte a character.
func latin1(s string) string {
	for i := range len(s) {
		if s[i] >= 0x80 {
			b := make([]rune, len(s))
			for i := range b {
				b[i] = rune(s[i])
			}
			return string(b)
		}
	}
	return s
}

// translate makes a regular expression of a pattern; false where it matches nothing.
func translate(p string) (string, bool) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			if i++; i == len(p) {
				return "", false
			}
			b.WriteString(class(p[i]))
		case '?':
			b.WriteString(`[^/]`)
		case '*':
			n := stars(&b, p, i)
			i += n - 1
		case '[':
			set, n := bracket(p[i:])
			if n == 0 {
				return "", false
			}
			b.WriteString(classOf(set))
			i += n - 1
		default:
			b.WriteString(class(p[i]))
		}
	}
	return b.String() + `\z`, true
}

// stars translates the stars at i, and gives how many bytes of the pattern that was. Two
// stand for directories where they begin the pattern or one of its names; and, as git
// compares what is before the first special character by itself, also right behind that.
func stars(b *strings.Builder, p string, i int) int {
	end := i
	for end < len(p) && p[end] == '*' {
		end++
	}
	rest := p[end:]
	switch {
	case end-i == 1 || i > 0 && p[i-1] != '/' && i != strings.IndexAny(p, `*?[\`) || rest != "" && rest[0] != '/' && !strings.HasPrefix(rest, `\/`):
		b.WriteString(`[^/]*`)
	case strings.HasPrefix(rest, "/"):
		b.WriteString(`(?:.*/)?`)
		end++
	default:
		b.WriteString(`.*`)
	}
	return end - i
}

func class(c byte) string { return fmt.Sprintf(`\x{%02x}`, c) }

// classOf is a class of the bytes of a set but "/", which no bracket matches.
func classOf(set *[256]bool) string {
	set['/'] = false
	var b strings.Builder
	for c, in := range set {
		if in {
			b.WriteString(class(byte(c)))
		}
	}
	if b.Len() == 0 {
		return `[^\x{00}-\x{10ffff}]`
	}
	return "[" + b.String() + "]"
}

// bracket reads a bracket expression as git does: the bytes that it matches, and its
// length, which is 0 where it has no end or names a class that there is not.
func bracket(p string) (set *[256]bool, n int) {
	set = new([256]bool)
	i := 1
	at := func(i int) byte { // 0 at the end, as in git
		if i < len(p) {
			return p[i]
		}
		return 0
	}
	not := at(i) == '!' || at(i) == '^'
	if not {
		i++
	}
	for prev := byte(0); ; {
		c := at(i)
		switch {
		case c == 0:
			return nil, 0
		case c == '\\':
			i++
			if c = at(i); c == 0 {
				return nil, 0
			}
			set[c] = true
		case c == '-' && prev != 0 && at(i+1) != 0 && at(i+1) != ']':
			i++
			if c = at(i); c == '\\' {
				i++
				c = at(i)
			}
			if c == 0 {
				return nil, 0
			}
			for x := int(prev); x <= int(c); x++ {
				set[x] = true
			}
			c = 0
		case c == '[' && at(i+1) == ':':
			end := strings.IndexByte(p[i+2:], ']')
			if end < 0 {
				return nil, 0
			}
			name, ok := strings.CutSuffix(p[i+2:i+2+end], ":")
			if !ok { // a set with "[" and ":" in it
				set['['] = true
				break
			}
			if !slices.Contains(posix, name) {
				return nil, 0
			}
			in := regexp.MustCompile(`\A[[:` + name + `:]]\z`)
			for x := range set {
				set[x] = set[x] || in.MatchString(string(rune(x)))
			}
			i += 2 + end
			c = 0
		default:
			set[c] = true
		}
		prev = c
		if i++; at(i) == ']' {
			break
		}
	}
	if not {
		for x := range set {
			set[x] = !set[x]
		}
	}
	return set, i + 1
}

// posix are the classes that git knows, of ASCII.
var posix = []string{"alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit"}
