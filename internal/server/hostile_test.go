package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/testrig"
)

// dial opens a connection to the daemon itself.
func (d *daemon) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	// Far above what any answer here takes; a test that reaches it hangs.
	if err := c.SetDeadline(time.Now().Add(90 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// raw sends bytes as they are and reads to the end of the connection.
func (d *daemon) raw(t *testing.T, text string) string {
	t.Helper()
	c := d.dial(t)
	go func() { _, _ = io.WriteString(c, text) }() // the daemon may close before it has read all
	b, _ := io.ReadAll(c)
	return string(b)
}

// healthy asks for health on a connection of its own.
func (d *daemon) healthy(t *testing.T) {
	t.Helper()
	resp, body := send(t, d.socket, "GET", "/v1/health", "")
	if resp.StatusCode != 200 || !strings.Contains(body, `"ok"`) {
		t.Errorf("health: %d %s", resp.StatusCode, body)
	}
}

func status(answer string) string {
	line, _, _ := strings.Cut(answer, "\r\n")
	_, line, _ = strings.Cut(line, " ")
	return line
}

// TestMalformedHTTP: requests that two parsers could read in two ways are refused
// and the connection ends; nothing behind them is taken for a request.
func TestMalformedHTTP(t *testing.T) {
	d := start(t, nil)
	const host = "Host: x\r\n"
	const next = "GET /v1/sessions HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, tt := range []struct{ name, text, want string }{
		{"chunked and a length", "POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n" + next, "4"},
		{"two lengths", "POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + next, "400"},
		{"length list", "POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: 5, 6\r\n\r\nhello" + next, "400"},
		{"negative length", "POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: -5\r\n\r\n" + next, "400"},
		{"length with sign", "POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: +5\r\n\r\nhello" + next, "400"},
		{"unknown coding", "POST /v1/gc HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + next, "501"},
		{"space before colon", "GET /v1/health HTTP/1.1\r\nHost : x\r\n\r\n" + next, "400"},
		{"no host", "GET /v1/health HTTP/1.1\r\n\r\n" + next, "400"},
		{"two hosts", "GET /v1/health HTTP/1.1\r\n" + host + host + "\r\n" + next, "400"},
		{"NUL in header", "GET /v1/health HTTP/1.1\r\n" + host + "A: \x00\r\n\r\n" + next, "400"},
		{"no version", "GET /v1/health\r\n\r\n" + next, "400"},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + next, "400"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"},
		{"asterisk", "OPTIONS * HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", "400"},
		{"absolute form", "GET http://169.254.169.254 HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", "400"},
		{"connect", "CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", "400"},
		{"bad chunk", "POST /v1/gc HTTP/1.1\r\n" + host + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n" + next, "400"},
		{"large header", "GET /v1/health HTTP/1.1\r\n" + host + "A: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", "431"},
		{"many headers", "GET /v1/health HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\n", 1<<16) + "\r\n", "431"},
		{"long line", "GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n" + host + "\r\n", "431"},
		{"gzip body", "POST /v1/gc HTTP/1.1\r\n" + host + "Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", "415"},
		{"upgrade", "GET /v1/health HTTP/1.1\r\n" + host + "Connection: upgrade, close\r\nUpgrade: h2c\r\n\r\n", "200"},
	} {
		answer := d.raw(t, tt.text)
		if !strings.HasPrefix(status(answer), tt.want) {
			t.Errorf("%s: answer %q, want %s", tt.name, status(answer), tt.want)
		}
		if n := strings.Count(answer, "HTTP/1.1 "); n > 1 {
			t.Errorf("%s: %d answers, want one: %q", tt.name, n, answer)
		}
	}
	d.healthy(t)
}

// TestObsFold: a folded header is one header, for us as for everybody.
func TestObsFold(t *testing.T) {
	d := start(t, nil)
	answer := d.raw(t, "GET /v1/sessions HTTP/1.1\r\nHost: x\r\nA: b\r\n Toold-Tenant: a\r\nConnection: close\r\n\r\n")
	if s := status(answer); s != "400 Bad Request" && d.api.seen().Tenant != auth.DefaultTenant {
		t.Errorf("answer %q, tenant %q: the folded line was taken for a header", s, d.api.seen().Tenant)
	}
}

// TestPipelining: requests sent at once are answered one by one, in order.
func TestPipelining(t *testing.T) {
	d := start(t, nil)
	var text strings.Builder
	for _, path := range []string{"/v1/version", "/v1/nothing", "/v1/health"} {
		fmt.Fprintf(&text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	}
	c := d.dial(t)
	if _, err := io.WriteString(c, text.String()); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	for _, want := range []int{200, 404, 200} {
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("answer %v, %v; want %d", resp, err, want)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// TestSlowClients: a client that takes its time loses its connection, however it
// does it. Only the time that it wastes is short: the others are for what it does
// before, which may be slow by chance.
func TestSlowClients(t *testing.T) {
	const short, long = 200 * time.Millisecond, 5 * time.Minute
	header := func(c *Config) { c.HeaderTimeout, c.BodyTimeout, c.IdleTimeout = short, long, long }
	body := func(c *Config) { c.HeaderTimeout, c.BodyTimeout, c.IdleTimeout = long, short, long }
	idle := func(c *Config) { c.HeaderTimeout, c.BodyTimeout, c.IdleTimeout = long, long, short }
	const post = "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for _, tt := range []struct {
		name              string
		times             func(*Config)
		first, drip, want string
	}{
		{"no request", header, "", "", ""},
		{"slow header", header, "GET /v1/health HTTP/1.1\r\nHost: x\r\n", "A: b\r\n", ""}, // closed without a word
		{"slow body", body, post + "Content-Length: 1000\r\n\r\n{", " ", "408"},
		{"slow chunks", body, post + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", "408"},
		{"body that nobody reads", body, "POST /v1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", " ", "404"},
		{"body where there is none", body, "GET /v1/health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", "", "408"},
		{"idle after a request", idle, "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", "", "200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := start(t, tt.times)
			c := d.dial(t)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.WriteString(c, tt.first)
				for tt.drip != "" {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
						if _, err := io.WriteString(c, tt.drip); err != nil {
							return
						}
					}
				}
			}()
			b, err := io.ReadAll(c)
			close(stop)
			<-done
			if nerr, ok := err.(net.Error); ok && nerr.Timeout() { //nolint:errorlint // as it comes from the connection
				t.Fatalf("the connection is still open; got %q", b)
			}
			if !strings.HasPrefix(status(string(b)), tt.want) {
				t.Errorf("answer %q, want %s", b, tt.want)
			}
			if d.api.created != 0 {
				t.Errorf("%d sessions were created", d.api.created)
			}
		})
	}
}

// TestLongCallOutlivesBodyTimeout: the deadline of the body does not end a call
// that waits longer.
func TestLongCallOutlivesBodyTimeout(t *testing.T) {
	d := start(t, func(c *Config) { c.BodyTimeout = 100 * time.Millisecond })
	s := d.made(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if !testrig.Soon(func() bool { return d.waiting() == 1 }) {
			t.Error("the call does not wait")
		}
		time.Sleep(400 * time.Millisecond) // for the deadline to pass
		close(d.api.release)
	})
	defer wg.Wait()
	// The proxy would send the body after the header, and may be slow to.
	direct := client.New(client.Options{Socket: d.socket})
	defer direct.Close()
	c, err := direct.CreateCall(t.Context(), s.ID, client.CallCreate{Tool: "wait", Input: json.RawMessage(`{}`)}, client.CallOptions{})
	if err != nil || c.Status != client.CallCompleted {
		t.Errorf("call = %+v, %v; want completed", c, err)
	}
}

// TestLongUploadOutlivesBodyTimeout: neither does it end an upload that the
// sandbox takes longer to write than the client to send, an empty one included.
func TestLongUploadOutlivesBodyTimeout(t *testing.T) {
	d := start(t, func(c *Config) { c.BodyTimeout = 100 * time.Millisecond; c.API.Files = slowUpload{c.API.Files} })
	s := d.made(t)
	for _, text := range []string{"", "text"} {
		if resp, body := send(t, d.socket, "PUT", "/v1/sessions/"+s.ID+"/files?path=f", text); resp.StatusCode != 200 {
			t.Errorf("%q: %d %s", text, resp.StatusCode, body)
		}
	}
}

// slowUpload takes its time after it has read a body.
type slowUpload struct{ Files }

func (s slowUpload) Upload(ctx context.Context, p auth.Principal, id, path string, mode uint32, body io.Reader) (*client.Call, error) {
	c, err := s.Files.Upload(ctx, p, id, path, mode, body)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(400 * time.Millisecond):
		return c, err
	}
}

// TestEndlessBody: a body without end is refused when it reaches the limit, and
// until then costs no more memory than the limit.
func TestEndlessBody(t *testing.T) {
	d := start(t, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, length := range []string{"Transfer-Encoding: chunked", "Content-Length: 10737418240"} {
		c := d.dial(t)
		sent := make(chan int64, 1)
		go func() {
			fmt.Fprintf(c, "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n", length)
			chunk := []byte("10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n")
			var n int64
			for {
				w, err := c.Write(chunk)
				n += int64(w)
				if err != nil {
					sent <- n
					return
				}
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Fatalf("%s: answer %v, %v; want 413", length, resp, err)
		}
		_ = resp.Body.Close()
		if n := <-sent; n > 40<<20 {
			t.Errorf("%s: %d bytes were taken before it was refused", length, n)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if d.api.created != 0 {
		t.Error("a session was created")
	}
	d.healthy(t)
}

// TestBodies: what is no JSON body of the route is refused, and nothing happens.
func TestBodies(t *testing.T) {
	d := start(t, nil)
	js := "application/json"
	for _, tt := range []struct {
		name, kind, body string
		status           int
	}{
		{"form", "application/x-www-form-urlencoded", "a=b", 415},
		{"no type", "", "{}", 415},
		{"text", "text/plain", "{}", 415},
		{"latin1", js + "; charset=latin1", "{}", 415},
		{"broken type", "application/json; charset", "{}", 415},
		{"suffix", "application/problem+json", "{}", 415},
		{"duplicate key", js, `{"name":"a","name":"b"}`, 400},
		{"other case", js, `{"Name":"a"}`, 400},
		{"unknown key", js, `{"nmae":"a"}`, 400},
		{"rule with a key too many", js, `{"permission":[{"permission":"bash","pattern":"*","action":"deny","tenant":"a"}]}`, 400},
		{"trailing data", js, `{} {}`, 400},
		{"depth", js, strings.Repeat("[", 100000) + strings.Repeat("]", 100000), 400},
		{"open depth", js, strings.Repeat(`{"a":`, 100000), 400},
		{"empty", js, " ", 400},
	} {
		resp, body := d.do(t, "POST", "/v1/sessions", tt.body, "Content-Type", tt.kind)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, resp.StatusCode, body, tt.status)
		} else if p := problem(t, body); p.Code != client.CodeInvalidRequest || p.Hint == "" {
			t.Errorf("%s: %+v, want invalid_request with a hint", tt.name, p)
		}
	}
	if d.api.created != 0 {
		t.Errorf("%d sessions were created", d.api.created)
	}
	if resp, body := d.do(t, "POST", "/v1/sessions", "{}", "Content-Type", "Application/JSON; charset=UTF-8"); resp.StatusCode != 201 {
		t.Errorf("a correct type: %d %s", resp.StatusCode, body)
	}
	for _, m := range []string{"GET", "DELETE"} {
		if resp, body := d.do(t, m, "/v1/sessions/ses_1", "{}"); resp.StatusCode != 400 || !strings.Contains(body, "no body") {
			t.Errorf("%s with a body: %d %s, want 400", m, resp.StatusCode, body)
		}
	}
}

// TestInputOfAnyKind: what is wrong inside a call's input is for the call to say, so
// that it is no reason to refuse the request.
func TestInputOfAnyKind(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	for _, in := range []string{`{"a":{"b":1,"b":2}}`, `"{"`, `7`, `null`, strings.Repeat("[", 5000) + strings.Repeat("]", 5000)} {
		resp, body := d.do(t, "POST", "/v1/sessions/"+s.ID+"/calls", `{"tool":"echo","input":`+in+`}`)
		if resp.StatusCode != 200 || !strings.Contains(body, `"input":`+in) {
			t.Errorf("%.40s: %d %.200s", in, resp.StatusCode, body)
		}
	}
}

// TestNames: ids and names that can be none of ours are refused with 400 before
// anything sees them. Those in bodies are the manager's to check.
func TestNames(t *testing.T) {
	d := start(t, nil)
	for _, path := range []string{
		"/v1/sessions/../x", "/v1/sessions/%2e%2e", "/v1/sessions/..%2fx", "/v1/sessions/a%2fb", "/v1/sessions/%00", "/v1/sessions/-x",
		"/v1/sessions/.x", "/v1/sessions/" + strings.Repeat("a", 300), "/v1/sessions/%c3%bc", "/v1/sessions/", "/v1/sessions//", "/v1//sessions",
		"/v1/sessions/%20", "/v1/sessions/ses_1/", "/v1/calls/ses_1", "/v1/calls/x", "/v1/calls/call_", "/v1/calls/call_..", "/v1/calls/%2e%2e/output",
		"/v1/sessions/%252e%252e",
	} {
		resp, answer := send(t, d.socket, "GET", path, "")
		if resp.StatusCode != 400 {
			t.Errorf("GET %s: %d %s, want 400", path, resp.StatusCode, answer)
		}
	}
	if d.api.created != 0 || len(d.api.calls) != 0 {
		t.Errorf("%d sessions and %d calls were created", d.api.created, len(d.api.calls))
	}
}

// TestUnknownAndForeignAlike: a session of another tenant is answered like one
// that does not exist, byte for byte.
func TestUnknownAndForeignAlike(t *testing.T) {
	d := start(t, nil)
	theirs := d.session(t, client.Options{Tenant: "b"}, client.SessionCreate{})
	unknown := "ses_" + strings.Repeat("9", len(theirs.ID)-4)
	for i := range routes {
		rt := &routes[i]
		if !rt.ofSession() {
			continue
		}
		query, body := "", ""
		if rt.bodyType() != nil {
			body = "{}"
		}
		if strings.HasSuffix(rt.pattern, "/files") {
			query = "?path=x"
		}
		if rt.op == "CreateCall" {
			body = `{"tool":"echo","input":{}}`
		}
		ask := func(id string) string {
			resp, text := d.do(t, rt.method, rt.with(id, "")+query, body, "Toold-Tenant", "a")
			return fmt.Sprint(resp.StatusCode, len(resp.Header), strings.ReplaceAll(text, id, "ID"))
		}
		if a, b := ask(theirs.ID), ask(unknown); a != b || !strings.HasPrefix(a, "404") {
			t.Errorf("%s: foreign %q, unknown %q; want the same 404", rt.op, a, b)
		}
	}
}

func TestOrigin(t *testing.T) {
	d := start(t, nil)
	for _, origin := range []string{"null", "http://localhost", "https://evil.example"} {
		if resp, body := d.do(t, "GET", "/v1/health", "", "Origin", origin); resp.StatusCode != 403 {
			t.Errorf("Origin %s: %d %s, want 403", origin, resp.StatusCode, body)
		}
	}
}

// TestConnectionCap: one user's connections beyond the cap are told so and
// closed; places come back when others close.
func TestConnectionCap(t *testing.T) {
	d := start(t, func(c *Config) { c.MaxConns = 5 })
	var conns []net.Conn
	for range 5 {
		c := d.dial(t)
		fmt.Fprint(c, "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("connection %d: %q %v", len(conns), line, err)
		}
		conns = append(conns, c)
	}
	answer := d.raw(t, "")
	if status(answer) != "503 Service Unavailable" {
		t.Fatalf("above the cap: %q, want 503", answer)
	}
	if _, body, _ := strings.Cut(answer, "\r\n\r\n"); problem(t, body).Code != client.CodeOverloaded {
		t.Errorf("above the cap: %q, want overloaded", body)
	}
	_ = conns[0].Close()
	if !testrig.Soon(func() bool {
		return status(d.raw(t, "GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == "200 OK"
	}) {
		t.Error("no place came back")
	}
	for _, c := range conns {
		_ = c.Close()
	}
	if !testrig.Soon(d.conns.unused) {
		t.Error("connections are still counted")
	}
}

// TestStreamCap: streams beyond the cap are refused, and places come back.
func TestStreamCap(t *testing.T) {
	d := start(t, func(c *Config) { c.MaxStreams = 3 })
	open := func() *http.Response {
		c := d.dial(t)
		fmt.Fprint(c, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 {
			_ = c.Close()
		}
		t.Cleanup(func() { _ = c.Close() })
		resp.Body = struct {
			io.Reader
			io.Closer
		}{resp.Body, c}
		return resp
	}
	var streams []*http.Response
	for range 3 {
		streams = append(streams, open())
	}
	if got := open().StatusCode; got != http.StatusTooManyRequests {
		t.Fatalf("above the cap: %d, want 429", got)
	}
	_ = streams[0].Body.Close()
	if !testrig.Soon(func() bool { return open().StatusCode == 200 }) {
		t.Error("no place came back")
	}
	for _, s := range streams {
		_ = s.Body.Close()
	}
	d.healthy(t)
}

// TestSlowReaders: a client that does not read what it asked for is cut off, and
// what it held comes back.
func TestSlowReaders(t *testing.T) {
	// So short a time may pass between any two steps of the daemon's, which then
	// cuts an answer off that is read. So nothing here needs one: who has asked is
	// seen behind the daemon, where the stream's place was taken before.
	d := start(t, func(c *Config) { c.WriteTimeout = 200 * time.Millisecond })
	s := d.made(t)
	d.api.mu.Lock()
	d.api.calls["call_e"] = &client.Call{ID: "call_e", SessionID: s.ID, Tool: "endless"}
	d.api.mu.Unlock()
	for _, path := range []string{"/v1/events", "/v1/calls/call_e/output?follow=1", "/v1/sessions/" + s.ID + "/diff?path=endless"} {
		d.api.note(auth.Principal{}, nil)
		c := d.dial(t)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		if !testrig.Soon(func() bool { d.api.mu.Lock(); defer d.api.mu.Unlock(); return d.api.filter != nil }) {
			t.Fatalf("%s: no stream was opened", path)
		}
		d.api.mu.Lock()
		for range 200 { // far more than a socket holds
			d.api.eventLocked("file.edited", "", "", strings.Repeat("x", 64<<10))
		}
		d.api.mu.Unlock()
		if !testrig.Soon(func() bool { return d.streams.unused() && d.conns.unused() }) {
			t.Errorf("%s: the stream is still open", path)
		}
	}
}

// unused reports whether nobody uses anything.
func (q *quota) unused() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.used) == 0
}

// TestBodyMemory: bodies that are being read are bounded together, per user.
func TestBodyMemory(t *testing.T) {
	d := start(t, func(c *Config) { c.MaxBodies = 1 << 20 })
	held := d.dial(t)
	fmt.Fprint(held, "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n")
	_, _ = held.Write(bytes.Repeat([]byte(" "), 600<<10))
	if !testrig.Soon(func() bool {
		d.bodies.mu.Lock()
		defer d.bodies.mu.Unlock()
		return d.bodies.used[int64(os.Getuid())] >= 512<<10
	}) {
		t.Fatal("the body is not counted")
	}
	// It is refused before it was sent. A client that sees first that it cannot send
	// the rest does not look for an answer.
	answer := d.raw(t, "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 921600\r\n\r\n"+strings.Repeat(" ", 900<<10))
	_, body, _ := strings.Cut(answer, "\r\n\r\n")
	if status(answer) != "503 Service Unavailable" || problem(t, body).Code != client.CodeOverloaded {
		t.Errorf("a second large body: %q, want overloaded", answer)
	}
	if resp, body := d.do(t, "POST", "/v1/sessions", "{}"); resp.StatusCode != 201 {
		t.Errorf("a small body: %d %s", resp.StatusCode, body)
	}
	_ = held.Close()
	if !testrig.Soon(d.bodies.unused) {
		t.Error("bodies are still counted")
	}
}

// TestLargeRequests: large requests of a user count until their calls have ended, one after the
// other where there is no room for more, and small ones pass meanwhile.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	room := budget.New(8 << 20) // of which a request of 1 MiB and more is all that one user may have
	d := start(t, func(c *Config) { c.Requests, c.RequestWait = room, 50*time.Millisecond })
	_, made := d.do(t, "POST", "/v1/sessions", "{}")
	var s client.Session
	if err := json.Unmarshal([]byte(made), &s); err != nil {
		t.Fatal(err)
	}
	call := func(tool string, n int) (int, string) {
		t.Helper()
		resp, body := d.do(t, "POST", "/v1/sessions/"+s.ID+"/calls", `{"tool":"`+tool+`","input":{"x":"`+strings.Repeat("x", n)+`"}}`)
		return resp.StatusCode, body
	}
	for range 3 { // each is over before the next one
		if status, body := call("read", 1<<20); status != 200 {
			t.Fatalf("one large call: %d %.200s", status, body)
		}
	}
	if status, body := call("hold", 1<<20); status != 200 {
		t.Fatalf("a large call that goes on: %d %.200s", status, body)
	}
	if status, _ := call("read", 100); status != 200 {
		t.Errorf("a small call: %d", status)
	}
	c := d.dial(t) // as much as is read before the answer: who sends more may not see it
	fmt.Fprintf(c, "POST /v1/sessions/%s/calls HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n%s", s.ID, strings.Repeat(" ", firstRead))
	answer, _ := io.ReadAll(c)
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	if status(string(answer)) != "429 Too Many Requests" || problem(t, body).Code != client.CodeQuotaExceeded || problem(t, body).Hint == "" {
		t.Errorf("another large call: %q", answer)
	}
	d.cfg.RequestWait = time.Minute // nobody reads it now
	done := make(chan int)
	go func() {
		resp, _ := send(t, d.socket, "POST", "/v1/sessions/"+s.ID+"/calls", `{"tool":"read","input":{"x":"`+strings.Repeat("x", 1<<20)+`"}}`)
		done <- resp.StatusCode
	}()
	testrig.Eventually(t, "a large call waits", func() bool {
		d.requests.mu.Lock()
		defer d.requests.mu.Unlock()
		return d.requests.given != nil
	})
	d.api.mu.Lock()
	for _, release := range d.api.inputs {
		release()
	}
	d.api.mu.Unlock()
	if got := <-done; got != 200 {
		t.Errorf("the one that waited: %d", got)
	}
	if release, err := room.Request(t.Context(), 8<<20); err != nil || !testrig.Soon(d.requests.unused) {
		t.Errorf("something is still counted: %v", err)
	} else {
		release()
	}
}

// brokenAPI panics in every method: the interface in it is nil.
type brokenAPI struct{ wholeAPI }

func (brokenAPI) TokenSession(context.Context, string) (auth.Principal, error) {
	return auth.Principal{Session: "ses_1", Tenant: "a"}, nil
}

// TestPanics: a panic in any handler costs that one request and nothing else,
// and says nothing about its cause.
func TestPanics(t *testing.T) {
	d := start(t, func(c *Config) {
		c.API = apiOf(brokenAPI{})
		c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("metrics") })
		c.Reload = func(context.Context, bool) (*client.Reloaded, error) { panic("reload") }
		c.Backup = func(context.Context, io.Writer) error { panic("backup") }
		c.Settings = func() ([]byte, error) { panic("settings") }
	})
	quiet := map[string]bool{"Version": true, "Health": true, "OpenAPI": true}
	for i := range routes {
		rt := &routes[i]
		if quiet[rt.op] {
			continue // they call nothing
		}
		path, body := rt.with("ses_1", "call_1"), ""
		switch rt.op {
		case "CreateCall":
			body = `{"tool":"x","input":{}}`
		case "PullImage":
			body = `{"ref":"slow:1"}`
		case "PutFile", "GetFile":
			path += "?path=x"
		default:
			if rt.request != nil {
				body = "{}"
			}
		}
		resp, answer := d.do(t, rt.method, path, body)
		if resp.StatusCode != 500 {
			t.Errorf("%s: %d %s, want 500", rt.op, resp.StatusCode, answer)
			continue
		}
		p := problem(t, answer)
		ref := p.Detail[strings.LastIndex(p.Detail, " ")+1:]
		if p.Code != client.CodeInternal || strings.Contains(answer, "nil pointer") || !strings.Contains(d.logs.String(), strconv.Quote(ref)) {
			t.Errorf("%s: %s, want internal with a reference that is in the log", rt.op, answer)
		}
		d.healthy(t)
	}
}

// TestProblemsSpeakToModels: whatever the code, is_error and output say that it
// failed, and what to do next.
func TestProblemsSpeakToModels(t *testing.T) {
	d := start(t, nil)
	for code := range statuses {
		p := d.problemOf(httptest.NewRequest("GET", "/", nil), &client.Error{Code: code, Message: "it is so"})
		said, next, _ := strings.Cut(p.Output, "\n")
		if !p.IsError || said != p.Detail || next == "" {
			t.Errorf("%s: %+v", code, p)
		}
	}
}

// TestLatePanic: a panic in the middle of a stream cuts it; what was sent cannot
// be taken for the whole.
func TestLatePanic(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	c := d.dial(t)
	body := `{"tool":"late panic","input":{}}`
	fmt.Fprintf(c, "POST /v1/sessions/%s/calls HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.ID, len(body), body)
	b, _ := io.ReadAll(c)
	if text := string(b); !strings.Contains(text, "event: pending") || strings.HasSuffix(text, "0\r\n\r\n") || strings.Contains(text, "problem") {
		t.Errorf("got %q, want a stream that is cut off", text)
	}
	d.healthy(t)
}

// TestSecretsStayOut: what clients send is in no log line and in no error, also
// when things break.
func TestSecretsStayOut(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{Token: true, Env: map[string]string{"PASSWORD": "hunter2"}})
	for _, tool := range []string{"panic", "broken", "fail", "echo"} {
		_, body := d.do(t, "POST", "/v1/sessions/"+s.ID+"/calls", `{"tool":"`+tool+`","input":{"x":"hunter2"},"env":{"PASSWORD":"hunter2"}}`,
			"Authorization", "Bearer "+s.Token)
		if tool == "panic" || tool == "broken" {
			if p := problem(t, body); p.Code != client.CodeInternal || strings.Contains(body, "hunter2") || strings.Contains(body, "/run/secret") {
				t.Errorf("%s: %s, want internal without its cause", tool, body)
			}
		}
	}
	logs := d.logs.String()
	for _, secret := range []string{"hunter2", s.Token} {
		if strings.Contains(logs, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	if !strings.Contains(logs, "/run/secret") {
		t.Error("the log does not have the cause of the internal error")
	}
	for line := range strings.Lines(logs) {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line is not one JSON object: %q", line)
		}
	}
}
