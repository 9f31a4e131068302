package search

import (
	"context"
	"strings"
)

// globber is the memory that matching globs needs. It is one goroutine's.
type globber struct {
	ctx       context.Context // whose end is the end of all matches
	now, next []int32
	seen      []uint32 // by step: the generation that it was added in
	gen       uint32
	stack     []int32
}

// match reports whether g matches the whole of path, which has no slash at its
// beginning or end. Once m's ctx has ended the answer says nothing: there may be
// many globs, and each may take long.
func (m *globber) match(g *glob, path string) bool {
	switch g.form {
	case globPath:
		return path == g.text
	case globTail:
		rest, ok := strings.CutSuffix(path, g.text)
		return ok && (rest == "" || rest[len(rest)-1] == '/')
	case globSuffix:
		return strings.HasSuffix(path, g.text)
	default:
		return m.ctx.Err() == nil && m.run(g.prog, path)
	}
}

func (m *globber) run(prog []globOp, path string) bool {
	if len(m.seen) < len(prog) {
		m.seen = make([]uint32, len(prog))
		m.gen = 0
	}
	m.advance()
	m.now = m.add(prog, m.now[:0], 0)
	for i := 0; i < len(path) && len(m.now) > 0; i++ {
		m.advance()
		m.next = m.next[:0]
		for _, at := range m.now {
			if prog[at].takes(path[i]) {
				m.next = m.add(prog, m.next, at+1)
			}
		}
		m.now, m.next = m.next, m.now
	}
	for _, at := range m.now {
		if prog[at].kind == opEnd {
			return true
		}
	}
	return false
}

// advance begins a new set of steps.
func (m *globber) advance() {
	if m.gen++; m.gen == 0 {
		clear(m.seen)
		m.gen = 1
	}
}

// add puts the step at, or those that it leads to, into set.
func (m *globber) add(prog []globOp, set []int32, at int32) []int32 {
	m.stack = append(m.stack[:0], at)
	for len(m.stack) > 0 {
		at := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		if m.seen[at] == m.gen {
			continue
		}
		m.seen[at] = m.gen
		switch op := &prog[at]; op.kind {
		case opFork:
			m.stack = append(m.stack, op.x, op.y)
		case opJump:
			m.stack = append(m.stack, op.x)
		default:
			set = append(set, at)
		}
	}
	return set
}

func (op *globOp) takes(b byte) bool {
	switch op.kind {
	case opByte:
		return b == op.b
	case opNotSlash:
		return b != '/'
	case opAny:
		return true
	case opSet:
		return op.set[b>>6]&(1<<(b&63)) != 0
	default:
		return false
	}
}
