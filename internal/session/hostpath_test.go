package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// Paths of the host that people paste are those of the sandbox, where it has nothing of
// its own there; otherwise a failure says where the worktree is.
func TestHostPath(t *testing.T) {
	h := newHouse(t)
	h.open()
	h.reload(func(s *Settings) { s.Policy = rules(t, "[permission]\nexternal_directory = \"allow\"\n") })
	id := h.create(alice, client.SessionCreate{}).ID
	s := h.m.live()[0]
	const here, hint = "(/srv/project is /workspace here)", "(the worktree is /workspace here; SOURCE is its path on the host)"
	for _, tt := range []struct{ source, tool, input, want, note string }{
		{"/srv/project", "read", `{"file_path":"/srv/project/a.go"}`, `{"file_path":"/workspace/a.go"}`, here},
		{"/srv/project", "read", `{"file_path":"/srv/project"}`, `{"file_path":"/workspace"}`, here},
		{"/srv/project", "read", `{"file_path":"/srv/projects/a.go"}`, "", ""},
		{"/srv/project", "read", `{"file_path":"a/srv/project"}`, "", ""},
		{"/srv/project", "glob", `{"pattern":"/srv/project/src/*.go"}`, `{"pattern":"/workspace/src/*.go"}`, here},
		{"/srv/project", "grep", `{"path":"/srv/project/x","pattern":"/srv/project"}`, `{"path":"/workspace/x","pattern":"/srv/project"}`, here},
		{"/srv/project", "write", `{"content":"cd /srv/project \u003c\u0026 é","file_path":"/srv/project/<é>"}`, `{"content":"cd /srv/project \u003c\u0026 é","file_path":"/workspace/\u003cé\u003e"}`, here},
		{"/srv/project", "write", `{"content":"cd /srv/project","file_path":"x"}`, "", ""},
		{"/srv/project", "bash", `{"command":"echo x","workdir":"/srv/project/sub"}`, `{"command":"echo x","workdir":"/workspace/sub"}`, here},
		{"/srv/project", "bash", `{"command":"echo /srv/project"}`, "", ""},
		{"/srv/project", "bash", `{"command":"echo /srv/project; exit 1"}`, "", hint},
		{"/srv/project", "bash", `{"command":"echo /srv/projects; exit 1"}`, "", ""},
		{"/tmp/x", "read", `{"file_path":"/tmp/x/a.go"}`, "", ""},
		{"/tmp/x", "read", `{"file_path":"/tmp/x/missing"}`, "", hint},
		{"/workspace", "read", `{"file_path":"/workspace/missing"}`, "", ""},
		{"", "read", `{"file_path":"/srv/project/missing"}`, "", ""},
		{"", "read", `{"file_path":"~/a.go"}`, `{"file_path":"/home/tool/a.go"}`, ""},
		{"", "read", `{"file_path":"~x/a.go"}`, "", ""},
		{"", "read", `{"file_path":"./~/a.go"}`, "", ""},
		{"/srv/project", "read", `{"file_path":"file:///srv/project/a.go"}`, `{"file_path":"/workspace/a.go"}`, here},
		{
			"/srv/project", "apply_patch", `{"patch":"*** Begin Patch\n*** Delete File: /srv/project/a\n*** Delete File: ~/b\n*** End Patch"}`,
			`{"patch":"*** Begin Patch\n*** Delete File: /workspace/a\n*** Delete File: /home/tool/b\n*** End Patch"}`, here,
		},
	} {
		s.mu.Lock()
		s.row.Worktree = client.Worktree{Source: tt.source, Target: "/workspace"}
		s.mu.Unlock()
		if tt.want == "" {
			tt.want = tt.input
		}
		c := h.call(id, client.CallCreate{Tool: tt.tool, Input: json.RawMessage(tt.input)})
		note := strings.ReplaceAll(tt.note, "SOURCE", tt.source)
		if string(c.Input) != tt.want || !strings.HasSuffix(c.Output, note) || note == "" && strings.Contains(c.Output, "workspace here") {
			t.Errorf("%s %s: input %s\noutput %s", tt.tool, tt.input, c.Input, c.Output)
		}
	}
}

// A call that prints nothing says so.
func TestNoOutput(t *testing.T) {
	h := newHouse(t)
	h.open()
	id := h.create(alice, client.SessionCreate{}).ID
	for command, want := range map[string]string{"progress": client.NoOutput, "exit 3": "exit code 3", "echo x": "x\n", "echo x\r\n": "x\n(the carriage returns at the ends of the command's lines were left out)"} {
		if c := h.call(id, bashCall(command)); c.Output != want || c.IsError != (command == "exit 3") {
			t.Errorf("%s: %q, %t", command, c.Output, c.IsError)
		}
	}
}

// TestPathsEverywhere: whoever looks at an input has its paths as the call has them.
func TestPathsEverywhere(t *testing.T) {
	h := newHouse(t)
	h.open()
	h.reload(func(s *Settings) { s.Policy = rules(t, "[permission]\nexternal_directory = \"allow\"\n") })
	id := h.create(alice, client.SessionCreate{}).ID
	s := h.m.live()[0]
	s.mu.Lock()
	s.row.Worktree = client.Worktree{Source: "/srv/project", Target: "/workspace"}
	s.mu.Unlock()
	for in, want := range map[string]string{"~/x": "/home/tool/x", "$HOME/x": "/home/tool/x", "/srv/project/x": "/workspace/x"} {
		v, err := h.m.Policy.Explain(t.Context(), alice, client.PolicyExplain{Tool: "write", Session: id, Input: must(json.Marshal(object{"file_path": in, "content": ""}))})
		if err != nil || v.Requests[0].Pattern != want {
			t.Errorf("%s: %+v, %v", in, v, err)
		}
	}
}
