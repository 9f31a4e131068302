package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// toolSet is the tools that the session has now.
func (s *Session) toolSet() *tool.Set { return s.judge.Rules(s.Row().Profile).Set() }

// tellTools tells that the session has other tools than before, if it has.
func (s *Session) tellTools(before *tool.Set) {
	now := s.toolSet()
	if now.Revision == before.Revision {
		return
	}
	s.daemon.publish(s.event(client.EventToolsChanged, client.ToolsChanged{
		Revision: now.Revision, Added: without(now.Names(), before.Names()), Removed: without(before.Names(), now.Names()),
	}))
}

// without are those of all that are not in others.
func without(all, others []string) []string {
	return append([]string{}, slices.DeleteFunc(all, func(n string) bool { return slices.Contains(others, n) })...)
}

// askForTools stores which tools the agent has not, because it is of an older toold: they are
// not offered. One that has those of this daemon says so in its welcome.
func (s *Session) askForTools(ctx context.Context, w *agent.Welcome) error {
	lacks, err := s.lacking(ctx, w)
	if err != nil || slices.Equal(lacks, s.Row().Lacks) {
		return err
	}
	s.log.Warn("the session's agent is of an older toold: it has not all tools", "lacks", lacks)
	return s.write("", func(row *store.Session) error { row.Lacks = lacks; return nil })
}

func (s *Session) lacking(ctx context.Context, w *agent.Welcome) (lacks []string, err error) {
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
		case ctx.Err() != nil || errors.Is(err, agent.ErrLost):
			return nil, err
		}
	}
	return lacks, nil
}

// toolsTime bounds the question which tools an agent has.
const toolsTime = 10 * time.Second
