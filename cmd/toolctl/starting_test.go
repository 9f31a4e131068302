package main

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestHowToStart: each step that is named for want of a daemon is one that this user can take on this host.
func TestHowToStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		on          machine
		first, last string
	}{
		{
			"root, service",
			machine{root: true, unit: true, program: "/usr/sbin/toold", self: "toolctl"},
			"start it: systemctl start toold", "without a daemon: toolctl run -- COMMAND",
		},
		{
			"a user, service",
			machine{unit: true, program: "/usr/sbin/toold", self: "toolctl"},
			"start it: sudo systemctl start toold", "without a daemon: sudo toolctl run -- COMMAND",
		},
		{
			"root, built",
			machine{root: true, program: "/my src/bin/toold", self: "/my src/bin/toolctl"},
			"start it in another terminal: '/my src/bin/toold'", "without a daemon: '/my src/bin/toolctl' run -- COMMAND",
		},
		{
			"a user, built",
			machine{program: "/src/bin/toold", self: "/src/bin/toolctl"},
			`only root can start it; to have it as a service that you may use, see docs/agents.md, "On a laptop, not as root"`, "without a daemon: sudo /src/bin/toolctl run -- COMMAND",
		},
		{
			"root, nothing",
			machine{root: true, self: "toolctl"},
			"there is no toold program beside toolctl or in PATH: install it (make install, in its sources)", "or name the socket of another one with --socket or TOOLD_SOCKET",
		},
		{
			"a user, nothing",
			machine{self: "toolctl"},
			"there is no toold program beside toolctl or in PATH: install it (sudo make install, in its sources)", "or name the socket of another one with --socket or TOOLD_SOCKET",
		},
	} {
		if got := tt.on.start(); got[0] != tt.first || got[len(got)-1] != tt.last {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	if got := admission(filepath.Join(t.TempDir(), "none.sock")); !strings.Contains(got, "socket_group") && !strings.Contains(got, "usermod") {
		t.Errorf("who may not connect is told %q", got)
	}
}

// TestMCPSaysWhyItEnds: a server that cannot be one tells the agent so, in an answer to its first request,
// and the person who reads its log; both are told what to do.
func TestMCPSaysWhyItEnds(t *testing.T) {
	t.Parallel()
	const first = `{"jsonrpc":"2.0","method":"notifications/x"}` + "\n" + `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}` + "\n"
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/ready":           answerWith(client.Health{Status: "ok"}),
		"GET /v1/version":         answerWith(client.Version{}),
		"GET /v1/sessions/review": problemWith(404, client.CodeNotFound),
		"GET /v1/sessions":        answerWith(client.List[client.Session]{}),
		"POST /v1/sessions":       problemWith(400, client.CodeInvalidRequest),
	})
	for _, tt := range []struct{ args, told string }{
		{"--session review", "shows the sessions"},
		{"", "it is so; try otherwise"},
		{"--wait -1s", "write a time such as 50s"},
	} {
		for _, in := range []string{first, ""} {
			var out, errs bytes.Buffer
			a := &app{stdin: strings.NewReader(in), stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
			code := run(t.Context(), append([]string{"--socket", d.socket, "mcp"}, strings.Fields(tt.args)...), a)
			if code == 0 || (out.Len() > 0) != (in != "") {
				t.Errorf("%s: exit %d, %q, %s", tt.args, code, &out, &errs)
			}
			if in != "" {
				testrig.Wants(t, out.String(), `"id":7,"error":{`, "Tell the user: ", tt.told)
			}
			testrig.Wants(t, errs.String(), "then have the agent start this server again")
		}
	}
}
