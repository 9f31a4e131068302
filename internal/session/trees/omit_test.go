package trees

import (
	"errors"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool/run"
)

// An agent of an older toold refuses to leave anything out: the session's user is told what
// helps, and no other refusal is taken for that one.
func TestOmitted(t *testing.T) {
	old := run.Errorf(run.CodeInvalidInput, "unknown field")
	for _, q := range []client.DiffQuery{{NoIgnored: true}, {Exclude: []string{"a"}}} {
		if err := omitted(old, q); !errors.Is(err, fault.NoTool) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if err := omitted(run.NoTool("worktree_diff_strict"), client.DiffQuery{NoIgnored: true}); !errors.Is(err, fault.NoTool) {
		t.Errorf("without the tool: %v", err)
	}
	if err := omitted(old, client.DiffQuery{}); !errors.Is(err, old) {
		t.Errorf("nothing is to be left out: %v", err)
	}
	other := run.Errorf(run.CodeStale, "changed")
	if err := omitted(other, client.DiffQuery{NoIgnored: true}); !errors.Is(err, other) {
		t.Errorf("%v", err)
	}
	if omits(client.DiffQuery{Exclude: make([]string, 2000)}) == nil {
		t.Error("too many patterns are taken")
	}
}
