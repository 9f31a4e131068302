package testrig

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"testing"
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
	// Else the server closes the request's body when the answer begins, and the proxy, which may
	// not have looked for its end yet, breaks off the answer.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		p.t.Error(err)
	}
	body := r.Body
	r.Body = io.NopCloser(body)
	p.ReverseProxy.ServeHTTP(w, r)
	// The daemon may have answered before it read all; what is left would be taken for the next
	// request, or the client be cut off as it sends it, before it looks for the answer.
	_, _ = io.CopyN(io.Discard, body, 256<<10)
}
