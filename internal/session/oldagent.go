package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// askForTools stores which tools the agent has not, because it is of an older toold: they are
// not offered. One that has those of this daemon says so in its welcome.
func askForTools(ctx context.Context, s *Session, w *agent.Welcome) error {
	lacks, err := lacking(ctx, s, w)
	if err != nil || slices.Equal(lacks, s.Row().Lacks) {
		return err
	}
	s.log.Warn("the session's agent is of an older toold: it has not all tools", "lacks", lacks)
	return s.write("", func(row *store.Session) error { row.Lacks = lacks; return nil })
}

func lacking(ctx context.Context, s *Session, w *agent.Welcome) (lacks []string, err error) {
	if w.Tools == run.Fingerprint(run.Builtin()) {
		return nil, nil
	}
	l, err := s.agent.Link()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, toolsTime)
	defer cancel()
	for _, d := range s.daemon.cfg.Tools.All() {
		if d.By != tool.ByAgent {
			continue
		}
		// What it says of an empty input does not matter.
		_, err := l.Prepare(ctx, agent.Request{CallID: s.daemon.store.NewID("call_"), Tool: d.Name, Input: []byte("{}"), TimeoutMillis: toolsTime.Milliseconds()})
		switch {
		case run.IsNoTool(err):
			lacks = append(lacks, d.Name)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, agent.ErrLost):
			return nil, err
		}
	}
	return lacks, nil
}

// toolsTime bounds the question which tools an agent has.
const toolsTime = 10 * time.Second
