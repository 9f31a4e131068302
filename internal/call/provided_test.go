package call

import (
	"slices"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// still is a session to which nothing happens.
type still struct {
	Place
	row store.Session
}

func (s *still) Row() store.Session { return s.row }

// A path that a call of an earlier daemon did not find where it should be.
func TestElsewhereAndTheDaemonGone(t *testing.T) {
	o := new(steps).ended(&Call{at: new(site), tooled: tooled{def: new(tool.Definition), durable: new(agent.Runner)}}, &agent.Outcome{Prepared: &run.Prepared{}}, nil)
	if o.err == nil || o.err.Code != client.CodeAborted || !o.held {
		t.Errorf("outcome %+v", o)
	}
}

func TestProvided(t *testing.T) {
	s := &steps{site: &site{place: &still{row: store.Session{Session: client.Session{Worktree: client.Worktree{Target: "/workspace"}}}}}}
	r := tool.NewRegistry()
	for _, tc := range []struct {
		tool, input string
		want        []string // nil: paths must be looked at before
	}{
		{"read", `{"file_path":"a/b"}`, []string{"/workspace/a/b"}},
		{"read", `{"file_path":"/etc//x/../passwd"}`, []string{"/etc/passwd"}},
		{"write", `{"file_path":"a/","content":"x"}`, []string{"/workspace/a"}},
		{"bash", `{"command":"true"}`, nil},
		{"bash", `{"command":"cat a > b/c"}`, []string{"/workspace", "/workspace/b/c", "/workspace/a"}},
		{"bash", `{"command":"cat ./a","workdir":"d"}`, []string{"/workspace/d", "/workspace/d", "/workspace/d/a"}},
		{"grep", `{"pattern":"x"}`, nil},
		{"list", `{}`, []string{"/workspace"}},
	} {
		inv, err := r.Parse(tc.tool, []byte(tc.input))
		if err != nil {
			t.Fatal(err)
		}
		prep := s.provided(&Call{}, inv, inv.Input.Access(nil))
		var got []string
		if prep != nil {
			got = prep.Paths()
		}
		slices.Sort(got)
		slices.Sort(tc.want)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: %q, want %q", tc.tool, tc.input, got, tc.want)
		}
	}
}
