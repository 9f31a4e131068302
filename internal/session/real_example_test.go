package session

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/skill"
	"github.com/toold/toold/internal/tool"
)

// TestRealExamples: the example of each tool, which docs/tools.md shows, answers what it says.
func TestRealExamples(t *testing.T) {
	m := openReal(t, newRealHouse(t))
	for _, d := range tool.NewRegistry().List() {
		t.Run(d.Name, func(t *testing.T) {
			var e struct {
				Files  map[string]string
				Skills map[string]string
				Input  json.RawMessage
				Answer string
			}
			raw, err := os.ReadFile("../tool/" + d.Name + ".example.json")
			if err == nil {
				err = json.Unmarshal(raw, &e)
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Skills != nil {
				set := *m.settings.Load()
				set.Skills = skill.Load([]string{skillDir(t, nil, e.Skills)})
				m.Reload(set)
			}
			dir := realTree(t, m, `permission = { "*" = "allow" }`, e.Files)
			s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
			if err != nil {
				t.Fatal(err)
			}
			c := realCall(t, m, s.ID, d.Name, e.Input)
			if c.Error != nil || c.IsError || c.Output != e.Answer {
				t.Errorf("the answer is %+v, is_error %v\n%s\ninstead of\n%s\nas JSON: %q", c.Error, c.IsError, c.Output, e.Answer, c.Output)
			}
		})
	}
}
