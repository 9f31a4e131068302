package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/testrig"
)

// do sends one request past the proxy that checks answers, and gives the answer
// with its body read.
func (d *daemon) do(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	return send(t, d.checked, method, path, body, header...)
}

func send(t *testing.T, socket, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://toold"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read: %v", method, path, err)
	}
	return resp, string(b)
}

// problem decodes a problem document.
func problem(t *testing.T, body string) client.Problem {
	t.Helper()
	var p client.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.Code == "" || p.Detail == "" || !p.IsError || !strings.HasPrefix(p.Output, p.Detail+"\n") {
		t.Fatalf("not a problem: %q (%v)", body, err)
	}
	return p
}

func (d *daemon) session(t *testing.T, o client.Options, r client.SessionCreate) *client.Session {
	t.Helper()
	s, err := d.client(o).CreateSession(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// made is a session that no request made.
func (d *daemon) made(t *testing.T) *client.Session {
	t.Helper()
	s, err := d.api.Create(t.Context(), auth.Principal{Tenant: auth.DefaultTenant}, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clientMethods calls the client's method for every route.
func clientMethods(ctx context.Context, c *client.Client, ses, call string) map[string]func() error {
	only := func(_ any, err error) error { return err }
	return map[string]func() error{
		"Version": func() error { return only(c.Version(ctx)) },
		"Health":  func() error { return only(c.Health(ctx)) },
		"Ready":   func() error { return only(c.Ready(ctx)) },
		"OpenAPI": func() error { return only(c.OpenAPI(ctx)) },
		"Metrics": func() error { return only(c.Metrics(ctx)) },
		"Tools":   func() error { return only(c.Tools(ctx, client.ToolQuery{})) },

		"CreateSession": func() error { return only(c.CreateSession(ctx, client.SessionCreate{})) },
		"ListSessions": func() error {
			return only(c.ListSessions(ctx, client.SessionQuery{State: "ready", Labels: map[string]string{"a": "b"}, All: true, After: ses, Limit: 3}))
		},
		"GetSession": func() error { return only(c.GetSession(ctx, ses)) },
		"PatchSession": func() error {
			return only(c.PatchSession(ctx, ses, client.SessionPatch{Labels: map[string]string{"x": ""}}))
		},
		"EndSession": func() error {
			return only(c.EndSession(ctx, ses, client.EndOptions{Force: true, Keep: true, Discard: true}))
		},
		"PutFile": func() error { return only(c.PutFile(ctx, ses, "f", 0o755, strings.NewReader("x"))) },
		"GetFile": func() error {
			r, _, err := c.GetFile(ctx, ses, "f")
			if err == nil {
				err = r.Close()
			}
			return err
		},
		"Diff": func() error {
			r, err := c.Diff(ctx, ses, client.DiffQuery{Paths: []string{"a b", "c"}, Against: fakeCheckpoint})
			if err == nil {
				err = r.Close()
			}
			return err
		},
		"Apply":          func() error { return only(c.Apply(ctx, ses, client.ApplyRequest{})) },
		"Discard":        func() error { return only(c.Discard(ctx, ses, client.DiscardRequest{})) },
		"Checkpoint":     func() error { return only(c.Checkpoint(ctx, ses, client.CheckpointCreate{})) },
		"SessionNetwork": func() error { return only(c.SessionNetwork(ctx, ses)) },
		"ListCaches":     func() error { return only(c.ListCaches(ctx, client.CacheQuery{})) },
		"RemoveCache":    func() error { return c.RemoveCache(ctx, fakeCache) },
		"PromoteCache":   func() error { return only(c.PromoteCache(ctx, ses, fakeCache)) },
		"Checkpoints":    func() error { return only(c.Checkpoints(ctx, ses)) },
		"DropCheckpoint": func() error { return c.DropCheckpoint(ctx, ses, fakeCheckpoint) },
		"Restore":        func() error { return only(c.Restore(ctx, ses, client.RestoreRequest{Undo: 1})) },
		"Fork":           func() error { return only(c.Fork(ctx, ses, client.ForkRequest{})) },
		"CreateCall": func() error {
			return only(c.CreateCall(ctx, ses, client.CallCreate{Tool: "echo", Input: json.RawMessage(`{}`)}, client.CallOptions{AbortOnDisconnect: true, Split: true}))
		},
		"ListCalls": func() error {
			return only(c.ListCalls(ctx, ses, client.CallQuery{Status: "completed", Tool: "echo", After: call, Limit: 3}))
		},
		"GetCall": func() error { return only(c.GetCall(ctx, call)) },
		"CallOutput": func() error {
			r, err := c.CallOutput(ctx, call, client.OutputQuery{Offset: 1, Stream: "stdout"})
			if err == nil {
				err = r.Close()
			}
			return err
		},
		"AbortCall": func() error { return only(c.AbortCall(ctx, call)) },
		"MCP": func() error {
			endpoint, h := c.MCP(ses)
			r, err := http.NewRequestWithContext(ctx, "POST", endpoint, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			resp, err := h.Do(r)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		},
		"Events": func() error {
			for _, err := range c.Events(ctx, client.EventQuery{Session: ses, Type: "session.*", After: "evt_0"}) {
				return err
			}
			return fmt.Errorf("no event")
		},
		"ListApprovals": func() error {
			return only(c.ListApprovals(ctx, client.ApprovalQuery{Session: ses, After: fakeApproval, Limit: 3}))
		},
		"AnswerApproval": func() error {
			return only(c.AnswerApproval(ctx, fakeApproval, client.ApprovalAnswer{Answer: client.AnswerOnce}))
		},
		"ListSavedApprovals": func() error { return only(c.ListSavedApprovals(ctx, client.ApprovalQuery{})) },
		"RevokeApproval":     func() error { return c.RevokeApproval(ctx, fakeSaved) },
		"ExplainPolicy": func() error {
			return only(c.ExplainPolicy(ctx, client.PolicyExplain{Tool: "bash", Input: json.RawMessage(`{}`)}))
		},
		"ReplayPolicy": func() error { return only(c.ReplayPolicy(ctx, client.PolicyReplay{Rules: "x = 1"})) },

		"ListImages": func() error { return only(c.ListImages(ctx)) },
		"PullImage":  func() error { return only(c.PullImage(ctx, client.ImagePull{Ref: "slow:1"}, nil)) },
		"ImportImage": func() error {
			return only(c.ImportImage(ctx, "team/tools:1", strings.NewReader("archive")))
		},
		"RemoveImage": func() error { return c.RemoveImage(ctx, fakeImage) },

		"Usage":  func() error { return only(c.Usage(ctx)) },
		"Doctor": func() error { return only(c.Doctor(ctx, true)) },
		"GC":     func() error { return only(c.GC(ctx, client.GCRequest{DryRun: true})) },
		"Backup": func() error {
			r, err := c.Backup(ctx)
			if err == nil {
				err = r.Close()
			}
			return err
		},
		"Drain":  func() error { return only(c.Drain(ctx, true)) },
		"Reload": func() error { return only(c.Reload(ctx, true)) },
		"Brief": func() error {
			text, err := c.Brief(ctx, "ses_1")
			if err == nil && text != "the brief of ses_1" {
				err = fmt.Errorf("brief %q", text)
			}
			return err
		},
		"Config": func() error {
			text, err := c.Config(ctx)
			if err == nil && !strings.Contains(string(text), "cpus = 2.0") {
				err = fmt.Errorf("settings %q", text)
			}
			return err
		},
	}
}

// TestClientHasEveryRoute: for each route of the table the client has a method
// of its name that makes exactly this request, and whose answer fits the spec.
func TestClientHasEveryRoute(t *testing.T) {
	var asked string
	d := start(t, func(c *Config) {
		c.Reload = func(_ context.Context, dryRun bool) (*client.Reloaded, error) {
			asked = fmt.Sprint("reload ", dryRun)
			return &client.Reloaded{Warnings: []string{}, AtStart: []string{}}, nil
		}
	})
	c := d.client(client.Options{})
	s := d.session(t, client.Options{}, client.SessionCreate{})
	call, err := c.CreateCall(t.Context(), s.ID, client.CallCreate{Tool: "echo", Input: json.RawMessage(`{"a":1}`)}, client.CallOptions{})
	if err != nil {
		t.Fatal(err)
	}
	methods := clientMethods(t.Context(), c, s.ID, call.ID)
	for i := range routes {
		rt := &routes[i]
		f := methods[rt.op]
		if _, ok := reflect.TypeOf(c).MethodByName(rt.op); !ok || f == nil {
			t.Errorf("package client has no method %s for %s %s", rt.op, rt.method, rt.pattern)
			continue
		}
		delete(methods, rt.op)
		before := strings.Count(d.logs.String(), "\n")
		if err := f(); err != nil {
			t.Errorf("%s: %v", rt.op, err)
		}
		want := fmt.Sprintf(`"method":%q,"route":%q,"status":%d`, rt.method, rt.pattern, rt.status)
		if !testrig.Soon(func() bool {
			return strings.Count(d.logs.String(), "\n") > before && strings.Contains(d.logs.String(), want)
		}) {
			t.Errorf("%s: the daemon did not log %s", rt.op, want)
		}
	}
	if len(methods) > 0 {
		t.Errorf("methods of the client without a route: %v", slices.Collect(maps.Keys(methods)))
	}
	if asked != "reload true" {
		t.Error("reload was not called")
	}
}

// TestRoles: what each kind of principal may use.
func TestRoles(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{Token: true})
	if s.Token == "" {
		t.Fatal("no token")
	}
	other := d.session(t, client.Options{}, client.SessionCreate{Token: true})
	call := func(ses string) string {
		c, err := d.client(client.Options{}).CreateCall(t.Context(), ses, client.CallCreate{Tool: "echo", Input: json.RawMessage(`{}`)}, client.CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c.ID
	}
	mine, theirs := call(s.ID), call(other.ID)
	for i := range routes {
		rt := &routes[i]
		if rt.op == "Events" {
			continue // does not end; its role is checked below
		}
		own := d.try(t, rt, s.ID, mine, s.Token)
		if want := rt.role <= roleToken; (own != http.StatusForbidden) != want {
			t.Errorf("%s with the token of its session: %d, want allowed=%v", rt.op, own, want)
		}
		if strings.Contains(rt.pattern, "{id}") && rt.role <= roleToken {
			if got := d.try(t, rt, other.ID, theirs, s.Token); got != http.StatusNotFound {
				t.Errorf("%s with the token of another session: %d, want 404", rt.op, got)
			}
		}
	}
	for _, path := range []string{"/v1/events", "/v1/sessions", "/v1/sessions/" + s.ID + "/files?path=x&archive=tar"} {
		if resp, _ := d.do(t, "GET", path, "", "Authorization", "Bearer "+s.Token); resp.StatusCode != 403 {
			t.Errorf("GET %s with a token: %d, want 403", path, resp.StatusCode)
		}
	}
	if resp, _ := d.do(t, "GET", "/v1/tools?session="+other.ID, "", "Authorization", "Bearer "+s.Token); resp.StatusCode != 404 {
		t.Errorf("tools of another session with a token: %d, want 404", resp.StatusCode)
	}
	if p := d.api.seen(); p.Admin {
		t.Errorf("the holder of a token is %+v, want no admin", p)
	}
}

// TestTokenByName: the holder of a token names its session by the id or by the name;
// the name of another one is answered like one that nobody has, byte for byte.
func TestTokenByName(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{Name: "own", Token: true})
	nameless := d.session(t, client.Options{}, client.SessionCreate{Token: true})
	d.session(t, client.Options{}, client.SessionCreate{Name: "theirs"})
	call := d.client(client.Options{Token: s.Token})
	if c, err := call.CreateCall(t.Context(), "own", client.CallCreate{Tool: "echo", Input: input(`{}`)}, client.CallOptions{}); err != nil || c.SessionID != s.ID {
		t.Errorf("a call by the session's name: %+v, %v", c, err)
	}
	if l, err := call.ListCalls(t.Context(), "own", client.CallQuery{}); err != nil || len(l.Items) != 1 {
		t.Errorf("its calls by name: %+v, %v", l, err)
	}
	for _, path := range []string{"/v1/sessions/NAME/calls", "/v1/sessions/NAME", "/v1/tools?session=NAME"} {
		ask := func(name, token string) string {
			resp, text := d.do(t, "GET", strings.Replace(path, "NAME", name, 1), "", "Authorization", "Bearer "+token)
			return fmt.Sprint(resp.StatusCode, len(resp.Header), strings.ReplaceAll(text, name, "NAME"))
		}
		if got := ask("own", s.Token); !strings.HasPrefix(got, "200") {
			t.Errorf("%s of its own session: %s", path, got)
		}
		for _, token := range []string{s.Token, nameless.Token} {
			if a, b := ask("theirs", token), ask("nobody", token); a != b || !strings.HasPrefix(a, "404") {
				t.Errorf("%s: foreign %q, unknown %q; want the same 404", path, a, b)
			}
		}
	}
}

// with is the route's path with ids in it that exist.
func (rt *route) with(ses, call string) string {
	there := map[string]string{
		"session": ses, "checkpoint": fakeCheckpoint, "cache": fakeCache, "call": call,
		"approval": fakeApproval, "saved approval": fakeSaved, "image": url.PathEscape(fakeImage),
	}
	path := rt.pattern
	for _, kind := range rt.pathIDs() {
		path = strings.Replace(path, "{"+kind.name()+"}", there[kind.what], 1)
	}
	return path
}

// try makes a request to a route and gives its status.
func (d *daemon) try(t *testing.T, rt *route, ses, call, token string) int {
	t.Helper()
	path, body := rt.with(ses, call), ""
	switch rt.op {
	case "CreateCall":
		body = `{"tool":"echo","input":{}}`
	case "PullImage":
		body = `{"ref":"slow:1"}`
	case "PutFile", "GetFile":
		path += "?path=x"
	default:
		if rt.request != nil {
			body = `{}`
		}
	}
	resp, _ := d.do(t, rt.method, path, body, "Authorization", "Bearer "+token)
	return resp.StatusCode
}

func TestTokenErrors(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{Token: true})
	for _, tt := range []struct {
		name   string
		header []string
		status int
	}{
		{"right", []string{"Authorization", "Bearer " + s.Token}, 200},
		{"unknown", []string{"Authorization", "Bearer nonsense"}, 403},
		{"empty", []string{"Authorization", "Bearer "}, 400},
		{"other scheme", []string{"Authorization", "Basic " + s.Token}, 400},
		{"with a tenant", []string{"Authorization", "Bearer " + s.Token, "Toold-Tenant", "a"}, 400},
	} {
		if resp, body := d.do(t, "GET", "/v1/sessions/"+s.ID, "", tt.header...); resp.StatusCode != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, resp.StatusCode, body, tt.status)
		}
	}
}

func TestTenantHeader(t *testing.T) {
	d := start(t, nil)
	mine := d.session(t, client.Options{}, client.SessionCreate{})
	theirs := d.session(t, client.Options{Tenant: "a"}, client.SessionCreate{})
	if mine.Tenant != auth.DefaultTenant || theirs.Tenant != "a" {
		t.Errorf("tenants %q and %q, want default and a", mine.Tenant, theirs.Tenant)
	}
	if _, err := d.client(client.Options{Tenant: "b"}).GetSession(t.Context(), theirs.ID); err == nil {
		t.Error("an admin acting for b sees a session of a")
	}
	if resp, body := d.do(t, "GET", "/v1/sessions", "", "Toold-Tenant", "c"); resp.StatusCode != 400 {
		t.Errorf("unknown tenant: %d %s, want 400", resp.StatusCode, body)
	}
}

// TestMethods: what a route does not have is refused with what it has.
func TestMethods(t *testing.T) {
	d := start(t, nil)
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"PUT", "/v1/sessions", 405, "GET, POST, HEAD, OPTIONS"},
		{"BREW", "/v1/sessions", 405, "GET, POST, HEAD, OPTIONS"},
		{"OPTIONS", "/v1/sessions", 204, "GET, POST, HEAD, OPTIONS"},
		{"DELETE", "/v1/version", 405, "GET, HEAD, OPTIONS"},
		{"HEAD", "/v1/events", 405, "GET, OPTIONS"},
		{"GET", "/v1/gc", 405, "POST, OPTIONS"},
		{"HEAD", "/v1/version", 200, ""},
		{"TRACE", "/v1/health", 405, "GET, HEAD, OPTIONS"},
	} {
		resp, body := send(t, d.socket, tt.method, tt.path, "")
		if resp.StatusCode != tt.status || resp.Header.Get("Allow") != tt.allow {
			t.Errorf("%s %s: %d, Allow %q; want %d, %q", tt.method, tt.path, resp.StatusCode, resp.Header.Get("Allow"), tt.status, tt.allow)
		}
		if tt.status == 405 && tt.method != "HEAD" {
			problem(t, body)
		}
		if tt.method == "HEAD" && body != "" {
			t.Errorf("HEAD %s has a body", tt.path)
		}
	}
}

