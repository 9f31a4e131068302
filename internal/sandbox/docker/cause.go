package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
)

const removed = "its container was removed from the Docker Engine"

// Cause implements sandbox.Witness.
func (s *Sandbox) Cause(ctx context.Context) string {
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		st, err := s.d.engine.inspect(ctx, s.rec.Container)
		switch {
		case errors.Is(err, errNotFound):
			return removed
		case err != nil && ctx.Err() == nil:
			return "and the Docker Engine is gone too"
		case err != nil:
			return ""
		case !st.State.Running:
			return cause(st.State)
		}
		// The Engine learns of it a moment later than we do.
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ""
		}
	}
}

// cause is what the Engine knows about the end of a container.
func cause(st *container.State) string {
	const killed, stopped = 128 + 9, 128 + 15
	switch {
	case st.Dead, st.Status == container.StateRemoving:
		return removed
	case st.OOMKilled:
		return "the kernel killed it for memory"
	case st.ExitCode == killed:
		return "its container was killed"
	case st.ExitCode == 0, st.ExitCode == stopped:
		return "its container was stopped"
	default:
		return fmt.Sprintf("its container ended with status %d", st.ExitCode)
	}
}
