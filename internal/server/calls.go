package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/mcp"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/server/within"
)

// Calls runs tools in sessions. *call.Service implements it.
type Calls interface {
	// Call runs a tool. It returns when the call has finished, when r.WaitMillis
	// has passed, or when ctx ends; the call itself goes on in the last two cases.
	Call(ctx context.Context, p auth.Principal, sessionID string, r client.CallCreate, o call.Options) (*client.Call, error)
	GetCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error)
	ListCalls(ctx context.Context, p auth.Principal, sessionID string, f client.CallQuery) (client.List[client.Call], error)
	AbortCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error)
	// Output gives the whole saved output from offset on; total is its size so
	// far. With wait it follows a running call until it ends.
	Output(ctx context.Context, p auth.Principal, callID string, o client.OutputQuery) (r io.ReadCloser, total int64, err error)
}

// callRoutes are the handlers of routes about calls.
type callRoutes struct{ *Server }

func (s callRoutes) createCall(x *exchange, r *request, req client.CallCreate) error {
	o := call.Options{
		AbortOnDisconnect: r.query.Get("on_disconnect") == "abort",
		Split:             r.query.Get("streams") == "split",
	}
	o.Input = x.large.take()
	// The answer is written when this returns.
	var held []func()
	defer func() {
		for _, release := range held {
			release()
		}
	}()
	o.Hold = func(release func()) { held = append(held, release) }
	if wantsEvents(r.Request) {
		return s.streamCall(x, r, req, o)
	}
	call, err := s.cfg.API.Calls.Call(r.Context(), r.who, r.id, req, o)
	if call == nil {
		return err
	}
	status := http.StatusOK
	if !call.Finished() {
		status = http.StatusAccepted
	}
	return s.reply(x, status, call)
}

// wantsEvents reports whether the client asked for a stream.
func wantsEvents(r *http.Request) bool { return accepts(r, "text/event-stream") }

// accepts reports whether the client named a type of answers.
func accepts(r *http.Request, want string) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept"), ","), func(part string) bool {
		kind, _, _ := strings.Cut(part, ";")
		return strings.TrimSpace(kind) == want
	})
}

// streamCall answers with the call's events. Until the first of them there is no
// header yet, so that a call that cannot be made is answered like any other. A
// client that is cut off does not end the call, unless it asked for that.
func (s callRoutes) streamCall(x *exchange, r *request, req client.CallCreate, o call.Options) error {
	if req.WaitMillis != nil {
		return invalid("wait_ms has no meaning for a stream", "leave it out, or do not accept text/event-stream")
	}
	o.After = r.Header.Get("Last-Event-ID")
	if _, _, err := output.ParsePosition(o.After); o.After != "" && err != nil {
		return invalid("Last-Event-ID is not the id of an output event", "it is an offset, or two with a comma for streams=split; leave it out to begin with the first byte")
	}
	release, err := s.stream(r)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &sse{s: s.Server, x: x}
	defer out.close()
	var final atomic.Bool
	o.OnEvent = func(e client.Event) {
		kind := strings.TrimPrefix(e.Type, "call.")
		if kind == string(client.CallCompleted) || kind == string(client.CallError) {
			final.Store(true)
		}
		if out.write(e.ID, kind, e.Data) != nil {
			cancel()
		}
	}
	stop := out.beating()
	defer stop()
	call, err := s.cfg.API.Calls.Call(ctx, r.who, r.id, req, o)
	switch {
	case call == nil:
		return err
	case err != nil: // cut off: without a final event the client sees that it must ask again
		return nil
	case final.Load() || !call.Finished():
		return nil // as above, or all was said
	}
	data, err := encode(call)
	if err != nil {
		return err
	}
	_ = out.write("", string(call.Status), data)
	return nil
}

func (s callRoutes) listCalls(x *exchange, r *request) error {
	f := client.CallQuery{Status: client.CallStatus(r.query.Get("status")), Tool: r.query.Get("tool")}
	var err error
	if f.After, f.Limit, err = r.page(); err != nil {
		return err
	}
	return x.answer(page(s.cfg.API.Calls.ListCalls(r.Context(), r.who, r.id, f)))
}