// TestRoutesOfLaterVersions: they are not there, and that is what is said.
func TestRoutesOfLaterVersions(t *testing.T) {
	d := start(t, nil)
	for _, path := range []string{"/v1/audit", "/v1/sessions/ses_1/bundle", "/v2/version", "/", "/v1", "/debug/pprof/heap"} {
		resp, body := d.do(t, "GET", path, "")
		p := problem(t, body)
		if resp.StatusCode != 404 || p.Code != client.CodeNotFound || !strings.Contains(p.Detail, "no route") {
			t.Errorf("GET %s: %d %s, want 404 saying that there is no such route", path, resp.StatusCode, body)
		}
	}
}

func TestQueries(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	for _, tt := range []struct {
		query string
		ok    bool
	}{
		{"", true},
		{"?state=ready&label=a%3Db&label=c%3Dd&all=1&after=ses_x&limit=1000", true},
		{"?all=true", true},
		{"?all=false", true},
		{"?all=yes", false},
		{"?all=1&all=1", false},
		{"?all", false},
		{"?State=ready", false},
		{"?state=happy", false},
		{"?sate=ready", false},
		{"?label=a", false},
		{"?label=%3Db", false},
		{"?label=a%3Db&label=a%3Dc", false},
		{"?limit=-1", false},
		{"?limit=1001", false},
		{"?limit=1e3", false},
		{"?limit=99999999999999999999", false},
		{"?after=%00", false},
		{"?after=%0a", false},
		{"?after=" + strings.Repeat("x", 5000), false},
		{"?a;b", false},
		{"?%zz", false},
	} {
		resp, body := d.do(t, "GET", "/v1/sessions"+tt.query, "")
		if (resp.StatusCode == 200) != tt.ok {
			t.Errorf("%s: %d %s, want ok=%v", tt.query, resp.StatusCode, body, tt.ok)
		}
		if !tt.ok && problem(t, body).Code != client.CodeInvalidRequest {
			t.Errorf("%s: %s, want invalid_request", tt.query, body)
		}
	}
	if _, err := d.client(client.Options{}).ListSessions(t.Context(), client.SessionQuery{State: "ready", Labels: map[string]string{"k": "v=w"}, All: true, After: "ses_1", Limit: 7}); err != nil {
		t.Fatal(err)
	}
	want := client.SessionQuery{State: "ready", Labels: map[string]string{"k": "v=w"}, All: true, After: "ses_1", Limit: 7}
	if got := d.api.filter; !reflect.DeepEqual(got, want) {
		t.Errorf("filter = %+v, want %+v", got, want)
	}
	if resp, body := d.do(t, "GET", "/v1/sessions/"+s.ID+"/files", ""); resp.StatusCode != 400 || !strings.Contains(body, "missing") {
		t.Errorf("files without path: %d %s, want 400", resp.StatusCode, body)
	}
	if resp, body := d.do(t, "GET", "/v1/version?verbose=1", ""); resp.StatusCode != 400 {
		t.Errorf("a parameter for a route without any: %d %s, want 400", resp.StatusCode, body)
	}
}

