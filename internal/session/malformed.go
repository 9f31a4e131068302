package session

import (
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool"
)

// refuseInput says why a call does not run whose input no tool takes. Such calls
// are part of loops. Nobody is asked about one: there is nothing to allow.
func (s *Session) refuseInput(c *call, inv *tool.Invocation) error {
	loop, err := s.guard(c, inv)
	if err != nil {
		return err
	}
	if loop == nil {
		return c.malformed
	}
	j := s.judge.JudgeLoop(c.question(inv, tool.Access{}, nil, loop))
	err = s.permit(c, j)
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
