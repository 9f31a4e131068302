package judge

import (
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
)

// Outgoing judges a connection of the session, or an HTTP request on one, as a call with this
// profile makes it. Records name the permission where those of calls name the tool.
func (j *Judge) Outgoing(profile string, q policy.Request) *Judgement {
	input, _ := policy.OutgoingInput(q.Permission, q.Pattern)
	inv := &tool.Invocation{Tool: &tool.Definition{Name: q.Permission}, JSON: input}
	m := &Judgement{Question: Question{Profile: profile, Inv: inv}, requests: []policy.Request{q}}
	j.Weigh(m)
	return m
}

// Stack gives the rules themselves; nil where everything is denied.
func (r *Rules) Stack() *policy.Stack {
	if r.err != nil {
		return nil
	}
	return r.stack
}
