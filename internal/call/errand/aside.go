package errand

import (
	"context"
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
	_, err := e.do(ctx, e.request(run.AsideJob(), 1, asideTime), silent)
	return err
}
