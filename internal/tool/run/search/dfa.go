package search

import (
	"context"
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode/utf8"

	"github.com/toold/toold/internal/tool/run/root"
)

// What stands for a character where there is none: the beginning or the end of
// the text, and a byte that is not UTF-8, which nothing matches.
const (
	noRune  rune = -1
	badRune rune = -2
)

// Bounds of the states that a dfa remembers. Past them it forgets all and goes
// on; a pattern can have more than there is memory.
const (
	maxStates     = 2000
	maxStateBytes = 8 << 20
	maxWide       = 20_000
	// stateBytes and placeBytes are what a state takes, and each of its places.
	stateBytes = 1200
	placeBytes = 8
)

// dfa tells whether a line matches. Its states are made as they are needed, and
// forgotten when there is no memory for more. It is one goroutine's.
type dfa struct {
	prog    *syntax.Prog
	scratch *root.Scratch // of states
	states  map[string]*dfaState
	wide    map[wideKey]*dfaState
	start   *dfaState
	found   *dfaState
	missed  *dfaState
	short   bool // a state is loose
	bytes   int  // of states, about; those are taken of scratch
	forgot  int  // how often
	steps   int

	set, next []uint32
	seen      []uint32
	gen       uint32
	stack     []uint32
	key       []byte
}

// dfaState is a set of places in the program, before what matches without a
// character is followed, and the kind of character before it: that is all that
// the rest of the line can depend on.
type dfaState struct {
	pcs    []uint32
	before rune // noRune, or one that stands for its kind
	next   [utf8.RuneSelf]*dfaState
	end    *dfaState // found or missed
	loose  bool      // there was no memory for it: nothing may lead to it
}

type wideKey struct {
	from *dfaState
	r    rune
}

func newDFA(prog *syntax.Prog, scratch *root.Scratch) *dfa {
	d := &dfa{prog: prog, scratch: scratch, seen: make([]uint32, len(prog.Inst)), found: &dfaState{}, missed: &dfaState{}}
	d.forget()
	return d
}

func (d *dfa) forget() {
	d.forgot, d.short = d.forgot+1, false
	d.scratch.Give(int64(d.bytes))
	d.states, d.wide, d.bytes = make(map[string]*dfaState), make(map[wideKey]*dfaState), 0
	d.start = d.state([]uint32{uint32(d.prog.Start)}, noRune)
}

// state is the one with these places.
func (d *dfa) state(pcs []uint32, before rune) *dfaState {
	slices.Sort(pcs)
	d.key = binary.NativeEndian.AppendUint32(d.key[:0], uint32(before))
	for _, pc := range pcs {
		d.key = binary.NativeEndian.AppendUint32(d.key, pc)
	}
	s := d.states[string(d.key)]
	if s == nil {
		s = &dfaState{pcs: slices.Clone(pcs), before: before}
		n := stateBytes + placeBytes*len(pcs)
		if s.loose = !d.scratch.Take(int64(n)); s.loose {
			d.short = true
			return s
		}
		d.states[string(d.key)] = s
		d.bytes += n
	}
	return s
}

// match reports whether there is a match in line, which has no line break. It
// gives up, with false, when ctx ends.
func (d *dfa) match(ctx context.Context, line []byte) bool {
	s := d.start
	for i := 0; i < len(line); {
		if c := line[i]; c < utf8.RuneSelf {
			next := s.next[c]
			if next == nil {
				next = d.step(s, rune(c))
				if !next.loose {
					s.next[c] = next
				}
			}
			s = next
			i++
		} else {
			r, size := utf8.DecodeRune(line[i:])
			if r == utf8.RuneError && size == 1 {
				r = badRune
			}
			s = d.stepWide(s, r)
			i += size
		}
		if s == d.found {
			return true
		}
		if d.steps >= 1024 {
			if d.steps = 0; ctx.Err() != nil {
				return false
			}
		}
	}
	if s.end == nil {
		if s.end = d.step(s, noRune); s.end != d.found {
			s.end = d.missed
		}
	}
	return s.end == d.found
}

func (d *dfa) stepWide(s *dfaState, r rune) *dfaState {
	next := d.wide[wideKey{s, r}]
	if next == nil {
		forgot := d.forgot
		next = d.step(s, r)
		if d.forgot > forgot || s.loose || next.loose {
			return next // what the map knows would not go
		}
		if len(d.wide) >= maxWide {
			clear(d.wide)
		}
		d.wide[wideKey{s, r}] = next
	}
	return next
}

// step is where the character r leads to from s.
func (d *dfa) step(s *dfaState, r rune) *dfaState {
	d.steps++
	if d.short || len(d.states) >= maxStates || d.bytes >= maxStateBytes {
		d.forget()
	}
	if !d.closure(s, emptyFlags(s.before, r)) {
		d.next = d.next[:0]
		for _, pc := range d.set {
			if in := &d.prog.Inst[pc]; takes(in, r) {
				d.next = append(d.next, in.Out)
			}
		}
		d.next = append(d.next, uint32(d.prog.Start)) // a match may begin anywhere
		slices.Sort(d.next)
		d.next = slices.Compact(d.next)
		return d.state(d.next, kindOf(r))
	}
	return d.found
}

// closure fills d.set with the places that wait for a character, from those of s
// under what holds there; true means that there is a match.
func (d *dfa) closure(s *dfaState, flags syntax.EmptyOp) bool {
	if d.gen++; d.gen == 0 {
		clear(d.seen)
		d.gen = 1
	}
	d.set = d.set[:0]
	d.stack = append(d.stack[:0], s.pcs...)
	for len(d.stack) > 0 {
		pc := d.stack[len(d.stack)-1]
		d.stack = d.stack[:len(d.stack)-1]
		if d.seen[pc] == d.gen {
			continue
		}
		d.seen[pc] = d.gen
		switch in := &d.prog.Inst[pc]; in.Op {
		case syntax.InstMatch:
			return true
		case syntax.InstAlt, syntax.InstAltMatch:
			d.stack = append(d.stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			d.stack = append(d.stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				d.stack = append(d.stack, in.Out)
			}
		case syntax.InstFail:
		default:
			d.set = append(d.set, pc)
		}
	}
	return false
}

func takes(in *syntax.Inst, r rune) bool {
	return r >= 0 && in.MatchRune(r)
}

// kindOf is a character that stands for all that matter in the same way to what
// comes after them.
func kindOf(r rune) rune {
	switch {
	case r == '\n':
		return '\n'
	case r >= 0 && isWord(r):
		return 'a'
	default:
		return ' '
	}
}

// emptyFlags are the conditions that hold between two characters.
func emptyFlags(before, after rune) syntax.EmptyOp {
	var flags syntax.EmptyOp
	switch before {
	case noRune:
		flags |= syntax.EmptyBeginText | syntax.EmptyBeginLine
	case '\n':
		flags |= syntax.EmptyBeginLine
	}
	switch after {
	case noRune:
		flags |= syntax.EmptyEndText | syntax.EmptyEndLine
	case '\n':
		flags |= syntax.EmptyEndLine
	}
	if (before >= 0 && isWord(before)) != (after >= 0 && isWord(after)) {
		return flags | syntax.EmptyWordBoundary
	}
	return flags | syntax.EmptyNoWordBoundary
}
