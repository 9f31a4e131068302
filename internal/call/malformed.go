package call

import (
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool"
)

// refuseInput says why a call does not run whose input no tool takes. Such calls
// are part of loops. Nobody is asked about one: there is nothing to allow.
func (g *Group) refuseInput(c *Call, inv *tool.Invocation) error {
	loop, err := g.guard(c, inv)
	if err != nil {
		return err
	}
	if loop == nil {
		return c.malformed
	}
	j := g.judge.JudgeLoop(c.question(inv, tool.Access{}, nil, loop))
	err = g.asking(c).permit(j)
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code == client.CodeDoomLoop {
		// What is wrong with the call has to be said all the same.
		e.Message += "\n" + c.malformed.Message
		e.Hint, e.Violations = c.malformed.Hint, c.malformed.Violations
		if e.Hint == "" {
			e.Hint = "change the input as is said here; the same one is refused each time"
		}
		return e
	}
	if err == nil {
		err = c.malformed
	}
	return err
}
