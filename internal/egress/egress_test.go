package egress_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/testrig"
)

// A program connects to a name; the name arrives, is judged, and is dialled.
func TestTransparent(t *testing.T) {
	far := listen(t, "127.0.0.1:0", echo)
	g := &gate{connect: only("echo.example.com")}
	r := newRig(t, g, egress.Config{Ports: []uint16{portOf(far)}, Calls: func() []string { return []string{"call_1", "call_2"} }})
	r.dns.set("echo.example.com", "127.0.0.1")

	c := r.mustDial(at(r.lookUp("ECHO.example.com"), portOf(far)))
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hello" {
		t.Fatalf("came back %q, %v", buf, err)
	}
	_ = c.Close()
	rec := g.wait(t, func(r egress.Record) bool { return r.Host == "echo.example.com" })
	if !rec.Allow || rec.Up != 5 || rec.Down != 5 || rec.Port != portOf(far) || rec.Exact || len(rec.Calls) != 2 || rec.Address.String() != far.Addr().String() {
		t.Errorf("record %+v", rec)
	}

	// Another name is denied: closed, nothing looked up, nothing dialled.
	before := far.conns.Load()
	if got := r.exchange(at(r.lookUp("other.example.com"), portOf(far)), "hello"); got != "" {
		t.Errorf("a denied connection answered %q", got)
	}
	g.wait(t, func(r egress.Record) bool { return r.Host == "other.example.com" && !r.Allow })
	if far.conns.Load() != before {
		t.Error("a denied connection was dialled")
	}
	for _, q := range r.dns.questions() {
		if strings.HasPrefix(q, "other") {
			t.Errorf("a denied name was looked up: %s", q)
		}
	}
	// What no rule names is refused by the kernel, and so is the session's own loopback.
	if c, err := r.dial("93.184.216.34:81"); err == nil {
		t.Errorf("port 81 is open: %v", c.RemoteAddr())
	}
	if got := r.exchange("127.0.0.1:80", "GET / HTTP/1.1\r\n\r\n"); got != "" {
		t.Errorf("the loopback's port 80 answered %q", got)
	}
}

func TestResolver(t *testing.T) {
	r := newRig(t, &gate{}, egress.Config{Limits: egress.Limits{Names: 2}})
	a, b := r.lookUp("a.example.com"), r.lookUp("b.example.com")
	if a == b || r.lookUp("A.Example.Com") != a || !strings.HasPrefix(a, "198.18.") {
		t.Errorf("addresses %s and %s, again %s", a, b, r.lookUp("A.Example.Com"))
	}
	for typ, want := range map[dnsmessage.Type]dnsmessage.RCode{
		dnsmessage.TypeAAAA: dnsmessage.RCodeSuccess, dnsmessage.TypeHTTPS: dnsmessage.RCodeSuccess, dnsmessage.TypeSVCB: dnsmessage.RCodeSuccess,
		dnsmessage.TypePTR: dnsmessage.RCodeNameError,
	} {
		if m := r.query("a.example.com", typ); len(m.Answers) != 0 || m.RCode != want {
			t.Errorf("%v: %d answers, code %v", typ, len(m.Answers), m.RCode)
		}
	}
	if m := r.query("c.example.com", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("a name over the bound: %v", m.RCode)
	}
}