func TestToolsFormats(t *testing.T) {
	d := start(t, nil)
	c := d.client(client.Options{})
	tools, err := c.Tools(t.Context(), client.ToolQuery{Profile: "build", Session: "ses_1", Provider: "p", Model: "m"})
	if err != nil || len(tools) != 1 || tools[0].Name != "bash" {
		t.Errorf("Tools = %+v, %v", tools, err)
	}
	if want := (client.ToolQuery{Profile: "build", Session: "ses_1", Provider: "p", Model: "m"}); d.api.filter != any(want) {
		t.Errorf("filter = %+v, want %+v", d.api.filter, want)
	}
	if resp, _ := d.do(t, "GET", "/v1/tools?format=cobol", ""); resp.StatusCode != 400 {
		t.Errorf("unknown format: %d, want 400", resp.StatusCode)
	}
	if !strings.Contains(string(tools[0].InputSchema), "7000 (7 seconds)") {
		t.Errorf("schema %s", tools[0].InputSchema)
	}
	for format, key := range map[string]string{"anthropic": "input_schema", "openai": "function", "gemini": "parameters", "mcp": "inputSchema"} {
		shaped, err := c.ToolsFormat(t.Context(), client.ToolQuery{}, format)
		if err != nil || len(shaped) != 1 || !strings.Contains(string(shaped[0]), `"`+key+`"`) || !strings.Contains(string(shaped[0]), "more than 7 seconds") {
			t.Errorf("as %s: %s, %v, want %s", format, shaped, err, key)
		}
	}
}

