package session

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

// profile is the session's at the moment.
func (s *Session) profile() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.row.Profile
}

// checkRules checks the profile and the rules of a session that is asked for.
func (m *Manager) checkRules(tenant string, r *client.SessionCreate) error {
	if r.Profile == "" {
		r.Profile = judge.DefaultProfile
	}
	if err := m.checkProfile(tenant, r.Profile); err != nil {
		return err
	}
	if len(r.Permission) == 0 {
		return nil
	}
	if _, err := policy.CheckRules("session", r.Permission); err != nil {
		return invalidRequest("permission: %v", err)
	}
	return nil
}

func (m *Manager) checkProfile(tenant, profile string) error {
	if err := m.court.Check(tenant, profile); err != nil {
		return invalidRequest("profile: %v", err)
	}
	return nil
}

const (
	// maxWorktreeRules bounds it, in bytes.
	maxWorktreeRules = 64 << 10
	// worktreeRulesTime bounds the reading of it.
	worktreeRulesTime = 10 * time.Second
)

func worktreeRulesPath(row *store.Session) string {
	return path.Join(row.Worktree.Target, judge.WorktreeRules)
}

// readWorktreeRules reads the rules file of the worktree, if there is one. It is
// read once, as the tool user and inside the sandbox: what calls make of the file
// later has no effect, and neither has a link that leads out of the worktree.
func (s *Session) readWorktreeRules(ctx context.Context) error {
	row := s.snapshotRow()
	if row.Worktree.Mode == client.WorktreeEmpty {
		return nil
	}
	l, err := s.current()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, worktreeRulesTime)
	defer cancel()
	name := worktreeRulesPath(&row)
	job := run.DownloadJob(name)
	r := agent.Request{
		CallID: s.m.store.NewID("call_"), Tool: job.Tool, Input: job.Input,
		TimeoutMillis: worktreeRulesTime.Milliseconds(), MaxOutput: maxWorktreeRules + 1,
	}
	prep, err := l.conn.Prepare(ctx, r)
	if err != nil {
		return badWorktreeRules(name, err)
	}
	t, err := theTarget(&row, prep)
	if t == nil || err != nil {
		return badWorktreeRules(name, err)
	}
	r.Prepared = prep
	text, err := readSmall(ctx, l.conn, r, maxWorktreeRules)
	if err == nil {
		_, err = policy.ParseCeiling(name, text)
	}
	if err != nil {
		return badWorktreeRules(name, err)
	}
	return s.write("", func(row *store.Session) error { row.WorktreeRules = string(text); return nil })
}

// theTarget is the file, nil where there is none.
func theTarget(row *store.Session, prep *run.Prepared) (*run.Target, error) {
	switch {
	case len(prep.Targets) == 0 && prep.Result != nil:
		return nil, errors.New(plain.Cut(prep.Result.Output, maxNote))
	case len(prep.Targets) == 0 || !prep.Targets[0].Exists:
		return nil, nil
	}
	t := &prep.Targets[0]
	if !under(t.Path, row.Worktree.Target) {
		return nil, fmt.Errorf("it leads out of the worktree, to %s", shown(t.Path))
	}
	return t, nil
}

// badWorktreeRules refuses a session whose worktree has rules that do not hold;
// nil for no error.
func badWorktreeRules(name string, err error) error {
	var re *run.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &re):
		err = errors.New(plain.Cut(re.Message, maxNote))
	case errors.Is(err, agent.ErrLost), errors.Is(err, agent.ErrViolation), errors.Is(err, context.Canceled):
		return fmt.Errorf("read %s: %w", name, err)
	}
	return &client.Error{
		Code:    client.CodeInvalidRequest,
		Message: fmt.Sprintf("the worktree's rules %s cannot be used: %s", name, plain.Cut(err.Error(), maxNote)),
		Hint:    "mend the file or remove it; it can only narrow what the session may do",
	}
}

// errTooLong says that a file is larger than what is read of it.
// errTooLong says that a file is longer than what is read of it.
var errTooLong = errors.New("it is too long")

// readSmall runs a call of file_get and gives what it read, if that is no more than
// most bytes.
func readSmall(ctx context.Context, conn agentConn, r agent.Request, most int) ([]byte, error) {
	text := smallFile{most: most}
	out, err := conn.Run(ctx, r, &text)
	if err != nil {
		_ = conn.Abort(r.CallID, run.ReasonAborted)
	}
	_ = conn.Forget(r.CallID)
	switch {
	case len(text.read) > most:
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, most)
	case err != nil:
		return nil, err
	case out.Err != nil:
		return nil, out.Err
	case out.Result == nil || out.Result.IsError:
		return nil, errors.New("it cannot be read")
	}
	return text.read, nil
}

// smallFile is a sink that takes no more than one byte too many.
type smallFile struct {
	most int
	read []byte
}

// Output implements agent.Sink.
func (f *smallFile) Output(_ int64, _ bool, p []byte) error {
	if f.read = append(f.read, p[:min(len(p), f.most+1-len(f.read))]...); len(f.read) > f.most {
		return errTooLong
	}
	return nil
}

// Metadata implements agent.Sink.
func (f *smallFile) Metadata(map[string]any) {}
