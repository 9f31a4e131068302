package call

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
)

// Unseen says why an agent, who holds the session's token, may not see what a call has or gave: a person
// made it, by typing or by a route of ours, perhaps with an approval, and it is about a file that the
// session may not read, or it is not known yet which file that is. It is "" where the agent may see it.
func (s *Service) Unseen(ctx context.Context, p auth.Principal, c *client.Call) string {
	if p.Session == "" {
		return ""
	}
	def, known := s.Tools.Get(c.Tool)
	if !known || !ofPeople(def, c.Typed) {
		return ""
	}
	g, err := s.sessions.Calls(ctx, p, c.SessionID)
	if err != nil {
		return "the rules of its session are not known now"
	}
	row := g.place.Row()
	named, err := s.named(row.Worktree.Target, c.Tool, c.Input)
	if err != nil {
		return "it is not known which files it is about"
	}
	files := append(filesOf(c.Metadata), named...)
	if len(files) == 0 {
		return ""
	}
	if read := g.mayReadAll(row.Profile, files); read.Action != policy.Allow {
		return judge.NotReadable(&read)
	}
	if !def.Command && (!c.Finished() || len(files) == len(named)) { // a link may lead elsewhere
		return "it is not known which files it is about"
	}
	return ""
}

// named are the files that an input asks to read or to change, those of the parts of a batch too. Where
// their paths lead is not known.
func (s *Service) named(worktree, name string, input json.RawMessage) ([]string, error) {
	inv, err := s.Tools.ParseHidden(name, input)
	if err != nil {
		return nil, err
	}
	var files []string
	if b, ok := inv.Input.(*tool.Batch); ok {
		for _, part := range b.Calls {
			of, err := s.named(worktree, part.Tool, part.Input)
			if err != nil {
				continue // it is refused for that
			}
			files = append(files, of...)
		}
	}
	for _, q := range inv.Input.Access(nil).Requests {
		if q.Path != "" && (q.Permission == tool.PermissionRead || q.Permission == tool.PermissionEdit) {
			files = append(files, policy.Under(worktree, q.Path))
		}
	}
	return files, nil
}

// seenBy is a call as p may see it.
func (s *Service) seenBy(ctx context.Context, p auth.Principal, c *client.Call) *client.Call {
	why := s.Unseen(ctx, p, c)
	if why == "" {
		return c
	}
	v := *c
	v.Title, v.Input, v.InputNotKept, v.Extra, v.Attachments = "", json.RawMessage("{}"), nil, nil, nil
	v.Metadata = map[string]any{"not_shown": why}
	if v.Error != nil {
		e := *v.Error
		e.Message, e.Hint, e.Violations = "a call of a person is not shown: "+why, "", nil
		v.Error = &e
	}
	if v.Finished() {
		v.Output = "[a call of a person is not shown: " + why + "]"
	}
	return &v
}

// errUnseen refuses what only people may see.
func errUnseen(call, why string) error {
	return fault.Denied.Errorf("call %s was made by a person, and what it gave is not shown: %s", call, why).
		Next("make a call of your own, which is judged by itself")
}

// DropOutput removes the file with the whole output of a call of a person that agents may not see: its
// size alone would tell the sandbox something of what was read.
func (s *Service) DropOutput(ctx context.Context, p auth.Principal, c *client.Call) {
	p.Session = c.SessionID
	if s.Unseen(ctx, p, c) == "" {
		return
	}
	file := filepath.Join(s.OutputDir, c.SessionID, c.ID)
	st, err := os.Lstat(file)
	if err != nil || os.Remove(file) != nil {
		return // it was short, or the session is over
	}
	if g, err := s.sessions.Calls(ctx, p, c.SessionID); err == nil {
		g.Spilled.Add(-st.Size())
	}
}
