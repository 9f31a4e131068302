package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"
)

// DefaultSocket is where the daemon listens when nothing else is configured.
const DefaultSocket = "/run/toold/toold.sock"

// maxAnswer bounds a JSON answer that is read into memory. A page of calls with
// large inputs is tens of MiB; what is larger than this is not an answer.
const maxAnswer = 256 << 20

// Options say how the daemon is reached. The zero value is the default socket
// with the rights of the calling user.
type Options struct {
	// Socket is the path of the daemon's socket; default DefaultSocket.
	Socket string
	// Tenant is the tenant that an admin acts for; empty for one's own.
	Tenant string
	// Token is a session's bearer token: the client is then limited to calls in
	// that session.
	Token string
	// HTTPTimeout bounds requests whose answer does not wait for a tool or a
	// sandbox; 0 means 30 s, negative means no bound. Calls and their abort, session
	// creation, streams and files end by their context alone.
	HTTPTimeout time.Duration
	// Reconnect is how long a broken stream is resumed for, counted from the
	// moment it broke (a daemon that restarts is back within seconds); 0 means
	// 30 s, negative means that a broken stream is an error at once.
	Reconnect time.Duration
	// Transport carries the requests in place of connections to Socket; nil for those.
	Transport http.RoundTripper
}

// Client speaks to one daemon. Its methods may be called from any goroutine.
// Errors of the daemon are *Error; a daemon that cannot be reached is
// *UnreachableError.
type Client struct {
	opts Options
	http *http.Client
	ofCaches
	ofTools
}

// New makes a client. It does not connect: that happens with the first request.
func New(o Options) *Client {
	o.Socket = cmp.Or(o.Socket, DefaultSocket)
	o.HTTPTimeout = cmp.Or(o.HTTPTimeout, 30*time.Second)
	o.Reconnect = cmp.Or(o.Reconnect, 30*time.Second)
	if o.Transport == nil {
		o.Transport = dialling(o.Socket)
	}
	c := &Client{opts: o, http: &http.Client{
		Transport: o.Transport,
		// The API never redirects; an answer that does is not the daemon's.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.ofCaches = ofCaches{c}
	c.ofTools = ofTools{c}
	return c
}

// dialling is a transport over connections to a socket.
func dialling(socket string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", socket)
			if err != nil && ctx.Err() == nil {
				return nil, &UnreachableError{Socket: socket, Err: err}
			}
			return c, err
		},
		DisableCompression:  true,
		MaxIdleConns:        64,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
	}
}

// Close drops idle connections. Requests in flight go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Socket is the path of the socket that this client speaks to.
func (c *Client) Socket() string { return c.opts.Socket }

// request is one HTTP request to the daemon.
type request struct {
	method, path string
	query        url.Values
	body         any       // sent as JSON when not nil
	raw          io.Reader // sent as it is when not nil
	accept       string
	lastEventID  string
	opened       func() // called when an event stream has begun; nil for nobody
	anyStatus    bool   // JSON is an answer, whatever its status
}

// do sends r and returns an answer of status 2xx, or any that r takes; anything else is an
// error.
// The caller closes the body.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, r, err)
	}
	if resp.StatusCode/100 != 2 && (!r.anyStatus || resp.Header.Get("Content-Type") != "application/json") {
		defer resp.Body.Close()
		return nil, decodeProblem(resp)
	}
	return resp, nil
}

func (c *Client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	body := r.raw
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", r.method, r.path, err)
		}
		body = bytes.NewReader(b)
	}
	u := "http://toold" + r.path
	if len(r.query) > 0 {
		u += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else if r.raw != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.lastEventID != "" {
		req.Header.Set("Last-Event-ID", r.lastEventID)
	}
	c.opts.identify(req.Header)
	return req, nil
}

// identify says for whom a request is.
func (o *Options) identify(h http.Header) {
	if o.Tenant != "" {
		h.Set("Toold-Tenant", o.Tenant)
	}
	if o.Token != "" {
		h.Set("Authorization", "Bearer "+o.Token)
	}
}

// transportError says what happened to a request that got no answer.
func (c *Client) transportError(ctx context.Context, r request, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%s %s: %w", r.method, r.path, cause)
	}
	if unreachable, ok := errors.AsType[*UnreachableError](err); ok {
		return unreachable
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err // its text repeats method and URL
	}
	return fmt.Errorf("%s %s: %w: %w", r.method, r.path, ErrDisconnected, err)
}

// call sends r and decodes a JSON answer into out (nil for none, a *[]byte has it as it is),
// within HTTPTimeout.
func (c *Client) call(ctx context.Context, r request, out any) error {
	if c.opts.HTTPTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.opts.HTTPTimeout,
			fmt.Errorf("no answer within %s: %w", c.opts.HTTPTimeout, context.DeadlineExceeded))
		defer cancel()
	}
	return c.wait(ctx, r, out)
}

// wait is call without a bound other than ctx.
func (c *Client) wait(ctx context.Context, r request, out any) error {
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.decode(ctx, r, resp, out)
}

func (c *Client) decode(ctx context.Context, r request, resp *http.Response, out any) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return c.transportError(ctx, r, err)
	}
	if len(b) > maxAnswer {
		return fmt.Errorf("%s %s: the answer is longer than %d bytes", r.method, r.path, maxAnswer)
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = b
		return nil
	}
	if resp.StatusCode == http.StatusNoContent {
		return nil // an older daemon had nothing to say here
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not the JSON expected: %w", r.method, r.path, err)
	}
	return nil
}

// decodeProblem turns an answer that is not 2xx into an *Error. What is not a
// problem document (net/http itself answers some malformed requests in plain
// text) becomes an error that quotes the status.
func decodeProblem(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/problem+json" {
		var p Problem
		if json.Unmarshal(b, &p) == nil && p.Code != "" {
			return &Error{Code: p.Code, Message: p.Detail, Hint: p.Hint, Violations: p.Violations, Status: resp.StatusCode}
		}
	}
	code := CodeInvalidRequest
	if resp.StatusCode >= 500 {
		code = CodeInternal
	}
	return &Error{Code: code, Message: "the daemon answered " + resp.Status, Status: resp.StatusCode}
}
