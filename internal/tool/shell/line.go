package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// travels reports whether a text may have a command after which the shell is
// elsewhere, or nowhere.
func travels(text string) bool {
	return strings.Contains(text, "exit") || slices.ContainsFunc(movers, func(name string) bool { return strings.Contains(text, name) })
}

// lines scans the statements of a whole script. bash reads and runs it line by
// line, and an error in an expression ends no more than the line: what stands on
// the next one runs then, wherever the shell is at that moment.
func (c *scanner) lines(d dirs, list []*syntax.Stmt) {
	constants := strings.Contains(c.src, "readonly") || strings.Contains(c.src, "declare") || strings.Contains(c.src, "typeset")
	if !travels(c.src) || !constants && !mayBreak(c.src) {
		c.list(d, list)
		return
	}
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Pos().Line() == list[n-1].End().Line() {
			n++
		}
		end := c.list(d, list[:n])
		switch moved, failing := breaks(list[:n], constants); {
		case failing && moved:
			d = lostDirs
		case failing:
			d = end.or(d) // what ends the script may not have been reached
		default:
			d = end
		}
		list = list[n:]
	}
}

// mayBreak reports whether a text may have what breaks calls failing, beside constants: none is written
// without one of these.
func mayBreak(text string) bool {
	if strings.Contains(text, "((") || strings.Contains(text, "${") {
		return true
	}
	blank := func(i int) bool { return i < 0 || i >= len(text) || strings.IndexByte(" \t\n", text[i]) >= 0 }
	for i := range len(text) {
		if text[i] == '[' && (!blank(i-1) || !blank(i+1)) {
			return true
		}
	}
	return false
}

// breaks reports whether a line changes the directory, and whether it may be left
// in its middle. constants: there may be variables that cannot be assigned to.
func breaks(line []*syntax.Stmt, constants bool) (moved, failing bool) {
	for _, s := range line {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.CallExpr:
				moved = moved || moves(n)
			case *syntax.Assign:
				failing = failing || constants || n.Index != nil
			case *syntax.ParamExp:
				failing = failing || n.Slice != nil || n.Index != nil
			case *syntax.ArrayElem:
				failing = failing || n.Index != nil
			case *syntax.BinaryTest:
				failing = failing || numeric(n.Op)
			case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.CStyleLoop:
				failing = true
			}
			return !moved || !failing
		})
	}
	return moved, failing
}
