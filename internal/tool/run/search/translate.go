package search

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// translator turns a pattern in the syntax of ripgrep into one of Go's regular
// expression package. They are close; what differs is that there \d, \s, \w and
// \b know Unicode, that classes nest and have operators, that more is an error
// (an open repetition, an escape that means nothing), and some spellings.
type translator struct {
	rest string
	out  strings.Builder

	fold, verbose bool // the flags i and x as they are now
	groups        []groupFlags
	// atom is where in out the last atom begins, -1 when there is none that
	// could be repeated; repeated says that it is repeated already.
	atom     int
	repeated bool
	// newline: a line break is in the pattern, outside of classes.
	newline bool
	depth   int // of classes in classes
	// regrouped counts the repetitions of repetitions; each costs a copy.
	regrouped int
	// worked is how much of classes was worked on: \w is two bytes of a pattern and
	// more than a thousand characters.
	worked int
}

// groupFlags are the flags around an open group, and where it begins in out.
type groupFlags struct {
	fold, verbose bool
	at            int
}

// maxNesting bounds groups in groups and classes in classes.
const maxNesting = 200

// maxWorked bounds translator.worked. It is some three hundred times \w.
const maxWorked = 1 << 19

// foldWork is how much more work it is to find the other cases of a set than to
// have it.
const foldWork = 4

// work counts what was done with sets of n ends of ranges.
func (t *translator) work(n int) error {
	if t.worked += n; t.worked > maxWorked {
		return errSize
	}
	return nil
}

// SyntaxError says why a pattern is not taken, in words for who wrote it.
type SyntaxError struct{ Msg string }

// Error implements error.
func (e *SyntaxError) Error() string { return e.Msg }

func syntaxErrorf(format string, args ...any) error {
	return &SyntaxError{Msg: fmt.Sprintf(format, args...)}
}

// translate gives the pattern in Go's syntax, and whether it names a line break
// outside of classes.
func translate(pattern string, fold bool) (out string, newline bool, err error) {
	t := &translator{rest: pattern, fold: fold, atom: -1}
	for t.rest != "" {
		if err := t.item(); err != nil {
			return "", false, err
		}
	}
	if len(t.groups) > 0 {
		return "", false, syntaxErrorf("unclosed group")
	}
	return t.out.String(), t.newline, nil
}

func (t *translator) next() rune {
	r, size := utf8.DecodeRuneInString(t.rest)
	t.rest = t.rest[size:]
	return r
}

// emit writes an atom.
func (t *translator) emit(s string) {
	t.atom, t.repeated = t.out.Len(), false
	t.out.WriteString(s)
}

func (t *translator) literal(r rune) {
	if r == '\n' {
		t.newline = true
	}
	if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
		t.emit(string(r))
		return
	}
	t.emit(fmt.Sprintf(`\x{%x}`, r))
}

func (t *translator) item() error {
	switch r := t.next(); r {
	case '(':
		return t.open()
	case ')':
		return t.close()
	case '|':
		t.out.WriteByte('|')
		t.atom = -1
	case '*', '+', '?':
		return t.repeat(string(r))
	case '{':
		return t.counted()
	case '[':
		set, err := t.class()
		if err != nil {
			return err
		}
		if len(set) == 0 {
			return syntaxErrorf("empty character classes are not allowed")
		}
		t.emitSet(set)
	case '\\':
		return t.escape()
	case '^', '$', '.':
		t.emit(string(r))
	default:
		if t.verbose && t.skipped(r) {
			return nil
		}
		t.literal(r)
	}
	return nil
}

// skipped is what the flag x leaves out: spaces, and comments.
func (t *translator) skipped(r rune) bool {
	if r == '#' {
		_, t.rest, _ = strings.Cut(t.rest, "\n")
		return true
	}
	return unicode.IsSpace(r)
}

func (t *translator) emitSet(set runeSet) { t.emit("(?-i:" + set.brackets() + ")") }

// open reads what follows a parenthesis.
func (t *translator) open() error {
	if len(t.groups) >= maxNesting {
		return syntaxErrorf("groups are nested more than %d deep", maxNesting)
	}
	group := groupFlags{t.fold, t.verbose, t.out.Len()}
	if !strings.HasPrefix(t.rest, "?") {
		t.out.WriteByte('(')
		t.groups = append(t.groups, group)
		t.atom = -1
		return nil
	}
	for _, look := range []string{"?=", "?!", "?<=", "?<!"} {
		if strings.HasPrefix(t.rest, look) {
			return syntaxErrorf("look-around, including look-ahead and look-behind, is not supported")
		}
	}
	t.rest = t.rest[1:]
	for _, named := range []string{"P<", "<"} {
		if rest, ok := strings.CutPrefix(t.rest, named); ok {
			name, rest, ok := strings.Cut(rest, ">")
			if !ok || name == "" {
				return syntaxErrorf("unclosed or empty name of a group")
			}
			t.rest = rest
			t.out.WriteByte('(') // names are of no use in a search
			t.groups = append(t.groups, group)
			t.atom = -1
			return nil
		}
	}
	return t.flags(group)
}

