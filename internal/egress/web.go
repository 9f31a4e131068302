package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/internal/endpoint"
)

// Bounds of what a client of the proxy, or of a plain HTTP server, sends before its body.
const (
	headerTime  = 10 * time.Second
	headerBytes = 64 << 10
	continues   = time.Second
)

// ruleHeader has, in the answer to a denied request, where the decision comes from.
const ruleHeader = "Toold-Rule"

// web serves the connections on which requests can be seen: the proxy's, and those to port 80.
// Each request is parsed, judged and written anew, so that what is sent is what was judged,
// with one length and one host.
type web struct {
	n      *Network
	server *http.Server
	conns  chan net.Conn
}

// visit is one connection of web.
type visit struct {
	*client
	to        *endpoint.Endpoint // where all requests go; nil on the proxy's port
	from      io.Reader          // the client, behind bytes that it has sent before
	transport *http.Transport
	finished  chan struct{} // closed by Close
	finish    func()
	fars      atomic.Int64             // connections to far sides that are open
	first     atomic.Pointer[net.Conn] // to the far side, open before the first request was seen

	// The connection that the last request needed; its record is the client's.
	last    endpoint.Endpoint
	verdict Verdict
	by      uint64 // the revision of the rules that verdict is by
}

// Keys of contexts: of the visit of a request, and the verdict on the connection that it needs.
type (
	visitKey   struct{}
	verdictKey struct{}
)

func newWeb(n *Network) *web {
	w := &web{n: n, conns: make(chan net.Conn)}
	w.server = &http.Server{
		Handler: w, DisableGeneralOptionsHandler: true, ReadHeaderTimeout: headerTime, MaxHeaderBytes: headerBytes,
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, visitKey{}, c) },
	}
	return w
}

// serve runs until the network ends.
func (w *web) serve() { _ = w.server.Serve((*webListener)(w)) }

// webListener is a web as the listener of its server.
type webListener web

func (l *webListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.n.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *webListener) Close() error   { return nil }
func (l *webListener) Addr() net.Addr { return &net.TCPAddr{} }

// take serves the requests of a connection to one place, with the verdict on it, and returns
// when it is over.
// far is the connection to it, nil where there is none yet.
func (w *web) take(c *client, to endpoint.Endpoint, v Verdict, early []byte, far net.Conn) {
	vi := w.newVisit(c, early)
	vi.to, vi.last, vi.verdict = &to, to, v
	c.mu.Lock()
	vi.by = c.open.by
	c.mu.Unlock()
	if far != nil {
		vi.first.Store(&far)
	}
	w.run(vi)
}

func (w *web) newVisit(c *client, early []byte) *visit {
	vi := &visit{client: c, from: io.MultiReader(bytes.NewReader(early), c.Conn), finished: make(chan struct{})}
	vi.finish = sync.OnceFunc(func() { close(vi.finished) })
	vi.transport = &http.Transport{
		DialContext: vi.dialFor, DisableCompression: true, ExpectContinueTimeout: continues,
		MaxResponseHeaderBytes: headerBytes, MaxIdleConns: 1, MaxIdleConnsPerHost: 1, IdleConnTimeout: w.n.cfg.Limits.Idle,
	}
	return vi
}

func (w *web) run(vi *visit) {
	defer vi.transport.CloseIdleConnections()
	select {
	case w.conns <- vi:
		<-vi.finished
	case <-w.n.ctx.Done():
		_ = vi.Close()
	}
}

// proxied serves a client of the proxy's port.
func (n *Network) proxied(c *client) { n.web.run(n.web.newVisit(c, nil)) }

// Read implements net.Conn.
func (v *visit) Read(p []byte) (int, error) { return v.from.Read(p) }

// Close implements net.Conn.
func (v *visit) Close() error {
	err := v.client.Close()
	v.finish()
	return err
}

// dialFor dials for a request. The transport pools by host and port.
func (v *visit) dialFor(ctx context.Context, _, address string) (net.Conn, error) {
	to, err := endpoint.Parse(address)
	if err != nil {
		return nil, err
	}
	verdict, ok := ctx.Value(verdictKey{}).(Verdict)
	if !ok || !verdict.Allow {
		return nil, fmt.Errorf("%s is not allowed", to)
	}
	// One is a part of the client's own in the share; a further one, which there should not be,
	// counts as one.
	leave := func() { v.fars.Add(-1) }
	if v.fars.Add(1) > 1 {
		if err := v.n.share.enter(); err != nil {
			leave()
			return nil, err
		}
		leave = func() { v.fars.Add(-1); v.n.share.leave() }
	}
	var far net.Conn
	if first := v.first.Swap(nil); first != nil {
		far = *first
	} else if far, err = v.client.dial(ctx, to); err != nil {
		leave()
		return nil, err
	}
	closed := make(chan struct{})
	return &counted{Conn: far, c: v.client, closed: closed, leave: sync.OnceFunc(func() { leave(); close(closed) })}, nil
}

