package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

func TestSessionCreate(t *testing.T) {
	s := session()
	s.Notes, s.Token = []string{"no disk\x1b bound"}, "secret"
	d := startFake(t, map[string]http.HandlerFunc{"POST /v1/sessions": answerWith(s)})
	r := d.ctl("session", "create", "--name", "n", "--label", "a=b=c", "--ttl", "8h", "--idle-timeout", "-1ms", "--lease-pid", "7",
		"--net", "none", "--with-token", "--limit", "cpus=1.5", "--limit", "wall=1m")
	r.want(t, 0, fakeSession+"\nsecret\n", `note: no disk\x1b bound`)
	got := string(d.asked("POST", "/sessions")[0].body)
	want := `{"name":"n","limits":{"cpus":1.5,"wall":60000},"network":{"mode":"none"},"labels":{"a":"b=c"},"ttl":28800000,"idle_timeout":-1,"lease_pid":7,"token":true}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r := d.ctl("session", "create", "-o", "name"); r.stdout != fakeSession+"\n" {
		t.Errorf("name: %q", r.stdout)
	}
}

// Who makes a session is the author of its commits, unless the flag names another one; half an
// identity is none.
func TestSessionCreateIdentity(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	d := startFake(t, map[string]http.HandlerFunc{"POST /v1/sessions": answerWith(session())})
	file := filepath.Join(t.TempDir(), "gitconfig")
	t.Setenv("GIT_CONFIG_GLOBAL", file)
	for i, tt := range []struct{ config, flag, want string }{
		{"", "", ""},
		{"[user]\n\tname = Ada \\\"L\\\"\n", "", ""},
		{"[user]\n\tname = Ada \\\"L\\\"\n\temail = a@b\n", "", `{"name":"Ada \"L\"","email":"a@b","creators":true}`},
		{"[user]\n\tname = Ada\n\temail = a@b\n", "Bo <b@c>", `{"name":"Bo","email":"b@c"}`},
	} {
		testrig.Must(t, os.WriteFile(file, []byte(tt.config), 0o600))
		args := []string{"session", "create"}
		if tt.flag != "" {
			args = append(args, "--identity", tt.flag)
		}
		d.ctl(args...).want(t, 0, "", "")
		var got struct {
			Worktree struct {
				Identity json.RawMessage `json:"identity"`
			} `json:"worktree"`
		}
		decode(t, d.asked("POST", "/sessions")[i].body, &got)
		if string(got.Worktree.Identity) != tt.want {
			t.Errorf("%q %q: %s, want %s", tt.config, tt.flag, got.Worktree.Identity, tt.want)
		}
	}
	d.ctl("session", "create", "--identity", "Bo").want(t, 2, "", "--identity: \"Bo\" is no identity: write \"NAME <EMAIL>\"")
}

// TestSessionCreateSeen: the daemon is told which directory the caller sees at the path, of links too, since it may have
// another one there.
func TestSessionCreateSeen(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{"POST /v1/sessions": answerWith(session())})
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	testrig.Must(t, os.Symlink(dir, link))
	info, err := os.Stat(dir)
	testrig.Must(t, err)
	for i, path := range []string{dir, link} {
		d.ctl("session", "create", "--worktree", path).want(t, 0, "", "")
		var got client.SessionCreate
		decode(t, d.asked("POST", "/sessions")[i].body, &got)
		if got.Worktree.Source != dir || got.Worktree.Seen != client.SeenAs(info) || got.Worktree.Seen == "" {
			t.Errorf("%s: %+v", path, got.Worktree)
		}
	}
}

func TestSessionCreateUsage(t *testing.T) {
	for _, c := range []struct {
		args   string
		stderr string
	}{
		{"--worktree /nonexistent", "no such file"},
		{"--mode ro", "needs a --worktree"},
		{"--mode empty --worktree /", "no --worktree"},
		{"--env =x", "has no name"},
		{"--label x", "write K=V"},
		{"--limit memory", "NAME=VALUE"},
		{"--limit memory=much", "not a size"},
		{"--limit pids=1.5", "not a whole number"},
		{"--mount /x", "SRC:DST"},
		{"--mount /:/x:rw", "SRC:DST:cow"},
		{"--mount /nonexistent:/x", "no such file"},
		{"--ttl soon", "not a duration"},
		{"--net example.org", "write none or rules"},
		{"--limit jobs=1", "no limit \"jobs\""},
		{"extra", `"extra" is one argument too many`},
		{"--wrktree .", `did you mean "worktree"`},
	} {
		ctl(t, t.Context(), "", append([]string{"session", "create"}, strings.Fields(c.args)...)...).want(t, 2, "", c.stderr)
	}
}

func TestParseMounts(t *testing.T) {
	dir := t.TempDir()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]client.MountMode{"": "", ":ro": client.MountRO, ":cow": client.MountCow} {
		got, err := parseMounts([]string{dir + ":/x" + mode})
		if err != nil || len(got) != 1 || got[0] != (client.Mount{Source: dir, Target: "/x", Mode: want, Seen: client.SeenAs(info)}) {
			t.Errorf("%q: %+v, %v", mode, got, err)
		}
	}
}

func TestSessionList(t *testing.T) {
	bad := session()
	bad.ID, bad.Name, bad.State = "ses_2", "x\ny\x1b[2J", client.SessionLost
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			answer(w, 200, client.List[client.Session]{Items: []client.Session{session()}, Next: "more"})
			return
		}
		answer(w, 200, client.List[client.Session]{Items: []client.Session{bad}})
	}})
	r := d.ctl("session", "list", "--all", "--label", "job=42", "--state", "ready")
	r.want(t, 0, `x\ny\x1b[2J`, "")
	if !strings.HasPrefix(r.stdout, "ID        NAME         STATE  WORKTREE     AGE") || strings.Count(r.stdout, "\n") != 3 {
		t.Errorf("table:\n%s", r.stdout)
	}
	if q := d.asked("GET", "/sessions")[0].query; q != "all=1&label=job%3D42&state=ready&tenant=%2A" {
		t.Errorf("query %q", q)
	}
	if r := d.ctl("session", "list", "-o", "name"); r.stdout != "ses_0123\nses_2\n" {
		t.Errorf("names %q", r.stdout)
	}
	var l client.List[client.Session]
	decode(t, []byte(d.ctl("session", "list", "-o", "json").stdout), &l)
	if len(l.Items) != 2 || l.Items[1].Name != bad.Name {
		t.Errorf("json %+v", l)
	}
	empty := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions": answerWith(client.List[client.Session]{})})
	if r := empty.ctl("session", "list", "-o", "json"); r.stdout != "{\n  \"items\": []\n}\n" {
		t.Errorf("empty list %q", r.stdout)
	}
}

func TestSessionShow(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions":      answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"GET /v1/sessions/{id}": answerWith(session()),
	})
	r := d.ctl("session", "show", "review")
	r.want(t, 0, "cpu 1.5s, memory 3.0MiB, 4 processes, disk 0B, 5 calls", "")
	r.want(t, 0, "/src (bind) at /workspace", "")
	d.ctl("session", "show", "review", "-o", "yaml").want(t, 0, "worktree:\n  source: /src\n", "")
	gone := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions/{id}": problemWith(404, client.CodeNotFound)})
	gone.ctl("session", "show", "ses_9").want(t, 4, "", "it is so\ntoolctl:   try otherwise")
}

// TestKeptChanges: who ends a session or looks at one that is over hears of its changes.
func TestKeptChanges(t *testing.T) {
	s := session()
	until := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
	s.Worktree = client.Worktree{Source: "/src\x1b", Mode: client.WorktreeOverlay, KeptUntil: &until}
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions/{id}": answerWith(s), "DELETE /v1/sessions/{id}": answerWith(s)})
	at := timeText(&until)
	d.ctl("session", "rm", fakeSession).want(t, 0, fakeSession+" ended\n",
		"toolctl: session "+fakeSession+` keeps its changes, beside /src\x1b, until `+at+":\n  toolctl diff|apply|discard "+fakeSession+"\n")
	d.ctl("session", "show", fakeSession).want(t, 0, "kept until "+at, "")
	d.ctl("session", "show", fakeSession, "-o", "json").want(t, 0, `"kept_until": "2100-01-02T03:04:05Z"`, "")
}

func TestSessionRm(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"DELETE /v1/sessions/{id}": func(w http.ResponseWriter, r *http.Request) {
			if id := r.PathValue("id"); id != fakeSession && id != "review" {
				answerProblem(w, 404, client.CodeNotFound, "no such session")
				return
			}
			answer(w, 200, session())
		},
	})
	d.ctl("session", "rm", "ses_9", "review", "nobody").want(t, 4, fakeSession+" ended\n", `end ses_9: no session has an id that is "ses_9"`)
	d.ctl("session", "rm", "--discard", "review").want(t, 0, fakeSession+" ended\n", "")
	if q := d.asked("DELETE", "/review"); q[len(q)-1].query != "discard=1" {
		t.Errorf("query %+v", q)
	}
	d.ctl("session", "rm", "--all", "--force", "--keep").want(t, 0, fakeSession+" ended\n", "")
	all := d.asked("DELETE", "/"+fakeSession)
	if q := all[len(all)-1].query; q != "force=1&keep=1" {
		t.Errorf("query %q", q)
	}
	told := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions/{id}": answerWith(session()),
		"DELETE /v1/sessions/{id}": func(w http.ResponseWriter, _ *http.Request) {
			s := session()
			s.Notes = append(s.Notes, "not\x1ball is back")
			answer(w, 200, s)
		},
	})
	if r := told.ctl("session", "rm", "review"); r.code != 0 || r.stderr != "toolctl: session "+fakeSession+": not\\x1ball is back\n" {
		t.Errorf("%+v", r)
	}
	d.ctl("session", "rm").want(t, 2, "", "--all")
	d.ctl("session", "rm", "--all", "x").want(t, 2, "", "--all")
}

func TestSessionSet(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{"PATCH /v1/sessions/{id}": answerWith(session()), "GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{session()}})})
	for _, tt := range []struct{ flags, want string }{
		{"--ttl 2h", `{"ttl":7200000}`},
		{"--ttl 0", `{"ttl":0}`},
		{"--label a=b --label c= --profile build", `{"labels":{"a":"b","c":""},"profile":"build"}`},
	} {
		before := len(d.asked("PATCH", ""))
		d.ctl(append([]string{"session", "set", "review"}, strings.Fields(tt.flags)...)...).want(t, 0, fakeSession, "")
		if got := d.asked("PATCH", "")[before:]; len(got) != 1 || string(got[0].body) != tt.want {
			t.Errorf("%s: sent %+v, want %s", tt.flags, got, tt.want)
		}
	}
	for flags, says := range map[string]string{"": "--ttl, --label or --profile", "--ttl x": "--ttl", "--label a": "write K=V"} {
		d.ctl(append([]string{"session", "set", "review"}, strings.Fields(flags)...)...).want(t, 2, "", says)
	}
}

func TestSessionLogsOfSome(t *testing.T) {
	var calls []client.Call
	for i := range 5 {
		c := bashDone("", exited(0))
		c.ID, c.Time.Queued = fmt.Sprintf("call_%d", i), time.Date(2030, 1, 1, i, 0, 0, 0, time.UTC)
		calls = append(calls, c)
	}
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions/{id}/calls": answerWith(client.List[client.Call]{Items: calls})})
	for flags, want := range map[string]string{
		"--tail 2":                              "call_3\ncall_4\n",
		"--tail 9":                              "call_0\ncall_1\ncall_2\ncall_3\ncall_4\n",
		"--since 2030-01-01T03:00:00Z":          "call_3\ncall_4\n",
		"--since 2030-01-01T01:00:00Z --tail 1": "call_4\n",
		"--since 2031-01-01T00:00:00Z":          "",
	} {
		r := d.ctl(append([]string{"session", "logs", fakeSession, "-o", "name"}, strings.Fields(flags)...)...)
		if r.code != 0 || r.stdout != want || strings.Contains(r.stderr, "before these") == (strings.Count(want, "\n") == 5) {
			t.Errorf("%s: %+v, want %q", flags, r, want)
		}
	}
	for flags, says := range map[string]string{
		"--tail -1": "1 or more", "--since x": "neither a time", "--tail 1 --follow": "--follow out", "--since 1h call_1": "CALL",
	} {
		d.ctl(append([]string{"session", "logs", fakeSession}, strings.Fields(flags)...)...).want(t, 2, "", says)
	}
}

func TestSessionLogs(t *testing.T) {
	failed := client.Call{ID: "call_2", Tool: "edit", Status: client.CallError, Error: &client.Error{Code: client.CodeStale, Message: "changed"}}
	ok := bashDone("line\n2026-01-01 00:00:00 call_9 fake\x1b[2J", exited(0))
	ok.Title = "make\nit"
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions":            answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"GET /v1/sessions/{id}/calls": answerWith(client.List[client.Call]{Items: []client.Call{ok, failed}}),
		"GET /v1/sessions/{id}":       answerWith(session()),
		"GET /v1/calls/{id}":          answerWith(ok),
		"GET /v1/calls/call_9":        answerWith(client.Call{ID: "call_9", SessionID: "ses_9"}),
		"GET /v1/calls/{id}/output": func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("whole\x00" + r.URL.RawQuery))
		},
	})
	r := d.ctl("session", "logs", "review")
	r.want(t, 0, "    line\n    2026-01-01 00:00:00 call_9 fake\\x1b[2J\n", "")
	r.want(t, 0, "call_2 edit: stale", "")
	r.want(t, 0, `make\nit`, "")
	d.ctl("session", "logs", "review", "--short", "--tool", "bash").want(t, 0, "RESULT", "")
	d.ctl("session", "logs", "review", "-o", "name").want(t, 0, "call_0123\ncall_2\n", "")
	if r := d.ctl("session", "logs", "review", fakeCall, "--follow"); r.stdout != "whole\x00follow=1" {
		t.Errorf("output %q", r.stdout)
	}
	d.ctl("session", "logs", "review", fakeCall, "-o", "json").want(t, 0, `"exit_code": 0`, "")
	d.ctl("session", "logs", "review", "call_9").want(t, 4, "", "call_9 is not a call of session review; it belongs to ses_9")
}

// TestSessionListHelpers: the daemon's own sessions that are over are left out for people, and counted.
func TestSessionListHelpers(t *testing.T) {
	helper, live := session(), session()
	helper.ID, helper.State, helper.Labels = "ses_helper", client.SessionEnded, map[string]string{helperLabel: fakeSession}
	live.ID, live.Labels = "ses_live", helper.Labels
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{helper, live}})})
	r := d.ctl("session", "list", "--all")
	r.want(t, 0, "ses_live", "1 session of the daemon's own left out")
	if strings.Contains(r.stdout, "ses_helper") {
		t.Error("a helper is listed")
	}
	for _, args := range []string{"session list --all -o json", "session list --all --label toold/for=" + fakeSession} {
		d.ctl(strings.Fields(args)...).want(t, 0, "ses_helper", "")
	}
}
