package search

import (
	"context"
	"regexp/syntax"
	"unicode/utf8"
)

// pike finds where matches begin and end, in texts of many lines: the first from
// the left, and of those that begin there the one that the pattern prefers. It
// is one goroutine's.
type pike struct {
	prog      *syntax.Prog
	now, next []thread
	seen      []uint32
	gen       uint32
	stack     []uint32
}

// thread is a place in the program and where the match that it is in began.
type thread struct {
	pc    uint32
	start int
}

func newPike(prog *syntax.Prog) *pike {
	return &pike{prog: prog, seen: make([]uint32, len(prog.Inst))}
}

// find is the first match in text that begins at from or behind; ok is false
// when there is none, or ctx has ended.
func (p *pike) find(ctx context.Context, text []byte, from int) (start, end int, ok bool) {
	before := noRune
	if from > 0 {
		before = lastRune(text[:from])
	}
	p.now = p.now[:0]
	p.advance()
	for at, n := from, 0; ; n++ {
		if n&0xfff == 0 && ctx.Err() != nil {
			return 0, 0, false
		}
		after, size := runeAt(text, at)
		flags := emptyFlags(before, after)
		if !ok {
			// Behind those that began before: they are to be preferred.
			p.now = p.add(p.now, uint32(p.prog.Start), at, flags)
		}
		if len(p.now) == 0 && ok {
			return start, end, true
		}
		afterNext, _ := runeAt(text, at+size)
		nextFlags := emptyFlags(after, afterNext)
		p.advance()
		p.next = p.next[:0]
	threads:
		for _, t := range p.now {
			in := &p.prog.Inst[t.pc]
			switch {
			case in.Op == syntax.InstMatch:
				start, end, ok = t.start, at, true
				break threads // those behind it are less preferred
			case size > 0 && takes(in, after):
				p.next = p.add(p.next, in.Out, t.start, nextFlags)
			}
		}
		p.now, p.next = p.next, p.now
		if size == 0 {
			return start, end, ok
		}
		before = after
		at += size
	}
}

func (p *pike) advance() {
	if p.gen++; p.gen == 0 {
		clear(p.seen)
		p.gen = 1
	}
}

// add puts the places that pc leads to into list, in the order of preference.
func (p *pike) add(list []thread, pc uint32, start int, flags syntax.EmptyOp) []thread {
	p.stack = append(p.stack[:0], pc)
	for len(p.stack) > 0 {
		pc := p.stack[len(p.stack)-1]
		p.stack = p.stack[:len(p.stack)-1]
		if p.seen[pc] == p.gen {
			continue
		}
		p.seen[pc] = p.gen
		switch in := &p.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			p.stack = append(p.stack, in.Arg, in.Out)
		case syntax.InstCapture, syntax.InstNop:
			p.stack = append(p.stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				p.stack = append(p.stack, in.Out)
			}
		case syntax.InstFail:
		default:
			list = append(list, thread{pc, start})
		}
	}
	return list
}

// runeAt is the character at a place, and its size; 0 at the end.
func runeAt(text []byte, at int) (rune, int) {
	if at >= len(text) {
		return noRune, 0
	}
	if c := text[at]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	r, size := utf8.DecodeRune(text[at:])
	if r == utf8.RuneError && size == 1 {
		return badRune, 1
	}
	return r, size
}

func lastRune(text []byte) rune {
	r, size := utf8.DecodeLastRune(text)
	if r == utf8.RuneError && size == 1 {
		return badRune
	}
	return r
}
