package policy

import (
	"strings"

	"github.com/toold/toold/internal/tool/shell"
)

// A command such as "./x" runs another file in each directory. What rules say of it is about the
// worktree: in every other directory the path from there is judged, by lines that allow it alone,
// by those that ask or deny beside all other paths that lead to the same file.

// whyElsewhere is why a command is opaque of which it is not known where it starts.
const whyElsewhere = "it is not known which directory it runs in"

// program lists the command q, which runs p, once for each directory that it may run in.
func (m *mapping) program(q Request, p *shell.Program) {
	if m.Dir == "" {
		q.Opaque, q.Why, q.Save = true, whyElsewhere, ""
		m.elsewhere(&q)
		m.all = append(m.all, q)
		return
	}
	if p.Places == 0 {
		m.all = append(m.all, q) // it is not reached
	}
	for place := range p.Places {
		each, paths, there := q, words(p), false
		var also []string
		for n := range p.Files {
			f := &p.Files[n]
			for i, name := range f.Names {
				if !f.Moved && i != min(place, len(f.Names)-1) {
					continue
				}
				is := Under(m.Dir, name)
				also = m.spellings(also, p, n, is)
				if to, ok := m.Resolve(name); ok && to.Path != is {
					also = m.spellings(also, p, n, to.Path)
				}
				if !f.Moved && is != Under(m.Worktree, f.Word) {
					paths[n], there = m.fromWorktree(f, is), true
				}
			}
		}
		if there {
			each.Pattern, each.Save = p.As(paths...), ""
			also = append(also, q.Pattern)
		}
		if q.Also != "" {
			also = append(also, q.Also)
		}
		each.Also = strings.Join(also, "\x00")
		m.all = append(m.all, each)
	}
}

// words are the paths of p as the command has them.
func words(p *shell.Program) []string {
	all := make([]string, len(p.Files))
	for i := range p.Files {
		all[i] = p.Files[i].Word
	}
	return all
}

// fromWorktree is how one names a file in the worktree's root as f does.
func (m *mapping) fromWorktree(f *shell.File, file string) string {
	relative := RelativeTo(m.Worktree, file)
	switch {
	case relative == "":
		return file
	case strings.HasPrefix(f.Word, ".") || !f.Script && !strings.Contains(relative, "/"):
		return "./" + relative
	}
	return relative
}

// spellings adds to all the command of p with each of the paths by which file may be meant in the place of path n.
func (m *mapping) spellings(all []string, p *shell.Program, n int, file string) []string {
	paths := append(make([]string, 0, 3), file)
	if relative := RelativeTo(m.Worktree, file); relative != "" {
		paths = append(paths, "./"+relative)
		if p.Files[n].Script || strings.Contains(relative, "/") {
			paths = append(paths, relative)
		}
	}
	each := words(p)
	for _, each[n] = range paths {
		as, plain := p.As(each...), p.Plain(each...)
		if all = append(all, as); plain != as {
			all = append(all, plain)
		}
	}
	return all
}

// elsewhere makes of q, a whole text that is not judged by its parts, the text that does the same in
// the worktree's root.
func (m *mapping) elsewhere(q *Request) {
	text := q.Pattern
	switch relative := RelativeTo(m.Worktree, m.Dir); {
	case m.Dir == m.Worktree:
		return
	case m.Dir == "":
		q.Pattern = "cd * && " + text // no rule's text
	case relative != "":
		q.Pattern = shell.InDirectory(relative, text)
	default:
		q.Pattern = shell.InDirectory(m.Dir, text)
	}
	also := q.Also
	if q.Also = text; also != "" {
		q.Also += "\x00" + also
	}
}
