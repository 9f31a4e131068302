package inside

import (
	"encoding/json"
	"testing"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool/run"
)

// The worktree is looked at before the first call that may write, on each way that a
// call can take.
func TestWatchBeforeCalls(t *testing.T) {
	for name, expect := range map[string]func(dir string) []string{
		"prepared before": func(string) []string { return nil },
		"one exchange":    func(dir string) []string { return []string{dir} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, run.Changes{})
			c, _ := r.connect(r.hello())
			q := bashCall("1", "echo >.envrc")
			q.Expect = expect(r.dir)
			if o, err := c.Run(t.Context(), q, new(sink)); err != nil || o.Err != nil || o.Prepared != nil {
				t.Fatalf("%+v, %v", o, err)
			}
			o, err := c.Run(t.Context(), agent.Request{CallID: "2", Tool: run.ChangesName, Input: json.RawMessage("{}")}, new(sink))
			if err != nil || o.Err != nil {
				t.Fatalf("%+v, %v", o, err)
			}
			if want := `{"sensitive":[".envrc"]}`; o.Result.Output != want {
				t.Errorf("%s, want %s", o.Result.Output, want)
			}
		})
	}
}
