package sandboxtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// testSearch: the file tools find what there is, in the cgroup and with the ids of a
// program of the sandbox, whatever the root file system has.
func testSearch(s *suite) {
	b := s.create(s.spec())
	b.out("mkdir -p d/skip locked && echo skip >d/.gitignore && echo needle | tee d/f d/skip/f locked/f && chmod 0 locked")
	for tool, want := range map[string]struct{ input, output string }{
		"grep": {`{"pattern": "need.e"}`, "Found 1 match.\n\n/workspace/d/f:\n  1: needle\n"},
		"glob": {`{"pattern": "[df]"}`, "/workspace/d/f\n"},
		"list": {`{"path": "d"}`, "/workspace/d/\n  .gitignore\n  f\n"},
	} {
		if r := b.tool(tool, want.input); r.IsError || !strings.HasPrefix(r.Output, want.output) || strings.Contains(r.Output, "locked/f") {
			s.Errorf("%s: got %q, want %q", tool, r.Output, want.output)
		}
	}
	b.fails("echo >>"+sandbox.RipgrepDir+"/rg", "")
}

// testProgramsRemoved: what a driver brings into sandboxes is there for the next one also when
// somebody has removed the driver's copies of it.
func testProgramsRemoved(s *suite) {
	removed := 0
	for _, dir := range s.Dirs {
		for _, kind := range []string{"agent-*", "ripgrep-*"} {
			found, err := filepath.Glob(filepath.Join(dir, kind))
			testrig.Must(s, err)
			for _, path := range found {
				removed++
				testrig.Must(s, os.RemoveAll(path))
			}
		}
	}
	b := s.create(s.spec())
	if r := b.tool("glob", `{"pattern": "*"}`); r.IsError || removed < 2 {
		s.Errorf("after %d of its copies were removed: %q", removed, r.Output)
	}
}

// tool calls one of the tools that need no judgement first.
func (b *box) tool(name, input string) *run.Result {
	b.s.Helper()
	return b.call(agent.Request{Tool: name, Input: json.RawMessage(input)}, nil)
}

// call is tool for a request whose output goes to a sink.
func (b *box) call(r agent.Request, out *sink) *run.Result {
	b.s.Helper()
	x := b.start(b.named(r), out)
	result := x.outcome(b.s).Result
	testrig.Must(b.s, b.conn.Forget(x.id))
	return result
}
