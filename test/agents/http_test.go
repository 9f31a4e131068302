package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// http connects to a session's route. older speaks a protocol with a handshake.
func (d *daemon) http(session, token string, older bool) *agent {
	d.t.Helper()
	endpoint, h := client.New(client.Options{Socket: d.socket, Token: token}).MCP(session)
	if older {
		h.Transport = olderProtocol{h.Transport}
	}
	return connect(d.t, &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: h, DisableStandaloneSSE: true, MaxRetries: -1})
}

// olderProtocol knows nothing of server/discover, so that the SDK's client falls back.
type olderProtocol struct{ http.RoundTripper }

func (o olderProtocol) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil { // the end of a session, as it was given an id
		return o.RoundTripper.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(body), "server/discover") {
		return &http.Response{StatusCode: 404, Status: "404", Header: http.Header{}, Body: http.NoBody, Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return o.RoundTripper.RoundTrip(r)
}

// TestHTTP: the daemon serves a session's tools by itself, in both protocols, to users and
// to holders of the session's token.
func TestHTTP(t *testing.T) {
	d := startDaemon(t)
	dir := worktree(t, map[string]string{"a.txt": "one\n"})
	s, err := d.client.CreateSession(t.Context(), client.SessionCreate{
		Name: "mine", Worktree: client.Worktree{Source: dir}, Token: true,
		Permission: []client.RuleOf{{Permission: "bash", Pattern: "touch *", Action: "ask"}},
	})
	testrig.Must(t, err)
	if status, answer := d.post("mine", s.Token, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); status != 200 {
		t.Errorf("%d %s", status, answer)
	}
	for _, older := range []bool{false, true} {
		for _, token := range []string{"", s.Token} {
			t.Run(fmt.Sprintf("older=%v token=%v", older, token != ""), func(t *testing.T) {
				a := d.http("mine", token, older)
				list, err := a.ListTools(t.Context(), nil)
				testrig.Must(t, err)
				if len(list.Tools) < 8 {
					t.Errorf("%d tools", len(list.Tools))
				}
				r, out := a.must("bash", in{"command": "cat a.txt"})
				if out != "one\n" || field(t, r, "status") != "completed" {
					t.Errorf("got %v", r)
				}
				_, out = a.must("nosuch", in{})
				testrig.Wants(t, out, "the tools are")
				if got := a.resource("toold://worktree/a.txt"); got != "one\n" {
					t.Errorf("the file: %q", got)
				}
				d.cancelled(a)
				if token != "" {
					d.asked(a, func() bool { return a.heard.with("to answer: toolctl --socket "+d.socket+" approvals watch") != "" })
				}
			})
		}
	}
}

// cancelled cancels a call that runs.
func (d *daemon) cancelled(a *agent) {
	t := d.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	before := a.heard.with("begun")
	go func() {
		_, err := a.call(ctx, "bash", in{"command": "echo begun; sleep 1000"})
		done <- err
	}()
	testrig.Eventually(t, "the command has begun", func() bool { return before == "" && a.heard.with("begun") != "" })
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled request was answered")
	}
	testrig.Eventually(t, "the call was aborted", func() bool { return len(d.running()) == 0 })
}

// running are the calls that have not ended.
func (d *daemon) running() (calls []client.Call) {
	d.t.Helper()
	for _, s := range d.sessions() {
		for _, status := range []client.CallStatus{client.CallPending, client.CallRunning} {
			list, err := d.client.ListCalls(d.t.Context(), s.ID, client.CallQuery{Status: status})
			testrig.Must(d.t, err)
			calls = append(calls, list.Items...)
		}
	}
	return calls
}

// TestHTTPStops: a daemon that stops answers with what there is, and the call goes on.
func TestHTTPStops(t *testing.T) {
	d := startDaemon(t)
	testrig.Must(t, d.Terminate())
	d.argv = slices.DeleteFunc(d.argv, func(arg string) bool { return arg == "--ephemeral" }) // sessions stay
	d.start()
	s, err := d.client.CreateSession(t.Context(), client.SessionCreate{})
	testrig.Must(t, err)
	t.Cleanup(func() {
		_, err := d.client.EndSession(context.Background(), s.ID, client.EndOptions{Force: true})
		if err = errors.Join(err, d.Terminate()); err != nil {
			t.Error(err)
		}
	})
	for _, older := range []bool{false, true} {
		a := d.http(s.ID, "", older)
		done := make(chan string, 1)
		go func() {
			r, err := a.call(t.Context(), "bash", in{"command": "rm -f go; echo begun; until [ -e go ]; do sleep 0.1; done"})
			if err != nil {
				done <- "" // its connection was cut
				return
			}
			done <- text(r)
		}()
		testrig.Eventually(t, "the command has begun", func() bool { return a.heard.with("begun") != "" })
		testrig.Must(t, d.Cmd.Process.Signal(os.Interrupt))
		if out := <-done; out != "" {
			testrig.Wants(t, out, "has not ended")
		}
		<-d.Done
		d.start()
		if n := len(d.running()); n != 1 {
			t.Errorf("older=%v: %d calls run, want the one", older, n)
		}
		b := d.http(s.ID, "", older)
		b.must("bash", in{"command": "touch go"})
		testrig.Eventually(t, "the call has ended", func() bool { return len(d.running()) == 0 })
	}
}

