package call

import (
	"cmp"
	"path"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Most paths lead where they say. So a call is judged on what Prepare would see
// if its paths had no links in them; when that is allowed, Prepare and Run are one
// exchange: the agent prepares, goes on only if every path leads exactly there,
// and has done nothing otherwise. Then the call is judged again on what was seen.
// Either way it runs only if the rules allow the very paths that it touches.

// provided gives what Prepare would see of a call without links, nil where that
// cannot be said.
func (g *Group) provided(c *Call, inv *tool.Invocation, a tool.Access) *run.Prepared {
	if !a.Prepare || c.asked != nil {
		return nil
	}
	dir := g.place.Row().Worktree.Target
	paths := a.Paths()
	prep := &run.Prepared{Targets: make([]run.Target, 0, len(paths)+1)}
	if in, ok := inv.Input.(tool.Placed); ok {
		if len(paths) > run.MaxPaths {
			return nil
		}
		// Its Prepare resolves the working directory first.
		asked := cmp.Or(in.Workdir(), dir)
		dir = lexical(dir, asked)
		prep.Targets = append(prep.Targets, run.Target{Asked: asked, Path: dir})
	} else if len(paths) != 1 {
		return nil
	}
	for _, p := range paths {
		if strings.IndexByte(p, 0) >= 0 {
			return nil
		}
		prep.Targets = append(prep.Targets, run.Target{Asked: p, Path: lexical(dir, p), Write: writes(a, p)})
	}
	return prep
}

// lexical is where a path leads when nothing on it is a link.
func lexical(dir, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(dir, p)
}

func writes(a tool.Access, p string) bool {
	for i := range a.Requests {
		if r := &a.Requests[i]; r.Path == p && r.Write && !r.Outside {
			return true
		}
	}
	return false
}

// pathsOf are the paths that the agent is to find.
func pathsOf(prep *run.Prepared) []string {
	list := make([]string, 0, len(prep.Targets))
	for _, t := range prep.Targets {
		list = append(list, t.Path)
	}
	return list
}

// judgeFirst does steps 5 and 6 for a call whose paths are looked at only when it
// runs. It is nil where they must be looked at before.
func (g *Group) judgeFirst(c *Call, inv *tool.Invocation, a tool.Access, loop *judge.Loop) *judge.Judgement {
	prep := g.provided(c, inv, a)
	if prep == nil {
		return nil
	}
	j := g.judge.Judge(c.question(inv, a, prep, loop))
	if j.Verdict.Action != policy.Allow {
		return nil
	}
	j.Provided = true
	return j
}

// askProvided makes a request of Run one that prepares itself.
func askProvided(r agent.Request, inv *tool.Invocation, a tool.Access, prep *run.Prepared) agent.Request {
	r = PrepareRequest(r, inv, a)
	r.Prepared, r.Expect = nil, pathsOf(prep)
	return r
}

// notThere takes back that a call runs, whose paths lead elsewhere than they say:
// the agent has done nothing, and may forget it. It is no loss if that does not
// arrive: a call that has not run may be run.
func (g *Group) notThere(c *Call) error {
	if err := g.svc.Store.Write(func(tx *store.Tx) error { return tx.RequeueCall(c.id) }); err != nil {
		return err
	}
	c.mu.Lock()
	c.row.Status, c.row.Time.Started = client.CallPending, nil
	c.started = false
	if c.abortBy != "" {
		c.cancel(errAborted)
	}
	c.mu.Unlock()
	c.writes = nil
	g.tail(c).forget()
	return nil
}

// notJudged is the outcome of a call of an earlier daemon, whose paths led
// elsewhere than they say and which was not judged again.
func notJudged() *outcome {
	o := neverSent()
	o.held = true
	return o
}
