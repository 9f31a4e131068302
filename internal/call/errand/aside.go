package errand

import (
	"context"
	"errors"
	"time"

	"github.com/toold/toold/internal/tool/run"
)

// asideTime bounds the end of what waits for a next command.
const asideTime = 10 * time.Second

// Aside has the agent take out of the worktree what waits there for a next command. No
// call may run meanwhile.
func (e *Errand) Aside(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, asideTime)
	defer cancel()
	out, err := e.run(ctx, e.request(run.AsideJob(), 1, asideTime), new(smallFile))
	switch {
	case err != nil:
		return err
	case out.Err != nil:
		return out.Err
	case out.Result == nil || out.Result.IsError:
		return errors.New("the agent gave no answer")
	}
	return nil
}