// counted counts what a connection to the far side moves, and leaves the share when it is closed.
type counted struct {
	net.Conn
	c      *client
	leave  func()
	closed chan struct{} // by leave
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if over := c.c.count(&c.c.down, int64(n)); err == nil { // the end of what comes is to stay io.EOF
		err = over
	}
	return n, err
}

// Write implements net.Conn.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if over := c.c.count(&c.c.up, int64(n)); err == nil {
		err = over
	}
	return n, err
}

// ServeHTTP judges one request and sends it on.
func (w *web) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	v := in.Context().Value(visitKey{}).(*visit)
	if w.n.asks.Wait(in.Context()) != nil { // it hung up
		return
	}
	if in.Method == http.MethodConnect {
		w.connect(v, out, in)
		return
	}
	req, err := v.read(in)
	if err != nil {
		if v.to != nil { // else it may be of another connection
			v.fail(err)
		}
		refuse(out, http.StatusBadRequest, err.Error())
		return
	}
	conn := v.verdictFor(req.Endpoint)
	rec := v.newRecord(req)
	defer v.finishRecord(&rec)
	if rec.Verdict = conn; rec.Allow {
		rec.Verdict = v.ask(rec.Request, w.n.cfg.Gate.HTTP)
		defer v.stand(none, nil, v.by)
		if !v.stand(none, &rec.Request, v.by) {
			rec.Error = "the rules changed, and do not allow it"
			return
		}
	}
	if !rec.Allow {
		deny(out, rec.Request, rec.Verdict)
		return
	}
	w.pass(v, out, in.WithContext(context.WithValue(in.Context(), verdictKey{}, conn)), req, &rec)
}

// read gives a request its one spelling.
func (v *visit) read(in *http.Request) (endpoint.Request, error) {
	text := in.RequestURI
	if v.to == nil && !strings.Contains(text, "://") {
		return endpoint.Request{}, errors.New("this is a proxy: ask for http://HOST/PATH, or CONNECT HOST:443")
	}
	if strings.HasPrefix(text, "/") {
		host := in.Host
		switch h, err := endpoint.ParseHost(host); {
		case host == "": // HTTP/1.0
			host = v.to.String()
		case v.to != nil && err == nil: // without a port, which many clients leave out: the connection's
			host = endpoint.Endpoint{Host: h, Port: v.to.Port}.String()
		}
		text = "http://" + host + text
	}
	req, err := endpoint.ParseRequest(in.Method, text)
	switch {
	case err != nil:
		return req, err
	case req.Scheme != "http":
		return req, fmt.Errorf("%s: use CONNECT %s for https", req.URL(), req.Endpoint)
	case v.to != nil && req.Endpoint != *v.to:
		return req, fmt.Errorf("the connection is to %s, and its request to %s", v.to, req.Endpoint)
	}
	return req, nil
}

// verdictFor judges a connection that a request needs, unless it is that of the last one and the rules
// are the same: requests follow each other, one far side at a time is enough, and each connection
// has a record of its own.
func (v *visit) verdictFor(to endpoint.Endpoint) Verdict {
	if by := v.n.revision(); by != v.by || to != v.last {
		v.leave()
		v.by, v.last = by, to
		v.verdict = v.judge(to)
		if _, tls := v.n.reads(v.request(to)); tls && v.to != nil {
			v.verdict = v.deny(Verdict{Reason: fmt.Sprintf("on port %d only TLS passes", to.Port)})
		}
	}
	return v.verdict
}

// leave closes the connection to the far side of the last request.
func (v *visit) leave() {
	v.transport.CloseIdleConnections()
	if first := v.first.Swap(nil); first != nil {
		_ = (*first).Close()
	}
}

func (v *visit) newRecord(req endpoint.Request) Record {
	r := Record{Request: v.request(req.Endpoint), Began: time.Now(), Up: -v.up.Load(), Down: -v.down.Load()}
	r.Method, r.URL = req.Method, req.URL()
	return r
}

// finishRecord tells the gate. Requests of one connection follow each other, so that what was
// moved since its beginning is this one's.
func (v *visit) finishRecord(r *Record) {
	v.mu.Lock()
	r.Address = v.address
	v.mu.Unlock()
	r.Took, r.Up, r.Down = time.Since(r.Began), r.Up+v.up.Load(), r.Down+v.down.Load()
	v.n.cfg.Gate.Done(*r)
}

