package search

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxGlob is the longest glob of an ignore file, in bytes. Matching takes time
// in proportion to it and to the path.
const maxGlob = 4096

// glob is a compiled pattern of an ignore file. It works on bytes, as ripgrep's
// do: "?" is one byte. Matching takes at most len(prog) steps for each byte of
// a path, whatever the pattern is.
type glob struct {
	form globForm
	text string // of the forms that are plain comparisons
	prog []globOp
}

// globForm tells what is left to do for a glob. Almost all that people write are
// one of the first three.
type globForm uint8

const (
	globPath   globForm = iota // the path is text
	globTail                   // text is the end of the path, from a slash on
	globSuffix                 // the path ends with text
	globProg                   // prog decides
)

// globOp is one step of the machine that matches a glob.
type globOp struct {
	kind globKind
	b    byte
	x, y int32 // of opFork: where to go on; of opJump: x
	set  *[4]uint64
}

// globOpBytes is what a step takes, with what an append may leave beside it, and
// with its set.
const (
	globOpBytes  = 24
	globSetBytes = 32
)

// bytes is what g takes of the memory.
func (g *glob) bytes() int {
	n := len(g.text) + globOpBytes*cap(g.prog)
	for i := range g.prog {
		if g.prog[i].set != nil {
			n += globSetBytes
		}
	}
	return n
}

type globKind uint8

const (
	opByte     globKind = iota // the byte b
	opNotSlash                 // any byte but a slash
	opAny                      // any byte
	opSet                      // a byte of set
	opFork                     // both x and y
	opJump                     // x
	opEnd                      // the path matches where it ends
)

// tokenKind is a part of a glob.
type tokenKind uint8

const (
	tokLiteral tokenKind = iota
	tokAny               // ?
	tokStar              // *
	tokPrefix            // **/ at the beginning
	tokSuffix            // /** at the end
	tokMiddle            // /**/
	tokClass             // [a-z]
	tokEither            // {a,b}
)

type token struct {
	kind tokenKind
	text string // of tokLiteral, one character
	set  *[4]uint64
	alts [][]token
}

var errGlob = errors.New("not a glob")

// compileGlob reads the pattern of a line of an ignore file.
func compileGlob(pattern string) (*glob, error) {
	if len(pattern) > maxGlob {
		return nil, errGlob
	}
	p := globParser{rest: pattern, stack: [][]token{nil}}
	if err := p.parse(); err != nil {
		return nil, err
	}
	tokens := p.stack[0]
	if form, text, ok := simpleForm(tokens); ok {
		return &glob{form: form, text: text}, nil
	}
	g := &glob{form: globProg}
	if len(tokens) == 1 && tokens[0].kind == tokPrefix { // "**" alone
		g.anyBytes()
	} else {
		g.compile(tokens)
	}
	g.emit(globOp{kind: opEnd})
	return g, nil
}

// simpleForm recognises globs that are a comparison.
func simpleForm(tokens []token) (form globForm, text string, ok bool) {
	form = globPath
	if len(tokens) > 0 && tokens[0].kind == tokPrefix {
		form, tokens = globTail, tokens[1:]
		if len(tokens) > 0 && tokens[0].kind == tokStar {
			form, tokens = globSuffix, tokens[1:]
		}
	}
	var b strings.Builder
	for _, t := range tokens {
		if t.kind != tokLiteral {
			return 0, "", false
		}
		b.WriteString(t.text)
	}
	text = b.String()
	if form != globPath && text == "" || form == globSuffix && strings.Contains(text, "/") {
		return 0, "", false
	}
	return form, text, true
}

func (g *glob) emit(op globOp) int {
	g.prog = append(g.prog, op)
	return len(g.prog) - 1
}

func (g *glob) here() int32 { return int32(len(g.prog)) }

// repeat emits any number of what kind matches.
func (g *glob) repeat(kind globKind) {
	fork := g.emit(globOp{kind: opFork})
	g.prog[fork].x = g.here()
	g.emit(globOp{kind: kind})
	g.emit(globOp{kind: opJump, x: int32(fork)})
	g.prog[fork].y = g.here()
}

func (g *glob) anyBytes() { g.repeat(opAny) }

// directories emits any number of directories, each with its slash.
func (g *glob) directories() {
	fork := g.emit(globOp{kind: opFork})
	g.prog[fork].x = g.here()
	g.anyBytes()
	g.emit(globOp{kind: opByte, b: '/'})
	g.prog[fork].y = g.here()
}

func (g *glob) compile(tokens []token) {
	for _, t := range tokens {
		switch t.kind {
		case tokLiteral:
			for i := range len(t.text) {
				g.emit(globOp{kind: opByte, b: t.text[i]})
			}
		case tokAny:
			g.emit(globOp{kind: opNotSlash})
		case tokStar:
			g.repeat(opNotSlash)
		case tokPrefix:
			g.directories()
		case tokSuffix:
			g.emit(globOp{kind: opByte, b: '/'})
			g.anyBytes()
		case tokMiddle:
			g.emit(globOp{kind: opByte, b: '/'})
			g.directories()
		case tokClass:
			g.emit(globOp{kind: opSet, set: t.set})
		case tokEither:
			g.either(t.alts)
		}
	}
}

