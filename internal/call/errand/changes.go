package errand

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
)

const (
	// changesTime bounds the agent's look at the worktree of a session that ends.
	changesTime = 15 * time.Second
	// MaxSensitive bounds the paths of each kind, maxSensitivePath the bytes of one.
	MaxSensitive     = 50
	maxSensitivePath = 320
)

// Changes asks which files that a host runs on sight differ from how the first call that
// could write found them. The agent looks as the tool user: the daemon opens nothing in a
// tree that a session can write to. More are patterns of more such files; agents of older
// versions do not know them.
func (e *Errand) Changes(ctx context.Context, more []string) (*client.SensitiveChanges, error) {
	ctx, cancel := context.WithTimeout(ctx, changesTime)
	defer cancel()
	result, err := e.do(ctx, e.request(run.ChangesJob(more), 1, changesTime), silent)
	if err != nil {
		return nil, err
	}
	return sensitiveOf(result.Output)
}

// sensitiveOf reads what an agent says, which may be hostile.
func sensitiveOf(text string) (*client.SensitiveChanges, error) {
	var c run.Changed
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return nil, errNoAnswer
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
	keep := min(len(paths), MaxSensitive)
	*more += len(paths) - keep
	for i, p := range paths[:keep] {
		paths[i] = plain.Name(plain.Cut(p, maxSensitivePath))
	}
	return paths[:keep:keep]
}
