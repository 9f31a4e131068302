package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// reportHandlers have a session whose names are hostile.
func reportHandlers() map[string]http.HandlerFunc {
	h := runTree()
	s := session()
	s.Worktree.Mode, s.Network.Mode, s.Reason = client.WorktreeOverlay, client.NetworkRules, "it `was` so\n# not a heading"
	ended := s
	ended.State = client.SessionEnded
	failed := bashDone("said `this`", exited(3))
	failed.IsError, failed.Metadata["notes"] = true, []string{"no network\n# nor this"}
	h["GET /v1/sessions"] = answerWith(client.List[client.Session]{Items: []client.Session{s}})
	h["GET /v1/sessions/{id}"], h["POST /v1/sessions"], h["DELETE /v1/sessions/{id}"] = answerWith(s), answerWith(s), answerWith(ended)
	h["GET /v1/sessions/{id}/calls"] = answerWith(client.List[client.Call]{Items: []client.Call{failed}})
	h["GET /v1/sessions/{id}/network"] = answerWith(client.SessionNetwork{Mode: client.NetworkRules, LeftOut: 2, Hosts: []client.NetworkHost{
		{Permission: "network", To: "good.example:443", Verdict: "allow", Rule: "config.toml:1", Count: 2},
		{Permission: "network", To: "down.example:443", Verdict: "allow", Count: 1, Failed: 1},
		{Permission: "network", To: "evil.example:443`\n", Verdict: "deny", Rule: "default", Count: 3},
	}})
	return h
}

// TestSessionReport: a session of agents has the report that a command has, from each command that
// can leave it: all its calls, the hosts that it reached and that were denied, and a summary of
// which nothing that the session wrote makes other Markdown.
func TestSessionReport(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ args, state string }{
		{"session report review", "ready"},
		{"session rm review", "ended"},
		{"mcp --session review", "ready"},
		{"mcp --worktree . --mode overlay", "ended"},
	} {
		dir := filepath.Join(t.TempDir(), "report")
		d := startFake(t, reportHandlers())
		r := d.ctl(append(strings.Fields(tt.args), "--report", dir)...)
		r.want(t, 0, "", "")
		got := readResult(t, dir)
		if got.Reason != tt.state || got.ExitCode != 0 || got.Calls.Count != 1 || got.Changes.Files != 2 || got.Hosts == nil || len(got.Hosts.Items) != 3 || got.Hosts.LeftOut != 2 || got.Missing != nil {
			t.Errorf("%s: %+v", tt.args, got)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "log.txt")); err != nil || !strings.Contains(string(b), "    said `this`\n") {
			t.Errorf("%s: log %q, %v", tt.args, b, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "changes.patch")); err != nil || string(b) != hostilePatch {
			t.Errorf("%s: patch %q, %v", tt.args, b, err)
		}
		doc, err := os.ReadFile(filepath.Join(dir, "junit.xml"))
		if err != nil || checkJUnit(t, doc) != 1 {
			t.Errorf("%s: %v", tt.args, err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "summary.md"))
		text := string(b)
		if err != nil || tt.args == "session report review" && r.stdout != text {
			t.Errorf("%s: %v, printed %q", tt.args, err, r.stdout)
		}
		for l := range strings.Lines(text) {
			if strings.Count(l, "`")%2 != 0 || strings.HasPrefix(l, "# ") {
				t.Errorf("%s: a line of the session's own: %q", tt.args, l)
			}
		}
		for _, want := range []string{"### toolctl: exit code 0, `" + tt.state + "`", "1 call,", "2 files changed", "Denied connections", "`evil.example:443'", "3 times by `default`", "`good.example:443`, 2 times", "no network"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the summary does not say %q:\n%s", tt.args, want, text)
			}
		}
		if strings.Contains(text, "down.example") {
			t.Errorf("a host that was not reached is said to be:\n%s", text)
		}
	}
}

// TestSessionReportRefused: what cannot be written is found before anything is done.
func TestSessionReportRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.MkdirAll("full/x", 0o755), os.Mkdir("tree", 0o755)); err != nil {
		t.Fatal(err)
	}
	for args, says := range map[string]string{
		"session report review":                              "--report DIR",
		"session report review --report full":                "not empty",
		"session report review --artifact x":                 "--report",
		"session rm review --report full":                    "not empty",
		"session rm --all --report new":                      "one session",
		"mcp --worktree tree --mode overlay --report full":   "not empty",
		"mcp --session review --report full":                 "not empty",
		"mcp --worktree tree --report new --install codex":   "one start",
		"mcp --worktree tree --report none/x --mode overlay": "--report",
	} {
		d := startFake(t, reportHandlers())
		d.ctl(strings.Fields(args)...).want(t, exitUsage, "", says)
		if len(d.asked("DELETE", "/"+fakeSession))+len(d.asked("POST", "/sessions")) > 0 {
			t.Errorf("%s: a session was made or ended", args)
		}
		if _, err := os.Stat("full/result.json"); err == nil {
			t.Fatalf("%s wrote into a directory that is not empty", args)
		}
	}
}