// either emits alternatives. Empty ones do not count, and none at all is nothing.
func (g *glob) either(alts [][]token) {
	var ends []int
	last := -1
	for _, alt := range alts {
		if len(alt) == 0 {
			continue
		}
		if last >= 0 {
			ends = append(ends, g.emit(globOp{kind: opJump}))
			g.prog[last].y = g.here()
		}
		last = g.emit(globOp{kind: opFork})
		g.prog[last].x = g.here()
		g.compile(alt)
	}
	if last < 0 {
		return
	}
	g.prog[last].y = g.prog[last].x // the last one has nothing beside it
	for _, end := range ends {
		g.prog[end].x = g.here()
	}
}

// globParser cuts a glob into tokens.
type globParser struct {
	rest  string
	prev  rune // before cur; 0 = none
	cur   rune
	stack [][]token // more than one while in braces
}

func (p *globParser) next() (rune, bool) {
	p.prev = p.cur
	if p.rest == "" {
		p.cur = 0
		return 0, false
	}
	r, size := utf8.DecodeRuneInString(p.rest)
	p.cur, p.rest = r, p.rest[size:]
	return r, true
}

func (p *globParser) peek() (rune, bool) {
	if p.rest == "" {
		return 0, false
	}
	r, _ := utf8.DecodeRuneInString(p.rest)
	return r, true
}

func (p *globParser) top() *[]token { return &p.stack[len(p.stack)-1] }

func (p *globParser) push(kind tokenKind) { *p.top() = append(*p.top(), token{kind: kind}) }

func (p *globParser) literal(r rune) {
	*p.top() = append(*p.top(), token{kind: tokLiteral, text: string(r)})
}

func (p *globParser) parse() error {
	for {
		r, ok := p.next()
		if !ok {
			break
		}
		if err := p.token(r); err != nil {
			return err
		}
	}
	if len(p.stack) > 1 {
		return errGlob
	}
	return nil
}

func (p *globParser) token(r rune) error {
	switch r {
	case '?':
		p.push(tokAny)
	case '*':
		p.star()
	case '[':
		return p.class()
	case '{':
		if len(p.stack) > 1 {
			return errGlob // braces in braces
		}
		p.stack = append(p.stack, nil)
	case '}':
		alts := slices.Clone(p.stack[1:]) // the next braces use the stack again
		p.stack = p.stack[:1]
		*p.top() = append(*p.top(), token{kind: tokEither, alts: alts})
	case ',':
		if len(p.stack) == 1 {
			p.literal(',')
		} else {
			p.stack = append(p.stack, nil)
		}
	case '\\':
		r, ok := p.next()
		if !ok {
			return errGlob
		}
		p.literal(r)
	default:
		p.literal(r)
	}
	return nil
}

// star reads one star or two. Two mean directories only where they stand alone
// between slashes, else they are like one.
func (p *globParser) star() {
	before := p.prev
	if r, ok := p.peek(); !ok || r != '*' {
		p.push(tokStar)
		return
	}
	p.next()
	after, more := p.peek()
	if len(*p.top()) == 0 {
		if more && after != '/' {
			p.push(tokStar)
			return
		}
		p.push(tokPrefix)
		p.next()
		return
	}
	inBraces := len(p.stack) > 1
	if before != '/' && (!inBraces || before != ',' && before != '{') {
		p.push(tokStar)
		return
	}
	suffix := !more || inBraces && (after == ',' || after == '}')
	if !suffix && after != '/' {
		p.push(tokStar)
		return
	}
	if !suffix {
		p.next()
	}
	// The slash before the stars belongs to them.
	tokens := *p.top()
	switch last := &tokens[len(tokens)-1]; {
	case last.kind == tokPrefix, last.kind == tokSuffix:
	case suffix:
		*last = token{kind: tokSuffix}
	default:
		*last = token{kind: tokMiddle}
	}
}

// class reads what follows a bracket. A backslash is a character like any other
// in there, and a character of several bytes stands for each of them.
func (p *globParser) class() error {
	negated := false
	if r, _ := p.peek(); r == '!' || r == '^' {
		p.next()
		negated = true
	}
	var ranges [][2]rune
	first, inRange := true, false
	for {
		r, ok := p.next()
		if !ok {
			return errGlob
		}
		if r == ']' && !first {
			break
		}
		switch {
		case r == '-' && !first && !inRange:
			inRange = true
		case inRange:
			last := &ranges[len(ranges)-1]
			if last[1] = r; r < last[0] {
				return errGlob
			}
			inRange = false
		default:
			ranges = append(ranges, [2]rune{r, r})
		}
		first = false
	}
	if inRange {
		ranges = append(ranges, [2]rune{'-', '-'})
	}
	set, err := byteSet(ranges, negated)
	*p.top() = append(*p.top(), token{kind: tokClass, set: set})
	return err
}

func byteSet(ranges [][2]rune, negated bool) (*[4]uint64, error) {
	var set [4]uint64
	add := func(lo, hi byte) error {
		if hi < lo {
			return errGlob
		}
		for b := int(lo); b <= int(hi); b++ {
			set[b>>6] |= 1 << (b & 63)
		}
		return nil
	}
	for _, r := range ranges {
		lo, hi := string(r[0]), string(r[1])
		if lo == hi {
			hi = ""
		}
		// The last byte of one end and the first byte of the other are a range;
		// those around them count by themselves.
		for i := range len(lo) - 1 {
			_ = add(lo[i], lo[i])
		}
		for i := 1; i < len(hi); i++ {
			_ = add(hi[i], hi[i])
		}
		from := lo[len(lo)-1]
		to := from
		if hi != "" {
			to = hi[0]
		}
		if err := add(from, to); err != nil {
			return nil, err
		}
	}
	if negated {
		for i := range set {
			set[i] = ^set[i]
		}
	}
	return &set, nil
}
