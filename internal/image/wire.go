package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// maxReply bounds an answer of a registry that is not a blob: manifests, tokens,
// errors, the greeting. Some of them the client library keeps in memory.
const maxReply = 8 << 20

// wire is the transport to one registry: it speaks HTTP without TLS only where
// that is allowed, gives up on who says nothing, and bounds answers.
type wire struct {
	plainHost string // the host:port to which plain HTTP is allowed; may be empty
	stall     time.Duration
	base      *http.Transport
}

func newWire(registry string, plainHTTP bool, stall time.Duration) *wire {
	w := &wire{stall: stall, base: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		ForceAttemptHTTP2:      true,
		// Blobs are compressed, and their digest is that of the bytes as sent.
		DisableCompression: true,
	}}
	if plainHTTP || isLoopback(registry) {
		w.plainHost = registry
	}
	return w
}

func (w *wire) close() { w.base.CloseIdleConnections() }

// isLoopback judges by the name. "localhost" may be defined to be elsewhere, by
// whoever administrates this host.
func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

var errStalled = errors.New("it sends nothing")

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && req.URL.Host != w.plainHost {
		return nil, fmt.Errorf("%s://%s is not encrypted, which is allowed for registries on this host, and for others only where asked for", req.URL.Scheme, req.URL.Host)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	body := &wireBody{ctx: ctx, cancel: cancel, stall: w.stall, left: maxReply}
	body.timer = time.AfterFunc(w.stall, func() {
		cancel(fmt.Errorf("%w for %v", errStalled, w.stall))
	})
	resp, err := w.base.RoundTrip(req.WithContext(ctx))
	body.timer.Stop()
	if err != nil {
		err = body.reason(err)
		cancel(nil)
		return nil, err
	}
	if isBlob(req) {
		body.left = -1
	}
	body.ReadCloser, resp.Body = resp.Body, body
	return resp, nil
}

// isBlob reports whether a request is for a blob, maybe redirected: whoever asks
// for one does not keep it in memory.
func isBlob(req *http.Request) bool {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/")
}

// wireBody is an answer's body. Time counts only while somebody reads.
type wireBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	left   int64 // bytes; negative is without bound
}

func (b *wireBody) Read(p []byte) (int, error) {
	if b.left >= 0 && int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.reason(err)
	}
	if b.left >= 0 {
		if b.left -= int64(n); b.left < 0 {
			b.left = 0
			return 0, fmt.Errorf("its answer has more than %d bytes", maxReply)
		}
	}
	return n, err
}

// reason is why the request ended, where that was us.
func (b *wireBody) reason(err error) error {
	if cause := context.Cause(b.ctx); cause != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

func (b *wireBody) Close() error {
	b.timer.Stop()
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