// pass sends an allowed request on, and its answer back.
func (w *web) pass(v *visit, out http.ResponseWriter, in *http.Request, req endpoint.Request, rec *Record) {
	if !strings.EqualFold(in.Header.Get("Upgrade"), "websocket") || in.Body != http.NoBody {
		in.Header.Del("Upgrade") // no other protocol whose requests nobody would judge
	}
	proxy := httputil.ReverseProxy{
		Transport: v.transport, FlushInterval: -1, ErrorLog: w.server.ErrorLog,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = target(req)
			p.Out.Host = p.Out.URL.Host
		},
		ErrorHandler: func(out http.ResponseWriter, _ *http.Request, err error) {
			if denied, ok := errors.AsType[*deniedError](err); ok {
				rec.Verdict = v.deny(denied.Verdict)
				deny(out, rec.Request, rec.Verdict)
				return
			}
			if errors.As(err, new(*net.OpError)) { // it has the addresses of the daemon's end
				err = fmt.Errorf("%s: the connection broke", req.Endpoint)
			}
			rec.Error = err.Error()
			refuse(out, http.StatusBadGateway, rec.Error)
		},
	}
	in, settle := settled(in)
	defer settle()
	defer func() {
		// The proxy ends a broken answer so; the server closes the connection.
		if p := recover(); p != nil {
			rec.Error = "the connection broke"
			panic(p)
		}
	}()
	// Else a server reads the request to its end before it begins the answer: one that the far
	// side gives early would wait for it, and be broken off where the transport reads after it.
	if err := http.NewResponseController(out).EnableFullDuplex(); err != nil {
		rec.Error = err.Error()
		refuse(out, http.StatusInternalServerError, err.Error())
		return
	}
	proxy.ServeHTTP(out, in)
	// The rest of a request whose answer came early is read here: the server breaks a connection
	// off whose request it finds unread behind such a handler.
	if in.Body != http.NoBody && http.NewResponseController(out).Flush() == nil {
		_ = in.Body.Close()
	}
}

// settled gives a request whose settle waits until its far connection is idle or closed: the
// transport says so a little after the answer's end, and the next request would open another.
func settled(in *http.Request) (traced *http.Request, settle func()) {
	idle := make(chan struct{})
	once := sync.OnceFunc(func() { close(idle) })
	var used atomic.Pointer[counted]
	ctx := httptrace.WithClientTrace(in.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if c, ok := i.Conn.(*counted); ok {
				used.Store(c)
			}
		},
		PutIdleConn: func(err error) {
			if err == nil { // else it is closed
				once()
			}
		},
	})
	return in.WithContext(ctx), func() {
		if c := used.Load(); c != nil {
			select {
			case <-idle:
			case <-c.closed:
			case <-ctx.Done(): // the client is gone, and its transport with it
			}
		}
	}
}

// target is the URL of a request, exactly as it was judged.
func target(req endpoint.Request) *url.URL {
	host := strings.TrimPrefix(req.URL(), "http://")
	path, query, asked := strings.Cut(req.Path, "?")
	return &url.URL{
		Scheme: "http", Host: strings.TrimSuffix(host, req.Path),
		Opaque:   path, // no other spelling of its escapes
		RawQuery: query, ForceQuery: asked && query == "",
	}
}

// connect opens a tunnel.
func (w *web) connect(v *visit, out http.ResponseWriter, in *http.Request) {
	to, err := endpoint.Parse(in.RequestURI)
	switch {
	case v.to != nil:
		err = errors.New("CONNECT is for the proxy alone")
	case err == nil && in.ContentLength != 0:
		err = errors.New("CONNECT has no body")
	}
	if err != nil {
		refuse(out, http.StatusBadRequest, err.Error())
		return
	}
	conn, buf, err := http.NewResponseController(out).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if conn.SetDeadline(time.Time{}) != nil {
		return
	}
	v.leave()
	early, _ := buf.Reader.Peek(buf.Reader.Buffered())
	early = bytes.Clone(early)
	w.n.forward(v.client, to, early, func(o outcome) error {
		text := "HTTP/1.1 200 Connection established\r\n\r\n"
		switch {
		case !o.v.Allow:
			text = answer(http.StatusForbidden, o.v.Inside(), denial(v.request(to), o.v))
		case o.err != nil:
			text = answer(http.StatusBadGateway, "", o.err.Error())
		}
		_, err := io.WriteString(conn, text)
		return err
	})
}

// denial is the one line of a denied request.
func denial(r Request, v Verdict) string {
	what := endpoint.Endpoint{Port: r.Port}
	what.Host, _ = endpoint.ParseHost(r.Host)
	text := "network: " + what.String()
	if r.URL != "" {
		text = "network: " + r.Method + " " + r.URL
	}
	text += " was denied"
	if rule := v.Inside(); rule != "" {
		text += " by " + rule
	}
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	return text
}

func deny(out http.ResponseWriter, r Request, v Verdict) {
	if rule := v.Inside(); rule != "" {
		out.Header().Set(ruleHeader, oneLine(rule))
	}
	refuse(out, http.StatusForbidden, denial(r, v))
}

func refuse(out http.ResponseWriter, code int, text string) {
	out.Header().Set("Connection", "close")
	http.Error(out, text, code)
}

// answer is refuse for a connection that was hijacked.
func answer(code int, rule, text string) string {
	text += "\n"
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n",
		code, http.StatusText(code), len(text))
	if rule != "" {
		head += ruleHeader + ": " + oneLine(rule) + "\r\n"
	}
	return head + "\r\n" + text
}

// oneLine keeps a text inside its header.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
