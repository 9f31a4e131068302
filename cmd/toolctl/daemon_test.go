package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/config"
)

func TestUnreachable(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	for _, args := range []string{"session list", "session show x", "tools", "events", "doctor", "gc", "top", "cp a:b c", "call a read"} {
		r := ctl(t, t.Context(), "", append([]string{"--socket", none}, strings.Fields(args)...)...)
		r.want(t, 6, "", "or name the socket of another one")
	}
	ctl(t, t.Context(), "", "--socket", none, "version").want(t, 0, "toold   not reached", "")
}

func TestAnswersAndExitCodes(t *testing.T) {
	for code, want := range map[client.Code]int{
		client.CodeDenied: 3, client.CodeForbidden: 3, client.CodeNotFound: 4, client.CodeApprovalTimeout: 3, client.CodeDoomLoop: 3,
		client.CodeInvalidRequest: 2, client.CodeInternal: 1, client.CodeOverloaded: 1, client.CodeConflict: 1,
	} {
		d := startFake(t, map[string]http.HandlerFunc{"GET /v1/doctor": problemWith(400, code)})
		d.ctl("doctor").want(t, want, "", "toolctl: it is so\ntoolctl:   try otherwise\n")
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, stderr string }{
		{"sesion list", `did you mean "session"`},
		{"session lst", `did you mean "list"`},
		{"session list -o xml", "one of table, json, yaml, name"},
		{"nonsense", "no command"},
		{"backup frob", `no command "toolctl backup frob": there are create and restore`},
		{"approvals revoke x", "write toolctl approvals saved rm SAVED"},
		{"policy check", "write toolctl config check, or toolctl policy test"},
		{"approvals reply", "usage: toolctl approvals answer APPROVAL"},
		{"approvals saved revoke", "usage: toolctl approvals saved rm SAVED"},
		{"call onlyone", "usage: toolctl call SESSION TOOL"},
		{"completion tcsh", "invalid argument"},
		{"cp a b", "exactly one side"},
		{"cp a:b c:d", "exactly one side"},
	} {
		ctl(t, t.Context(), "", strings.Fields(c.args)...).want(t, 2, "", c.stderr)
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	var walk func(path []string)
	walk = func(path []string) {
		r := ctl(t, t.Context(), "", append(append([]string{}, path...), "--help")...)
		r.want(t, 0, "Usage:", "")
		r.want(t, 0, "Examples:", "")
		_, list, ok := strings.Cut(r.stdout, "Available Commands:\n")
		if !ok {
			return
		}
		list, _, _ = strings.Cut(list, "\n\n")
		for l := range strings.Lines(list) {
			if name := strings.Fields(l)[0]; name != "help" {
				walk(append(append([]string{}, path...), name))
			}
		}
	}
	walk(nil)
}

func TestTokenAndTenant(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/version": answerWith(client.Version{Version: "1", API: "v1"})})
	d.ctl("version", "--tenant", "ci", "--token", "T").want(t, 0, "toold   1, API v1", "")
	h := d.asked("GET", "/version")[0].header
	if h.Get("Toold-Tenant") != "ci" || h.Get("Authorization") != "Bearer T" {
		t.Errorf("headers %v", h)
	}
}

func TestTools(t *testing.T) {
	defs := []client.ToolDefinition{{Name: "bash", Description: "Runs a command. More.", InputSchema: json.RawMessage(`{"properties":{"timeout":{},"command":{}},"required":["command"]}`)}}
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/tools": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("format") != "" {
			answer(w, 200, map[string]any{"items": []any{map[string]string{"of": r.URL.Query().Get("format")}}})
			return
		}
		answer(w, 200, client.List[client.ToolDefinition]{Items: defs})
	}})
	d.ctl("tools").want(t, 0, "bash  command timeout?  Runs a command\n", "")
	d.ctl("tools", "--format", "openai").want(t, 0, `"of": "openai"`, "")
	d.ctl("tools", "-o", "name").want(t, 0, "bash\n", "")
}

