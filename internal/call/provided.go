package call

import (
	"cmp"
	"strings"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Most paths lead where they say. So a call is judged on what Prepare would see
// if its paths had no links in them; when that is allowed, Prepare and Run are one
// exchange: the agent prepares, goes on only if every path leads exactly there,
// and has done nothing otherwise. Then the call is judged again on what was seen.
// Either way it runs only if the rules allow the very paths that it touches.

// provided gives what Prepare would see of a call in a worktree without links, nil where
// that cannot be said.
func provided(dir string, inv *tool.Invocation, a tool.Access) *run.Prepared {
	paths := a.Paths()
	prep := &run.Prepared{Targets: make([]run.Target, 0, len(paths)+1)}
	if in, ok := inv.Input.(tool.Placed); ok {
		if len(paths) > run.MaxPaths {
			return nil
		}
		// Its Prepare resolves the working directory first.
		asked := cmp.Or(in.Workdir(), dir)
		dir = policy.Under(dir, asked)
		prep.Targets = append(prep.Targets, run.Target{Asked: asked, Path: dir})
	} else if len(paths) == 0 || len(paths) > run.MaxPaths {
		return nil
	}
	for _, p := range paths {
		if strings.IndexByte(p, 0) >= 0 {
			return nil
		}
		prep.Targets = append(prep.Targets, run.Target{Asked: p, Path: policy.Under(dir, p), Write: writes(a, p)})
	}
	return prep
}

func writes(a tool.Access, p string) bool {
	for i := range a.Requests {
		if r := &a.Requests[i]; r.Path == p && r.Write && !r.Outside {
			return true
		}
	}
	return false
}

// askProvided makes a request of Run one that prepares itself.
func askProvided(r agent.Request, inv *tool.Invocation, a tool.Access, prep *run.Prepared) agent.Request {
	r = PrepareRequest(r, inv, a)
	r.Prepared, r.Expect = nil, prep.Paths()
	return r
}

// PrepareRequest adds the paths that are to be resolved, where the agent does not find
// them in the input.
func PrepareRequest(r agent.Request, inv *tool.Invocation, a tool.Access) agent.Request {
	if _, ok := inv.Input.(tool.Placed); ok {
		r.Paths = a.Paths()
		// What is not resolved is judged as leading anywhere.
		r.Paths = r.Paths[:min(len(r.Paths), run.MaxPaths)]
	}
	return r
}
