package call

import (
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// entitle says what the call is about, before its result does.
func (c *Call) entitle(t string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row.Title = t
}

// titleOf is the title of a call that was judged, which its result will have too.
func (g *Group) titleOf(j *judge.Judgement) string {
	switch a := &j.Access; {
	case a.Command != "":
		return title(run.BashTitle(a.Title, a.Command))
	case a.Title != "":
		return title(run.SearchTitle(a.Title))
	case j.Prep == nil || len(j.Prep.Targets) == 0:
		return ""
	}
	return title(run.PathTitle(g.place.Row().Worktree.Target, j.Prep.Targets[0].Path))
}

// entitleAgain is entitle for a call that an earlier daemon has judged.
func (g *Group) entitleAgain(c *Call, inv *tool.Invocation) {
	if inv == nil {
		return
	}
	a := inv.Input.Access(g.shell())
	c.entitle(g.titleOf(&judge.Judgement{Question: c.question(inv, a, g.provided(c, inv, a), nil)}))
}
