package call

import (
	"strings"
	"unicode"

	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
)

// titleOf is the title of a call that was judged, which its result will have too.
func (s *site) titleOf(j *judge.Judgement) string {
	switch a := &j.Access; {
	case a.Command != "":
		return title(run.BashTitle(a.Title, a.Command))
	case a.Title != "":
		return title(run.SearchTitle(a.Title))
	case j.Prep == nil || len(j.Prep.Targets) == 0:
		return ""
	}
	return title(run.PathTitle(s.place.Row().Worktree.Target, j.Prep.Targets[0].Path))
}

// title is a title on one line.
func title(s string) string {
	const most = 512
	return plain.Cut(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")), most)
}