func TestReloadRefused(t *testing.T) {
	d := start(t, nil)
	_, err := d.client(client.Options{}).Reload(t.Context(), false)
	if e := asError(t, err); e.Code != client.CodeInvalidRequest || !strings.Contains(e.Message, "config.toml:3") {
		t.Errorf("Reload = %v, want invalid_request with the file's line", err)
	}
}

// TestNotReady: a daemon that starts or stops is alive for those who watch over its process, and not ready
// for those who have work for it.
func TestNotReady(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"starting", "draining"} {
		d := start(t, func(c *Config) { c.API.Health = unready{c.API.Health, status} })
		for path, want := range map[string]int{"/v1/health": http.StatusOK, "/v1/ready": http.StatusServiceUnavailable} {
			if resp, body := d.do(t, "GET", path, ""); resp.StatusCode != want {
				t.Errorf("%s while it is %s: %d %s, want %d", path, status, resp.StatusCode, body, want)
			}
		}
		h, err := d.client(client.Options{}).Ready(t.Context())
		if err != nil || h.Status != status || len(h.Reasons) != 1 {
			t.Errorf("Ready = %+v, %v; want %s with its reason", h, err, status)
		}
		if h, err := d.client(client.Options{}).Health(t.Context()); err != nil || h.Status != "ok" {
			t.Errorf("Health = %+v, %v; want ok: the process is alive", h, err)
		}
	}
}

