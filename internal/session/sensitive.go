package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
)

const (
	// sensitiveTime bounds the agent's look at the worktree of a session that ends.
	sensitiveTime = 15 * time.Second
	// maxSensitive bounds the paths of each kind, maxSensitivePath the bytes of one.
	maxSensitive     = 50
	maxSensitivePath = 320
)

// sensitive asks the agent which files that a host runs on sight differ from how the
// first call that could write found them. The agent looks as the tool user: this
// daemon opens nothing in a tree that a session can write to. nil is nothing.
func (s *Session) sensitive(e ending, ready, busy bool) *client.SensitiveChanges {
	if !ready || s.snapshotRow().Worktree.Mode != client.WorktreeBind || s.calls.Load() == 0 {
		return nil
	}
	var c *client.SensitiveChanges
	err := errors.New("the session is lost")
	switch {
	case busy:
		err = errors.New("calls were still running when the session was ended by force")
	case e.state == client.SessionEnded:
		c, err = s.askSensitive()
	}
	if err != nil {
		return &client.SensitiveChanges{Unchecked: plain.Cut(err.Error(), maxNote)}
	}
	if len(c.Changed) == 0 && len(c.Build) == 0 && c.More == 0 && c.Unchecked == "" {
		return nil
	}
	return c
}

func (s *Session) askSensitive() (*client.SensitiveChanges, error) {
	l, err := s.current()
	if err != nil {
		return nil, errors.New("the agent is gone")
	}
	ctx, cancel := context.WithTimeout(context.Background(), sensitiveTime)
	defer cancel()
	r := agent.Request{
		CallID: s.m.store.NewID("call_"), Tool: run.ChangesName, Input: json.RawMessage("{}"),
		TimeoutMillis: sensitiveTime.Milliseconds(), MaxOutput: 1,
	}
	out, err := l.conn.Run(ctx, r, new(smallFile))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the agent did not answer: %w", err)
	case out.Err != nil:
		return nil, out.Err
	case out.Result == nil || out.Result.IsError:
		return nil, errors.New("the agent gave no answer")
	}
	return sensitiveOf(out.Result.Output)
}

// sensitiveOf reads what an agent says, which may be hostile.
func sensitiveOf(text string) (*client.SensitiveChanges, error) {
	var c run.Changed
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return nil, errors.New("the agent gave an invalid answer")
	}
	left := max(0, min(c.More, 1<<30))
	v := &client.SensitiveChanges{Unchecked: plain.Name(plain.Cut(c.Unchecked, maxNote))}
	v.Changed = plainPaths(c.Sensitive, &left)
	v.Build = plainPaths(c.Build, &left)
	v.More = left
	return v, nil
}

// plainPaths bounds paths, and adds to more those that are left out.
func plainPaths(paths []string, more *int) []string {
	keep := min(len(paths), maxSensitive)
	*more += len(paths) - keep
	for i, p := range paths[:keep] {
		paths[i] = plain.Name(plain.Cut(p, maxSensitivePath))
	}
	return paths[:keep:keep]
}
