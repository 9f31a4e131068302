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

// program lists the command q, which runs p, once for each file that p may be.
func (m *mapping) program(q Request, p *shell.Program) {
	if m.Dir == "" {
		q.Opaque, q.Why, q.Save = true, whyElsewhere, ""
		m.elsewhere(&q)
	}
	if len(p.Names) == 0 || m.Dir == "" {
		m.all = append(m.all, q)
		return
	}
	for _, name := range p.Names {
		each, is := q, Under(m.Dir, name)
		also := m.spellings(p, is)
		if is != Under(m.Worktree, p.Word) {
			each.Pattern, each.Save = p.As(m.fromWorktree(p, is)), ""
			also = append(also, q.Pattern)
		}
		if to, ok := m.Resolve(name); ok && to.Path != is {
			also = append(also, m.spellings(p, to.Path)...)
		}
		if q.Also != "" {
			also = append(also, q.Also)
		}
		each.Also = strings.Join(also, "\x00")
		m.all = append(m.all, each)
	}
}

// fromWorktree is how one names a file in the worktree's root as p does.
func (m *mapping) fromWorktree(p *shell.Program, file string) string {
	relative := RelativeTo(m.Worktree, file)
	switch {
	case relative == "":
		return file
	case strings.HasPrefix(p.Word, ".") || !p.Script && !strings.Contains(relative, "/"):
		return "./" + relative
	}
	return relative
}

// spellings are the command of p with each of the paths by which a file may be meant.
func (m *mapping) spellings(p *shell.Program, file string) []string {
	paths := append(make([]string, 0, 3), file)
	if relative := RelativeTo(m.Worktree, file); relative != "" {
		paths = append(paths, "./"+relative)
		if p.Script || strings.Contains(relative, "/") {
			paths = append(paths, relative)
		}
	}
	all := make([]string, 0, 8)
	for _, name := range paths {
		as := p.As(name)
		if all = append(all, as); p.Plain(name) != as {
			all = append(all, p.Plain(name))
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