func TestDoctor(t *testing.T) {
	report := client.Doctor{Checks: []client.Check{
		{Group: "limit", Name: "memory", Status: client.CheckOK, Detail: "cgroup v1", Probed: true},
		{Group: "runtime", Name: "crun", Status: client.CheckFail, Detail: "too old", Hint: "install 1.28"},
	}}
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/doctor": answerWith(report)})
	d.ctl("doctor", "--probe").want(t, 1, "runtime  crun    fail    too old\n", "runtime crun: install 1.28")
	if d.asked("GET", "/doctor")[0].query != "probe=1" {
		t.Error("not probed")
	}
}

func TestGC(t *testing.T) {
	found := client.List[client.Garbage]{Items: []client.Garbage{{Kind: "cgroup", Name: "x\x1b", Error: "busy"}}}
	d := startFake(t, map[string]http.HandlerFunc{"POST /v1/gc": answerWith(found)})
	d.ctl("gc").want(t, 1, `x\x1b`, "1 could not be removed")
	d.ctl("gc", "--dry-run").want(t, 0, "busy", "")
	startFake(t, map[string]http.HandlerFunc{"POST /v1/gc": answerWith(client.List[client.Garbage]{})}).ctl("gc").want(t, 0, "KIND", "nothing left behind")
}

// TestGCRecords: records are listed in any case, and removed only with --records.
func TestGCRecords(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{"POST /v1/gc": func(w http.ResponseWriter, r *http.Request) {
		var q client.GCRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		var l client.List[client.Garbage]
		if q.Records {
			l.Items = []client.Garbage{{Kind: client.GarbageRecords, Name: "ci", Bytes: 5 << 20, Removed: !q.DryRun}}
		}
		answerWith(l)(w, r)
	}})
	for args, want := range map[string]string{"--dry-run": "no", "": "no", "--records": "yes"} {
		said := ""
		if args == "" {
			said = "toolctl gc --records frees 5.0MiB"
		}
		d.ctl(strings.Fields("gc "+args)...).want(t, 0, "records  ci    -        5.0MiB  "+want, said)
	}
}

func TestEvents(t *testing.T) {
	e := client.Event{ID: "evt_1", Type: "call.completed", Session: fakeSession, Data: json.RawMessage(`{"title":"\u001b[2J"}`)}
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/events": func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("stored") != "1" || r.Header.Get("Last-Event-ID") != "" {
			t.Errorf("asked for %v after %q", q, r.Header.Get("Last-Event-ID"))
		}
		sendEvent(w, e.Type, e)
		sendEvent(w, client.EventEnd, client.Event{Type: client.EventEnd})
		<-r.Context().Done() // that was all of it, also where the stream goes on
	}})
	r := d.ctl("events", "--session", fakeSession, "--type", "call.*")
	r.want(t, 0, `{"title":"\u001b[2J"}`, "")
	if strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("printed %q", r.stdout)
	}
	var got client.Event
	decode(t, []byte(d.ctl("events", "-o", "json").stdout), &got)
	if got.ID != e.ID {
		t.Errorf("%+v", got)
	}
}

func TestTop(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{session()}}), // and no other
	})
	r := d.ctl("top")
	r.want(t, 0, "ses_0123  review  ready  -    1.5s      3.0MiB  4          5", "")
	if strings.Contains(r.stdout, "\x1b") {
		t.Errorf("escapes in %q", r.stdout)
	}
}

func TestTopLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes in between
		top := &topCommand{cpu: map[string]cpuSample{fakeSession: {time.Now().Add(-time.Second), 1000}}}
		if got := top.load(session()); got != 50 {
			t.Errorf("500 ms in a second: %g", got)
		}
	})
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.toml"), filepath.Join(dir, "bad.toml")
	for name, text := range map[string]string{good: "[limits]\nmemory = \"1536MiB\"\n[tenant.ci]\nuids = [1001]\n", bad: "[limits]\nmemry = 1\n\n[daemon]\nlog = \"loud\"\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctl(t, t.Context(), "", "config", "check", good).want(t, 0, "good.toml is valid", "")
	r := ctl(t, t.Context(), "", "config", "check", bad)
	r.want(t, 1, "", "bad.toml:2: ")
	r.want(t, 1, "", "bad.toml:5: ")
	r.want(t, 1, "", "2 problems")
	ctl(t, t.Context(), "", "config", "check", dir+"/none").want(t, 1, "", "no such file")
	shown := ctl(t, t.Context(), "", "config", "show", good)
	shown.want(t, 0, "[tenant.ci]\n    uids = [1001]\n", "")
	// What show prints is a configuration again.
	shown.want(t, 0, `memory = "1536MiB"`, "")
	again := filepath.Join(dir, "again.toml")
	if err := os.WriteFile(again, []byte(shown.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := ctl(t, t.Context(), "", "config", "show", again); r.stdout != shown.stdout {
		t.Errorf("exit %d %s\n%s", r.code, r.stderr, r.stdout)
	}
	ctl(t, t.Context(), "", "config", "show", good, "-o", "json").want(t, 0, `"memory": "1536MiB"`, "")
	ctl(t, t.Context(), "", "config", "show", bad).want(t, 1, "", "2 problems")
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		ctl(t, t.Context(), "", "completion", shell).want(t, 0, "toolctl", "")
	}
	hostile := session()
	hostile.ID, hostile.Name = "ses_2", "x\ty\nz"
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions":            answerWith(client.List[client.Session]{Items: []client.Session{session(), hostile}}),
		"GET /v1/sessions/{id}/calls": answerWith(client.List[client.Call]{Items: []client.Call{bashDone("", nil)}}),
		"GET /v1/tools":               answerWith(client.List[client.ToolDefinition]{Items: []client.ToolDefinition{{Name: "bash", Description: "Runs a command."}}}),
	})
	for _, c := range []struct{ line, want string }{
		{"session show", "review\tready /src (bind)\nses_0123\tready"},
		{"session show", `x\ty\nz`},
		{"session rm review", "ses_0123"},
		{"session logs review", "call_0123\tbash"},
		{"call review", "bash\tRuns a command\n"},
		{"cp", "review:\tready"},
		{"session list --state", "ready"},
		{"run --limit", "memory="},
		{"session create --mode", "empty"},
	} {
		args := append(append([]string{"__complete", "--socket", d.socket}, strings.Fields(c.line)...), "")
		ctl(t, t.Context(), "", args...).want(t, 0, c.want, "")
	}
	// Without a daemon there is nothing to offer, and no error.
	ctl(t, t.Context(), "", "__complete", "--socket", d.socket+"x", "session", "show", "").want(t, 0, ":4", "")
}

func TestGenDocs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	usage := filepath.Join(t.TempDir(), "usage")
	if err := os.WriteFile(usage, []byte("toold runs things.\n\nusage: toold [flags]\n\n.hidden \\x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctl(t, t.Context(), "", "gen-docs", dir, "../../config.toml", usage).want(t, 0, "", "")
	page := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if !strings.Contains(page("toolctl-session-create.1"), "idle") {
		t.Error("the page of session create has no flags")
	}
	if text := page("toold.8"); !strings.Contains(text, `toold \- runs things`+"\n") || !strings.Contains(text, "\n"+`\&.hidden \ex`) {
		t.Errorf("the page of toold:\n%s", text)
	}
	settings := page("toold.toml.5")
	for _, name := range []string{"toolctl-session-create.1", "toold.8", "toold.toml.5"} {
		if head, _, _ := strings.Cut(page(name), "\n.SH"); !strings.Contains(head, `"toold `+client.Release+`"`) {
			t.Errorf("%s does not say which release it is of: %s", name, head)
		}
	}
	for _, key := range config.Keys() {
		_, name, _ := strings.Cut(key, ".")
		name = name[strings.LastIndex(name, ".")+1:]
		if !strings.Contains(settings, `\fB`+name+" = ") && !strings.Contains(settings, `\fB`+name+" ") && !strings.Contains(settings, `\fB#`+name+" = ") {
			t.Errorf("the page of settings has no %s", key)
		}
	}
	for line := range strings.Lines(settings) {
		if strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".PP") && !strings.HasPrefix(line, ".S") && !strings.HasPrefix(line, ".nf") && !strings.HasPrefix(line, ".fi") && !strings.HasPrefix(line, ".BR ") && !strings.HasPrefix(line, ".TH ") {
			t.Errorf("troff takes %q for a request", line)
		}
	}
}
