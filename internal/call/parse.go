package call

import (
	"errors"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/answer"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// parse does step 1: everything about a request that can be wrong.
func (st *steps) parse(c *Call) (*tool.Invocation, error) {
	if err := st.check(&c.req); err != nil {
		return nil, err
	}
	parse := st.daemon.Tools.Parse
	if c.hidden {
		parse = st.daemon.Tools.ParseHidden
	}
	inv, err := parse(c.req.Tool, c.req.Input)
	if bad, ok := errors.AsType[*client.Error](err); ok && !c.hidden {
		c.malformed = bad
		return st.daemon.Tools.Malformed(c.req.Tool, c.req.Input), nil
	}
	if err != nil {
		return nil, err
	}
	if bad := st.unchosen(c, inv); bad != nil {
		c.malformed = bad
		return st.daemon.Tools.Malformed(c.req.Tool, c.req.Input), nil
	}
	row := st.place.Row()
	c.translated = Translate(&row, inv)
	c.allowance = st.allow(&c.req, inv)
	c.aliases = inv.Aliases
	for _, a := range inv.Aliases {
		st.daemon.observe(func(o Observer) { o.Alias(inv.Tool.Name, a) })
	}
	if inv.Lenient > 0 {
		st.daemon.observe(func(o Observer) { o.LenientConversion(inv.Tool.Name) })
	}
	return inv, nil
}

// Translate takes the host's path of a session's worktree, as people paste it, for the sandbox's,
// and reports whether an input had it. It is replaced only where the sandbox has nothing of its own
// at such a path.
func Translate(row *store.Session, inv *tool.Invocation) bool {
	source, target := remark.HostWorktree(row.Worktree)
	if source == "" || !remark.Foreign(&row.Session, source) || !remark.Mentions(inv.JSON, source) {
		return false
	}
	return inv.Rebase(source, target)
}

// maxReplacements is how often hooks may replace the input of one call.
const maxReplacements = 3

// replace takes the input that a hook wants instead of the call's own. The record
// says what really runs. An outcome is why it cannot be taken.
func (st *steps) replace(c *Call, inv *tool.Invocation, round int) *outcome {
	if round >= maxReplacements {
		return failed(fault.Denied, "denied: hooks replaced the input more than %d times", maxReplacements)
	}
	err := c.flush()
	if err == nil {
		err = st.daemon.Store.Write(func(tx *store.Tx) error { return tx.ReplaceInput(c.id, inv.JSON) })
	}
	if err != nil {
		return st.notRun(c.id, err)
	}
	c.allowance = st.allow(&c.req, inv)
	c.mu.Lock()
	st.tenant.Kept.Add(int64(len(inv.JSON) - len(c.row.Input)))
	c.row.Input = inv.JSON
	c.mu.Unlock()
	return nil
}

// unchosen says why the session has no such tool; nil where it has.
func (st *steps) unchosen(c *Call, inv *tool.Invocation) *client.Error {
	if c.hidden || c.probe {
		return nil
	}
	rules := st.judge.Rules(c.profile)
	why := rules.Unchosen(inv.Tool)
	if why == "" {
		return nil
	}
	hint := "this session has no tools"
	if names := rules.Set().Names(); len(names) > 0 {
		hint = "the tools are " + strings.Join(names, ", ")
	}
	return answer.Of(fault.NoTool.Errorf("this session has no tool %s: %s", inv.Tool.Name, why).Next(hint))
}
