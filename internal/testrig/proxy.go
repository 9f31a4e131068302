package testrig

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"testing"
	"time"
)

// DaemonProxy passes requests of HTTP on to a daemon, and its answers back.
type DaemonProxy struct {
	httputil.ReverseProxy
	t testing.TB
}

// Proxy stands before the daemon at a socket.
func Proxy(t testing.TB, socket string) *DaemonProxy {
	return &DaemonProxy{t: t, ReverseProxy: httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "toold"
			r.Out.URL.RawQuery = r.In.URL.RawQuery
		},
		FlushInterval: -1,
		Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}}
}

// ServeHTTP passes one request on, and what the daemon answers back as it comes.
func (p *DaemonProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := r.Body
	if body == http.NoBody {
		p.ReverseProxy.ServeHTTP(w, r)
		return
	}
	// Else the server closes the request's body when the answer begins, and the proxy, which may
	// not have looked for its end yet, breaks off the answer.
	rc := http.NewResponseController(w)
	if err := rc.EnableFullDuplex(); err != nil {
		p.t.Error(err)
	}
	r.Body = io.NopCloser(body)
	// The daemon may answer before it has read all. What is left is no request, and the transport goes on
	// to read it: no other one comes by this connection. A client that is cut off as it sends it may not
	// look for the answer.
	w.Header().Set("Connection", "close")
	p.ReverseProxy.ServeHTTP(w, r)
	_ = rc.Flush()
	_ = rc.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
}
