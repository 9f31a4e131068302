package run

import (
	"context"
	"encoding/json"
)

// Aside takes out of the worktree what waits there for a next command, so that it can be
// replaced. It is the daemon's own: no tool that is offered.
type Aside struct{ unprepared }

// Name implements Tool.
func (Aside) Name() string { return "worktree_aside" }

// AsideJob is for a session in which no call runs.
func AsideJob() Job { return jobOf(Aside{}, map[string]any{}) }

// Run implements Tool.
func (a Aside) Run(ctx context.Context, env *Env, _ json.RawMessage, _ *Prepared) (*Result, error) {
	if err := env.Aside(ctx); err != nil {
		return nil, err
	}
	return &Result{Title: a.Name()}, nil
}