// flags reads (?i) or the beginning of (?i: ….
func (t *translator) flags(group groupFlags) error {
	var on, off strings.Builder
	to, value := &on, true
	for {
		if t.rest == "" {
			return syntaxErrorf("unclosed group")
		}
		switch r := t.next(); r {
		case 'i':
			t.fold = value
			to.WriteRune(r)
		case 'm', 's', 'U':
			to.WriteRune(r)
		case 'x':
			t.verbose = value
		case 'u':
			if !value {
				return syntaxErrorf("the flag (?-u) is not supported here; without it patterns are about Unicode characters")
			}
		case '-':
			if !value {
				return syntaxErrorf("repeated negation of flags")
			}
			to, value = &off, false
		case ':', ')':
			t.out.WriteString("(?" + on.String())
			if off.Len() > 0 {
				t.out.WriteString("-" + off.String())
			}
			if r == ':' || on.Len()+off.Len() == 0 {
				t.out.WriteByte(':')
			}
			if r == ')' {
				t.out.WriteByte(')')
			} else {
				t.groups = append(t.groups, group)
			}
			t.atom = -1
			return nil
		default:
			return syntaxErrorf("unrecognized flag %q", r)
		}
	}
}

func (t *translator) close() error {
	n := len(t.groups)
	if n == 0 {
		return syntaxErrorf("unopened group")
	}
	group := t.groups[n-1]
	t.groups = t.groups[:n-1]
	t.out.WriteByte(')')
	t.fold, t.verbose = group.fold, group.verbose
	t.atom, t.repeated = group.at, false
	return nil
}

// repeat writes a repetition of the last atom.
func (t *translator) repeat(op string) error {
	if t.atom < 0 {
		return syntaxErrorf("repetition operator missing expression")
	}
	if t.repeated {
		if t.regrouped++; t.regrouped > maxNesting {
			return syntaxErrorf("more than %d repetitions are repeated", maxNesting)
		}
		// Twice is an error in Go's syntax without a group around it.
		all := t.out.String()
		t.out.Reset()
		t.out.WriteString(all[:t.atom] + "(?:" + all[t.atom:] + ")")
	}
	t.out.WriteString(op)
	if rest, ok := strings.CutPrefix(t.rest, "?"); ok {
		t.rest = rest
		t.out.WriteByte('?')
	}
	t.repeated = true
	return nil
}

// maxRepeat is what Go's regular expressions repeat at most.
const maxRepeat = 1000

// counted reads what follows a brace: {n}, {n,} or {n,m}.
func (t *translator) counted() error {
	if t.atom < 0 {
		return syntaxErrorf("repetition operator missing expression")
	}
	inside, rest, ok := strings.Cut(t.rest, "}")
	if !ok {
		return syntaxErrorf("unclosed counted repetition; a brace that is meant as such needs a backslash")
	}
	from, to, both := strings.Cut(inside, ",")
	low, err := count(from)
	if err != nil {
		return err
	}
	op := fmt.Sprintf("{%d}", low)
	if both && strings.TrimSpace(to) == "" {
		op = fmt.Sprintf("{%d,}", low)
	} else if both {
		high, err := count(to)
		if err != nil {
			return err
		}
		if high < low {
			return syntaxErrorf("invalid repetition count range, the start must be <= the end")
		}
		op = fmt.Sprintf("{%d,%d}", low, high)
	}
	t.rest = rest
	return t.repeat(op)
}

func count(s string) (int, error) {
	s = strings.TrimSpace(s)
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' {
			return 0, syntaxErrorf("a repetition has %q for a number; a brace that is meant as such needs a backslash", s)
		}
		if n = n*10 + int(r-'0'); n > maxRepeat {
			return 0, errSize
		}
	}
	if s == "" {
		return 0, syntaxErrorf("repetition quantifier expects a valid decimal; a brace that is meant as such needs a backslash")
	}
	return n, nil
}