// Each request on port 80 is judged on its own.
func TestHTTP(t *testing.T) {
	far := web(t, "127.44.1.1:80", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.Host+" "+r.RequestURI)
	})
	g := &gate{connect: only("web.example.com"), http: func(r egress.Request) egress.Verdict {
		if strings.Contains(r.URL, "/secret") {
			return denied
		}
		return allow
	}}
	r := newRig(t, g, egress.Config{})
	r.dns.set("web.example.com", "127.44.1.1")
	addr := r.lookUp("web.example.com") + ":80"
	c := r.mustDial(addr)
	br := bufio.NewReader(c)
	for path, want := range map[string]string{"/a?b=%2f": "/a?b=%2f", "/x//y": "/x/y", "/%41": "/A", "/./b/%2e/c": "/b/c"} {
		if res, body := respond(t, c, br, "GET "+path+" HTTP/1.1\r\nHost: web.example.com\r\n\r\n"); res.StatusCode != 200 || body != "GET web.example.com "+want {
			t.Errorf("%s: %d %q", path, res.StatusCode, body)
		}
	}
	res, body := respond(t, c, br, "GET /secret HTTP/1.1\r\nHost: web.example.com\r\n\r\n")
	if res.StatusCode != 403 || res.Header.Get("Toold-Rule") != denied.Rule || strings.Count(body, "\n") != 1 ||
		!strings.Contains(body, "GET http://web.example.com/secret was denied by "+denied.Rule) {
		t.Errorf("denied: %d %v %q", res.StatusCode, res.Header, body)
	}
	g.wait(t, func(r egress.Record) bool { return r.URL == "http://web.example.com/secret" && !r.Allow })
	rec := g.wait(t, func(r egress.Record) bool { return r.URL == "http://web.example.com/A" })
	if rec.Address.String() != far.Addr().String() || rec.Down == 0 || rec.Up == 0 {
		t.Errorf("record %+v", rec)
	}
	// A denied name is told so in HTTP.
	c = r.mustDial(r.lookUp("other.example.com") + ":80")
	if got := exchange(c, "GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n"); !strings.Contains(got, "403 Forbidden") || !strings.Contains(got, denied.Rule) {
		t.Errorf("denied name: %q", got)
	}
}

// A server may answer while it is still sent the request, as some do to what they refuse or
// transform: both go on to their ends, and the connection serves the next request.
func TestHTTPAnswersEarly(t *testing.T) {
	over := make(chan struct{}, 1) // the far side of /no is given up
	web(t, "127.44.1.3:80", func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		testrig.Must(t, rc.EnableFullDuplex())
		if r.URL.Path == "/no" {
			w.Header().Set("Content-Length", "0") // so that this is the whole answer
			w.WriteHeader(http.StatusForbidden)
		}
		testrig.Must(t, rc.Flush())
		body, err := io.ReadAll(r.Body)
		if r.URL.Path == "/no" {
			over <- struct{}{}
			return
		}
		_, _ = fmt.Fprintf(w, "%s, %v", body, err)
	})
	r := newRig(t, &gate{connect: only("web.example.com")}, egress.Config{})
	r.dns.set("web.example.com", "127.44.1.3")
	c := r.mustDial(r.lookUp("web.example.com") + ":80")
	br := bufio.NewReader(c)
	for i, path := range []string{"/", "/no", "/", "/no", "/no"} {
		_, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 10\r\n\r\nfirst")
		testrig.Must(t, err)
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("request %d, %s: %v", i, path, err)
		}
		want := "200 first then, <nil>"
		if path == "/no" {
			want = "403 "
			<-over
		}
		_, err = io.WriteString(c, " then")
		testrig.Must(t, err)
		body, err := io.ReadAll(res.Body)
		if got := fmt.Sprint(res.StatusCode, " ", string(body)); got != want || err != nil {
			t.Errorf("request %d, %s: %q, %v", i, path, got, err)
		}
	}
}

// The proxy takes absolute requests, and tunnels.
func TestProxy(t *testing.T) {
	web(t, "127.44.1.2:80", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.Host+" "+r.RequestURI)
	})
	far := listen(t, "127.0.0.1:0", echo)
	g := &gate{connect: only("web.example.com")}
	r := newRig(t, g, egress.Config{})
	r.dns.set("web.example.com", "127.44.1.2")

	c := r.mustDial("127.0.0.1:3128")
	br := bufio.NewReader(c)
	if res, body := respond(t, c, br, "GET http://WEB.example.com./x HTTP/1.1\r\nHost: liar.example.com\r\n\r\n"); res.StatusCode != 200 || body != "GET web.example.com /x" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if res, body := respond(t, c, br, "GET http://other.example.com/ HTTP/1.1\r\nHost: web.example.com\r\n\r\n"); res.StatusCode != 403 || !strings.Contains(body, "other.example.com") {
		t.Errorf("%d %q", res.StatusCode, body)
	}

	// Each host is a connection, which is told of once with its own bytes.
	_ = c.Close()
	first := g.wait(t, func(r egress.Record) bool { return r.Host == "web.example.com" && r.Method == "" })
	request := g.wait(t, func(r egress.Record) bool { return r.Host == "web.example.com" && r.Method != "" })
	if !first.Allow || first.Up == 0 || first.Up != request.Up || first.Down != request.Down || first.Address.Port() != 80 {
		t.Errorf("the connection %+v, its request %+v", first, request)
	}
	if rec := g.wait(t, func(r egress.Record) bool { return r.Host == "other.example.com" && r.Method == "" }); rec.Allow || rec.Up != 0 || rec.Address.IsValid() {
		t.Errorf("the denied connection %+v", rec)
	}
	if n := len(g.all()); n != 4 {
		t.Errorf("%d records of two requests to two hosts: %+v", n, g.all())
	}

	r.dns.set("web.example.com", "127.0.0.1")
	c = r.mustDial("127.0.0.1:3128")
	br = bufio.NewReader(c)
	target := at("web.example.com", portOf(far))
	if _, err := io.WriteString(c, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\nearly"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v, %v", res, err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(br, buf); err != nil || string(buf) != "early" {
		t.Errorf("%q, %v", buf, err)
	}
	c = r.mustDial("127.0.0.1:3128")
	if got := exchange(c, "CONNECT other.example.com:22 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 4") {
		t.Errorf("%q", got)
	}
}

