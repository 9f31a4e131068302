package run

import (
	"errors"
	"testing"

	"github.com/toold/toold/internal/tool/run/treediff"
)

// What a field of a query asks for that not all agents know is asked of a tool that refuses what it
// does not know: an older agent has none of that name, and a newer one says so.
func TestStrictQueries(t *testing.T) {
	t.Parallel()
	tools := map[string]Tool{}
	for _, tool := range Builtin() {
		tools[tool.Name()] = tool
	}
	for _, j := range []Job{
		DiffJob(DiffQuery{Format: treediff.List, Exclude: []string{"a"}}),
		DiffJob(DiffQuery{Format: treediff.Patch, NoIgnored: true}),
		DiffJob(DiffQuery{Format: treediff.Patch, Touched: []byte{}}),
		RevertJob([]string{"a"}, "", []byte{}),
	} {
		tool := tools[j.Tool]
		if tool == nil || j.Tool == (Diff{}).Name() || j.Tool == (Revert{}).Name() {
			t.Errorf("%s is asked", j.Tool)
			continue
		}
		_, err := tool.Run(t.Context(), &Env{}, []byte(`{"later":true}`), nil)
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeInvalidInput {
			t.Errorf("%s takes what it does not know: %v", j.Tool, err)
		}
	}
	if j := DiffJob(DiffQuery{Format: treediff.Archive, Exclude: []string{"a"}}); j.Tool != (Diff{}).Name() {
		t.Errorf("%s is asked for what all agents know", j.Tool)
	}
}
