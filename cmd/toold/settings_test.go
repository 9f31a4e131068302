package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session"

	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool"
)

// Every listed tool can be restricted, and what is set for one reaches it alone.
func TestRestrictions(t *testing.T) {
	c := config.Default()
	c.Tools.Grep.Providers, c.Tools.Grep.Models = []string{"anthropic"}, []string{"claude-*"}
	got := sessionSettings(c, "", false).Restrictions
	for _, d := range tool.NewRegistry().List() {
		want := tool.Restriction{Providers: []string{}, Models: []string{}}
		if d.Name == "grep" {
			want = tool.Restriction{Providers: []string{"anthropic"}, Models: []string{"claude-*"}}
		}
		r, ok := got[d.Name]
		if !ok {
			t.Errorf("%s cannot be restricted", d.Name)
		}
		if len(r.Providers) != len(want.Providers) || len(r.Models) != len(want.Models) || len(want.Models) > 0 && !reflect.DeepEqual(r, want) {
			t.Errorf("%s: got %+v, want %+v", d.Name, r, want)
		}
	}
}

func TestToolSettings(t *testing.T) {
	c := config.Default()
	c.Tools.Edit.Matching, c.Tools.Edit.RequireRead, c.Tools.Write.Durable = "strict", true, true
	got := toolSettings(c)
	if s := string(got["edit"]); s != `{"matching":"strict","require_read":true,"durable":false}` {
		t.Errorf("edit: %s", s)
	}
	if s := string(got["write"]); s != `{"durable":true}` {
		t.Errorf("write: %s", s)
	}
}

// What the configuration says of policy reaches the sessions.
func TestPolicySettings(t *testing.T) {
	c, err := config.Parse("c.toml", []byte(`
tools.bash.opaque = "deny"
doom_loop = { threshold = 4, polling_threshold = 30, max_period = 2, hard_limit = 0 }
approvals = { timeout = "1m", approver = "none", self_approve = true }
permission.bash = "deny"
[[hook]]
on = "call.before"
command = ["/bin/check", "x"]
match = { tool = "bash" }
fail = "open"
[[hook]]
on = "file.edited"
command = ["gofmt"]
timeout = "3s"
`))
	if err != nil {
		t.Fatal(err)
	}
	s := sessionSettings(c, "", false)
	if want := (policy.LoopConfig{Threshold: 4, PollingThreshold: 30, MaxPeriod: 2}); s.Loop != want {
		t.Errorf("loop: %+v", s.Loop)
	}
	if a := s.Approvals; a.Timeout != time.Minute || !a.None || !a.SelfApprove || len(a.Command) != 0 {
		t.Errorf("approvals: %+v", a)
	}
	want := []hook.Hook{
		{On: "call.before", Command: []string{"/bin/check", "x"}, Match: map[string]string{"tool": "bash"}, Timeout: 10 * time.Second, FailOpen: true},
		{On: "file.edited", Command: []string{"gofmt"}, Timeout: 3 * time.Second},
	}
	if !reflect.DeepEqual(s.Hooks, want) {
		t.Errorf("hooks: %+v", s.Hooks)
	}
	if s.Opaque != "deny" || s.Policy != c.Policy {
		t.Errorf("opaque %q, policy %p", s.Opaque, s.Policy)
	}
}

func TestProfileTruncation(t *testing.T) {
	c, err := config.Parse("c.toml", []byte("truncate.direction = 'head'\n[profile.plan.truncate]\nmax_lines = 10\ndirection = 'auto'\n[profile.ci.truncate]\nmax_bytes = 2000\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := sessionSettings(c, "", false)
	plan, ci := s.Truncate, s.Truncate
	plan.MaxLines, plan.Direction, ci.MaxBytes = 10, "auto", 2000
	for name, want := range map[string]output.Limits{"plan": plan, "ci": ci, "build": s.Truncate} {
		if got := s.Truncate.With(s.ProfileTruncate[name]); got != want || s.Truncate.Direction != "head" {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestWorktreeSettings(t *testing.T) {
	c, err := config.Parse("c.toml", []byte("worktrees = { mode = 'overlay', keep = '2d', checkpoint = 'call', sensitive = ['ops/'] }\nprofile.ci.require_mode = 'ro'\ntenant.t = { uids = [7], require_mode = 'bind' }\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := sessionSettings(c, "", false)
	want := session.Worktrees{Mode: client.WorktreeOverlay, Keep: 48 * time.Hour, Checkpoint: "call", Sensitive: []string{"ops/"}, Required: map[string]client.WorktreeMode{"ci": client.WorktreeRO}}
	if !reflect.DeepEqual(s.Worktrees, want) || s.Tenants["t"].RequireMode != client.WorktreeBind {
		t.Errorf("got %+v and %+v, want %+v", s.Worktrees, s.Tenants["t"], want)
	}
}

// Policy does not know the packages that lay out a sandbox; it must agree with
// them all the same.
func TestPolicyKnowsTheSandbox(t *testing.T) {
	if policy.Home != sandbox.Home || policy.Workspace != sandbox.Workspace || policy.Outputs != sandbox.OutputDir {
		t.Errorf("home %s, workspace %s, outputs %s", policy.Home, policy.Workspace, policy.Outputs)
	}
}

// Limits of a tool reach its calls, and only those that are set.
func TestToolTruncation(t *testing.T) {
	c, err := config.Parse("c.toml", []byte("[tools.grep.truncate]\nmax_lines = 5\ndirection = \"auto\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]output.Limits{"grep": {MaxLines: 5, Direction: "auto"}}
	if got := sessionSettings(c, "", false).ToolTruncate; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if _, err := config.Parse("c.toml", []byte("[tools.bash.truncate]\nmax_bytes = 5\n")); err == nil {
		t.Error("5 bytes are taken")
	}
}
