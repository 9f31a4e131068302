package treediff

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Touched is what of a tree may differ, as somebody knows who sees what was written to it. Nothing
// else is looked at: a tree that is laid over its base may show of it what is not there any more.
// A directory counts without what is in it, unless it is Whole.
type Touched struct {
	name  string
	whole bool
	below []Touched // in the order of their names
}

// Spot is a path that may differ. What is no directory on both sides is to be Whole: then all that
// is below counts.
type Spot struct {
	Path  string
	Whole bool
}

// PackTouched gives spots, which have one for each directory above them, in the form that
// ParseTouched takes: names in the order of a walk, each with a NUL byte behind it. A directory that
// is not whole has a slash behind its name, and a slash alone ends it.
func PackTouched(spots []Spot) []byte {
	slices.SortFunc(spots, func(a, b Spot) int { return inWalk(a.Path, b.Path) })
	var out bytes.Buffer
	dir, whole := "", ""
	up := func(path string) {
		for dir != "" && !strings.HasPrefix(path, dir+"/") {
			dir = dir[:max(0, strings.LastIndexByte(dir, '/'))]
			out.WriteString("/\x00")
		}
	}
	for i, s := range spots {
		if whole != "" && strings.HasPrefix(s.Path, whole+"/") {
			continue
		}
		for j := i + 1; j < len(spots) && spots[j].Path == s.Path; j++ {
			s.Whole = s.Whole || spots[j].Whole
		}
		if i > 0 && spots[i-1].Path == s.Path {
			continue
		}
		up(s.Path)
		out.WriteString(s.Path[strings.LastIndexByte(s.Path, '/')+1:])
		if s.Whole {
			whole = s.Path
		} else {
			dir = s.Path
			out.WriteByte('/')
		}
		out.WriteByte(0)
	}
	return out.Bytes()
}

// inWalk compares paths in the order of a walk, which has what is in a directory behind it.
func inWalk(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/' || b[i] != '/' && a[i] < b[i]:
			return -1
		default:
			return 1
		}
	}
	return len(a) - len(b)
}

var errTouched = errors.New("what may differ is said in no way that is known")

// ParseTouched reads what PackTouched has written.
func ParseTouched(text []byte) (*Touched, error) {
	stack, left := []Touched{{}}, string(text)
	up := func() {
		n := len(stack) - 1
		last := stack[n]
		stack = stack[:n]
		stack[n-1].below = append(stack[n-1].below, last)
	}
	for left != "" {
		name, rest, ends := strings.Cut(left, "\x00")
		left = rest
		if name == "/" && len(stack) > 1 {
			up()
			continue
		}
		name, dir := strings.CutSuffix(name, "/")
		in := &stack[len(stack)-1]
		if !ends || name == "" || name == "." || name == ".." || strings.Contains(name, "/") || len(stack) > MaxPath ||
			len(in.below) > 0 && in.below[len(in.below)-1].name >= name {
			return nil, errTouched
		}
		if dir {
			stack = append(stack, Touched{name: name})
		} else {
			in.below = append(in.below, Touched{name: name, whole: true})
		}
	}
	for len(stack) > 1 {
		up()
	}
	return &stack[0], nil
}

// named reports whether names are given for what is in a directory; else all counts.
func (t *Touched) named() bool { return t != nil && !t.whole }

// of leaves out what is not selected.
func (t *Touched) of(sel *selection) *Touched {
	if !t.named() || sel.all {
		return t
	}
	some := &Touched{name: t.name}
	for _, b := range t.below {
		if sel.below[b.name] != nil {
			some.below = append(some.below, b)
		}
	}
	return some
}

// at is what may differ of an entry.
func (t *Touched) at(name string) *Touched {
	if !t.named() {
		return t
	}
	i, is := slices.BinarySearchFunc(t.below, name, func(b Touched, name string) int { return cmp.Compare(b.name, name) })
	if !is {
		return &Touched{}
	}
	return &t.below[i]
}
