package agent

import (
	"testing"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// TestWhichTools: an agent says with one number which tools it has, and of a tool that it has
// not, that it has not.
func TestWhichTools(t *testing.T) {
	r := newRig(t)
	if got, want := uint32(r.knows>>wire.ToolsShift), run.Fingerprint([]run.Tool{run.Bash{}}); got != want || got == run.Fingerprint(run.Builtin()) {
		t.Errorf("the welcome says %x, want %x", got, want)
	}
	for tool, none := range map[string]bool{"bash": false, "grep": true, "no such": true} {
		_, err := r.Prepare(t.Context(), Request{CallID: "call_" + tool, Tool: tool, Input: []byte("{}")})
		if run.IsNoTool(err) != none {
			t.Errorf("%s: %v", tool, err)
		}
		out, err := r.Run(t.Context(), Request{CallID: "call_run_" + tool, Tool: tool, Input: []byte(`{"command":"true"}`)}, &sink{})
		if err != nil || out.Err != nil && run.IsNoTool(out.Err) != none || out.Err == nil && none {
			t.Errorf("%s: %+v, %v", tool, out, err)
		}
	}
}