func (s callRoutes) getCall(x *exchange, r *request) error {
	return x.answer(s.call(r))
}

// call gets the call that the path names. The holder of a token gets only those
// of its session; others do not exist for it.
func (s callRoutes) call(r *request) (*client.Call, error) {
	call, err := s.cfg.API.Calls.GetCall(r.Context(), r.who, r.id)
	if err != nil {
		return nil, err
	}
	if r.who.Session != "" && call.SessionID != r.who.Session {
		return nil, noCall(r.id)
	}
	return call, nil
}

// ownCall is for routes that do something with a call: for the holder of a token
// it looks first whose the call is.
func (s callRoutes) ownCall(r *request) error {
	if r.who.Session == "" {
		return nil
	}
	_, err := s.call(r)
	return err
}

func (s callRoutes) abortCall(x *exchange, r *request) error {
	if err := s.ownCall(r); err != nil {
		return err
	}
	return x.answer(s.cfg.API.Calls.AbortCall(r.Context(), r.who, r.id))
}

func (s callRoutes) callOutput(x *exchange, r *request) error {
	if err := s.ownCall(r); err != nil {
		return err
	}
	o := client.OutputQuery{Offset: r.number("offset"), Follow: r.flag("follow"), Stream: r.query.Get("stream")}
	if r.Method == http.MethodHead {
		o.Follow = false
	}
	if o.Follow {
		release, err := s.stream(r)
		if err != nil {
			return err
		}
		defer release()
	}
	body, total, err := s.cfg.API.Calls.Output(r.Context(), r.who, r.id, o)
	if err != nil {
		return err
	}
	defer body.Close()
	if o.Follow || o.Stream != "" {
		return s.sendBytes(x, r, body, -1) // total is that of both streams together
	}
	if o.Offset > total {
		return invalidStatus(http.StatusRequestedRangeNotSatisfiable,
			fmt.Sprintf("offset %d is behind the end of the output, which has %s so far", o.Offset, plain.Count(total, "byte", "bytes")), "")
	}
	return s.sendBytes(x, r, body, total-o.Offset)
}

// ownSocket is the path at which the daemon was asked; "" where that is no socket with one.
func ownSocket(r *http.Request) string {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); ok && filepath.IsAbs(a.Name) {
		return a.Name
	}
	return ""
}

// mcp answers one message of the Model Context Protocol. What it asks for are requests to
// this API, by the same peer with the same credential.
func (s callRoutes) mcp(x *exchange, r *request) error {
	session := r.id
	if r.who.Session == "" { // the holder of a token has been looked at before
		found, err := s.cfg.API.Sessions.Get(r.Context(), r.who, r.id)
		if err != nil {
			return err
		}
		session = found.ID
	}
	if err := wantType(r.Request, "application/json"); err != nil {
		return err
	}
	body, free, err := s.readBody(x, r)
	defer free()
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	peer := r.Context().Value(peerKey{})
	c := client.New(client.Options{
		Transport: &within.Transport{Handler: s.Server, Context: func(ctx context.Context) context.Context {
			return context.WithValue(context.WithValue(ctx, peerKey{}, peer), largeKey{}, &x.large)
		}},
		Reconnect: -1, // there is nothing to connect to
		Tenant:    r.Header.Get("Toold-Tenant"), Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
	})
	refused := s.protocol.Serve(x, mcp.Request{Credential: r.who.Credential(), Body: body, HTTP: r.Request, Patience: s.cfg.WriteTimeout},
		mcp.Config{Client: c, Session: session, Version: s.cfg.Version.Version, Wait: s.cfg.MCPWait(), Socket: ownSocket(r.Request)})
	if refused == nil {
		return nil
	}
	return invalidStatus(refused.Status, "the message is refused: "+plain.Cut(plain.Line(refused.Text), maxShown),
		"send one message of JSON-RPC, with Accept: application/json, text/event-stream")
}