// TestHTTPLong: an answer waits as long as the configuration says.
func TestHTTPLong(t *testing.T) {
	t.Setenv("TOOLD_MCP_SERVER_WAIT", "1s")
	d := startDaemon(t)
	s, err := d.client.CreateSession(t.Context(), client.SessionCreate{})
	testrig.Must(t, err)
	a := d.http(s.ID, "", false)
	r, out := a.must("bash", in{"command": "echo begun; until [ -e go ]; do sleep 0.1; done; echo over"})
	testrig.Wants(t, out, "begun", "has not ended")
	a.must("bash", in{"command": "touch go"})
	testrig.Eventually(t, "the call has ended", func() bool {
		_, out = a.must("wait", in{"call_id": field(t, r, "call_id")})
		return out == "begun\nover\n"
	})
	b := toolctl(t, d.socket, "--session", s.ID)
	r, _ = b.must("bash", in{"command": "sleep 3"})
	if field(t, r, "status") == "completed" {
		t.Error("toolctl does not take the daemon's time")
	}
}

// TestHTTPHostile: strangers get nothing, and clients that do not keep to the protocol
// harm nobody.
func TestHTTPHostile(t *testing.T) {
	d := startDaemon(t)
	mine, err := d.client.CreateSession(t.Context(), client.SessionCreate{Token: true})
	testrig.Must(t, err)
	other, err := d.client.CreateSession(t.Context(), client.SessionCreate{})
	testrig.Must(t, err)
	for _, p := range []struct {
		session, token, body string
		header               []string
		status               int
	}{
		{other.ID, mine.Token, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, 404},
		{"ses_9", "", `{}`, nil, 404},
		{mine.ID, "toold_x", `{}`, nil, 403},
		{mine.ID, "", `{}`, []string{"Origin", "http://localhost"}, 403},
		{mine.ID, "", `{}`, []string{"Content-Type", "text/plain"}, 415},
		{mine.ID, "", `{}`, []string{"Accept", "text/html"}, 400},
		{mine.ID, "", `{`, nil, 400},
		{mine.ID, "", ``, nil, 400},
		{mine.ID, "", strings.Repeat("[", 100_000), nil, 400},
		{mine.ID, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{"Mcp-Protocol-Version", "1999-01-01"}, 400},
		{mine.ID, "", strings.Repeat(" ", 17<<20), nil, 413},
	} {
		status, answer := d.post(p.session, p.token, p.body, p.header...)
		if status != p.status || !strings.Contains(answer, `"code"`) {
			t.Errorf("%.40s %v: %d %.200s, want %d", p.body, p.header, status, answer, p.status)
		}
	}
	// None of these is answered by anything but the protocol, and none takes the daemon down.
	for _, body := range []string{
		`[]`, `null`, `1`, `"x"`, `{"jsonrpc":"1.0"}`, `{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"any"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"true","command":"false"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"toold://calls/%00/output"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]`,
	} {
		if status, answer := d.post(mine.ID, "", body); status >= 500 || status == 0 {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	d.stalled(mine.ID)
	a := d.http(mine.ID, mine.Token, false)
	_, out := a.must("bash", in{"command": "echo fine"})
	testrig.Wants(t, out, "fine")
}

// post sends one message as a client of its own would.
func (d *daemon) post(session, token, body string, header ...string) (status int, answer string) {
	d.t.Helper()
	endpoint, h := client.New(client.Options{Socket: d.socket, Token: token}).MCP(session)
	ctx, cancel := context.WithTimeout(d.t.Context(), bound)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", endpoint, strings.NewReader(body))
	testrig.Must(d.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := h.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// stalled has clients that begin and do not go on, more than one user may have.
func (d *daemon) stalled(session string) {
	d.t.Helper()
	var conns []net.Conn
	for range 40 {
		c, err := net.Dial("unix", d.socket)
		testrig.Must(d.t, err)
		conns = append(conns, c)
		_, err = fmt.Fprintf(c, "POST /v1/sessions/%s/mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 100000\r\n\r\n{", session)
		testrig.Must(d.t, err)
	}
	d.t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

// TestHTTPAtOnce: many clients that use the same ids of requests do not disturb each other.
func TestHTTPAtOnce(t *testing.T) {
	d := startDaemon(t)
	s, err := d.client.CreateSession(t.Context(), client.SessionCreate{})
	testrig.Must(t, err)
	var all sync.WaitGroup
	for i := range 16 {
		a := d.http(s.ID, "", i%2 == 0)
		all.Go(func() {
			for n := range 3 {
				want := fmt.Sprintf("%d of %d\n", n, i)
				r, err := a.call(t.Context(), "bash", in{"command": "echo " + strings.TrimSpace(want)})
				if err != nil || text(r) != want {
					t.Errorf("%v, %v; want %q", r, err, want)
				}
			}
		})
	}
	all.Wait()
}

// TestInspectorHTTP: the Inspector is content with the daemon's route too.
func TestInspectorHTTP(t *testing.T) {
	d := startDaemon(t)
	s, err := d.client.CreateSession(t.Context(), client.SessionCreate{Worktree: client.Worktree{Source: worktree(t, map[string]string{"a.txt": "one\n"})}})
	testrig.Must(t, err)
	i := newInspector(t, d.tcp()+"/v1/sessions/"+s.ID+"/mcp", "--transport", "http")
	for _, era := range eras {
		i.inspect(era)
	}
}