func TestSOCKS(t *testing.T) {
	far := listen(t, "127.0.0.1:0", echo)
	g := &gate{connect: only("echo.example.com")}
	r := newRig(t, g, egress.Config{})
	r.dns.set("echo.example.com", "127.0.0.1")
	ask := func(host string) (io.ReadWriter, byte) {
		c := r.mustDial("127.0.0.1:1080")
		p := portOf(far)
		_, _ = io.WriteString(c, "\x05\x01\x00\x05\x01\x00\x03"+string(rune(len(host)))+host+string([]byte{byte(p >> 8), byte(p)}))
		got := make([]byte, 12)
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		return c, got[3]
	}
	c, code := ask("Echo.Example.Com")
	if code != 0 {
		t.Fatalf("reply %d", code)
	}
	_, _ = io.WriteString(c, "hello")
	buf := make([]byte, 5)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hello" {
		t.Errorf("%q, %v", buf, err)
	}
	if _, code := ask("other.example.com"); code != 2 {
		t.Errorf("a denied host has reply %d", code)
	}
}

// A program may end as soon as it sees that it was denied, and its call with it: the gate has
// been told by then.
func TestDenialIsToldFirst(t *testing.T) {
	g := &gate{connect: only("down.example.com")}
	r := newRig(t, g, egress.Config{})
	r.dns.set("down.example.com", "127.44.1.3") // nobody listens there
	denied := r.lookUp("other.example.com") + ":443"
	down := r.lookUp("down.example.com") + ":443"
	for name, end := range map[string]func(){
		"transparent": func() { r.exchange(denied, "hello") },
		"unreachable": func() { r.exchange(down, "hello") },
		"CONNECT": func() {
			firstByte(t, r.mustDial("127.0.0.1:3128"), "CONNECT other.example.com:22 HTTP/1.1\r\nHost: other.example.com:22\r\n\r\n")
		},
		"SOCKS": func() {
			c := r.mustDial("127.0.0.1:1080")
			_, _ = io.WriteString(c, "\x05\x01\x00\x05\x01\x00\x01\x0a\x01\x02\x03\x00\x16")
			_, _ = io.ReadFull(c, make([]byte, 3)) // the method, and the answer's first byte
		},
	} {
		for range 20 {
			before := len(g.all())
			end()
			if len(g.all()) == before {
				t.Errorf("%s: the program knows before the gate", name)
				break
			}
		}
	}
}

// firstByte sends text and waits for the beginning of an answer.
func firstByte(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// Where rules name more ports than are listened at, the first ones are, and 80 and 443 first.
func TestTooManyPorts(t *testing.T) {
	r := newRig(t, &gate{connect: func(egress.Request) egress.Verdict { return denied }}, egress.Config{})
	ports := []uint16{20000, 53, egress.ProxyPort, 20000}
	for p := uint16(1); len(ports) < 100; p++ {
		ports = append(ports, p)
	}
	err := r.net.SetPorts(ports, []uint16{8443})
	if err == nil || !strings.Contains(err.Error(), "64 are listened at: name fewer") {
		t.Errorf("the error is %v", err)
	}
	for addr, want := range map[string]bool{"93.184.216.34:80": true, "93.184.216.34:443": true, "93.184.216.34:8443": true, "93.184.216.34:20000": true, "93.184.216.34:1": true, "93.184.216.34:95": false} {
		_, err := r.dial(addr)
		if refused := errors.Is(err, unix.ECONNREFUSED); refused == want {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