// TestLearnIsTheConfigurations: who creates a session cannot give it the learn mode.
func TestLearnIsTheConfigurations(t *testing.T) {
	t.Parallel()
	d := start(t, nil)
	for _, body := range []string{`{"network":{"mode":"rules","learn":true}}`, `{"network":{"learn":true}}`, `{"learn":true}`, `{"network.learn":true}`} {
		if resp, text := d.do(t, "POST", "/v1/sessions", body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "learn") {
			t.Errorf("%s: %d %s", body, resp.StatusCode, text)
		}
	}
}

type unready struct {
	Health
	status string
}

func (u unready) Ready(context.Context) client.Health {
	return client.Health{Status: u.status, Reasons: []string{"why"}}
}

func TestFiles(t *testing.T) {
	// What is too long by little is sent whole before its refusal is read: a client
	// that sees first that it cannot send the rest does not look for an answer.
	const most = 100 << 10
	d := start(t, func(c *Config) { c.MaxFile = most })
	c, ctx := d.client(client.Options{}), t.Context()
	s := d.session(t, client.Options{}, client.SessionCreate{})
	data := bytes.Repeat([]byte{0, 255, '\n'}, most/3)
	call, err := c.PutFile(ctx, s.ID, "a b/ü", 0o755, bytes.NewReader(data))
	if err != nil || call.Title != "755" {
		t.Fatalf("PutFile = %+v, %v; want mode 755", call, err)
	}
	r, size, err := c.GetFile(ctx, s.ID, "a b/ü")
	if err != nil || size != int64(len(data)) {
		t.Fatalf("GetFile: size %d, %v; want %d", size, err, len(data))
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the file came back as %d bytes, %v", len(got), err)
	}
	if _, _, err := c.GetFile(ctx, s.ID, "none"); asError(t, err).Code != client.CodeInvalidPath {
		t.Errorf("a missing file: %v, want invalid_path", err)
	}
	if _, err := c.PutFile(ctx, s.ID, "empty", 0, strings.NewReader("")); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	for _, mode := range []string{"1777", "4755", "rwx", "-1", "0o644"} {
		if resp, _ := d.do(t, "PUT", "/v1/sessions/"+s.ID+"/files?path=x&mode="+mode, "x"); resp.StatusCode != 400 {
			t.Errorf("mode %s: %d, want 400", mode, resp.StatusCode)
		}
	}
	resp, body := d.do(t, "PUT", "/v1/sessions/"+s.ID+"/files?path=big", strings.Repeat("x", most+1))
	if resp.StatusCode != 413 {
		t.Errorf("a file above the limit: %d %s, want 413", resp.StatusCode, body)
	}
	if _, err := c.PutFile(ctx, s.ID, "big", 0, io.LimitReader(zeros{}, most+1)); asError(t, err).Status != 413 {
		t.Errorf("a chunked file above the limit: %v, want 413", err)
	}
}

func asError(t *testing.T, err error) *client.Error {
	t.Helper()
	e, ok := err.(*client.Error) //nolint:errorlint // the client returns it unwrapped, which others rely on
	if !ok {
		t.Fatalf("error %v (%T), want a *client.Error", err, err)
	}
	return e
}