// escape reads what follows a backslash outside of classes.
func (t *translator) escape() error {
	if t.rest == "" {
		return syntaxErrorf("incomplete escape sequence, reached end of pattern prematurely")
	}
	switch c := t.rest[0]; c {
	case 'd', 'D', 's', 'S', 'w', 'W', 'p', 'P':
		set, err := t.escapedSet()
		if err != nil {
			return err
		}
		if (c == 'p' || c == 'P') && t.fold {
			if err := t.work(foldWork * len(set)); err != nil {
				return err
			}
			set = set.fold()
		}
		t.emitSet(set)
		return nil
	case 'A', 'z', 'b', 'B':
		t.rest = t.rest[1:]
		t.emit(`\` + string(c))
		return nil
	}
	r, err := t.escapedRune()
	if err != nil {
		return err
	}
	t.literal(r)
	return nil
}

// escapedSet reads a class that is written as an escape.
func (t *translator) escapedSet() (runeSet, error) {
	c := t.rest[0]
	t.rest = t.rest[1:]
	var set runeSet
	var err error
	if c|0x20 == 'p' {
		set, err = t.property()
	} else {
		set, err = classSet("[" + perlClass(c) + "]")
	}
	if c < 'a' {
		set = set.negate()
	}
	if err == nil {
		err = t.work(len(set))
	}
	return set, err
}

// property reads what follows \p.
func (t *translator) property() (runeSet, error) {
	if t.rest == "" {
		return nil, syntaxErrorf("incomplete escape sequence, reached end of pattern prematurely")
	}
	name := string(t.next())
	if name == "{" {
		var ok bool
		if name, t.rest, ok = strings.Cut(t.rest, "}"); !ok {
			return nil, syntaxErrorf("the name of a Unicode property is not closed")
		}
	}
	negated := false
	for _, sep := range []string{"!=", "=", ":"} {
		if of, value, ok := strings.Cut(name, sep); ok {
			switch strings.ToLower(of) {
			case "gc", "general_category", "sc", "script", "scx", "script_extensions":
			default:
				return nil, syntaxErrorf("Unicode property not found: %q", name)
			}
			name, negated = value, sep == "!="
			break
		}
	}
	if name == "" || strings.ContainsAny(name, `^\{}[]`) {
		return nil, syntaxErrorf("Unicode property not found: %q", name)
	}
	set, err := classSet(`[\p{` + name + `}]`)
	if err != nil {
		return nil, syntaxErrorf("Unicode property not found: %q; general categories and scripts are known here", name)
	}
	if negated {
		set = set.negate()
	}
	return set, nil
}

// escapedRune reads a character that is written as an escape.
func (t *translator) escapedRune() (rune, error) {
	switch r := t.next(); r {
	case 'a':
		return '\a', nil
	case 'f':
		return '\f', nil
	case 't':
		return '\t', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 'v':
		return '\v', nil
	case 'x':
		return t.hex(2)
	case 'u':
		return t.hex(4)
	case 'U':
		return t.hex(8)
	default:
		switch {
		case r >= '0' && r <= '9':
			return 0, syntaxErrorf("backreferences are not supported")
		case r == '<' || r == '>' || r > unicode.MaxASCII || unicode.IsLetter(r) || r < ' ':
			return 0, syntaxErrorf("unrecognized escape sequence \\%c", r)
		}
		return r, nil
	}
}

// hex reads the digits of a character: a number of them, or any in braces.
func (t *translator) hex(digits int) (rune, error) {
	var text string
	if rest, ok := strings.CutPrefix(t.rest, "{"); ok {
		if text, t.rest, ok = strings.Cut(rest, "}"); !ok || text == "" || len(text) > 8 {
			return 0, syntaxErrorf("hexadecimal literal is empty, too long or not closed")
		}
	} else {
		if len(t.rest) < digits {
			return 0, syntaxErrorf("incomplete escape sequence, reached end of pattern prematurely")
		}
		text, t.rest = t.rest[:digits], t.rest[digits:]
	}
	var r rune
	for _, c := range text {
		d := strings.IndexRune("0123456789abcdef", unicode.ToLower(c))
		if d < 0 {
			return 0, syntaxErrorf("invalid hexadecimal digit %q", c)
		}
		if r = r<<4 | rune(d); r > unicode.MaxRune {
			return 0, syntaxErrorf("hexadecimal literal is not a Unicode scalar value")
		}
	}
	if !utf8.ValidRune(r) {
		return 0, syntaxErrorf("hexadecimal literal is not a Unicode scalar value")
	}
	return r, nil
}
