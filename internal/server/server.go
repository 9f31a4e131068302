package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/mcp"
	"github.com/toold/toold/internal/strictjson"
)

// Config is what a Server needs. Fields with a default say so; the others are
// required.
type Config struct {
	API      API
	Identity *Identity
	Log      *slog.Logger
	Version  client.Version
	// Metrics answers /metrics.
	Metrics http.Handler
	// Reload reads the configuration again. Its error is shown to the admin who
	// asked, so it must name files and settings and no secrets.
	Reload func(ctx context.Context, dryRun bool) (*client.Reloaded, error)
	// Backup writes the state of the daemon as a tar.
	Backup func(ctx context.Context, to io.Writer) error
	// Settings gives the settings that the daemon works with, in TOML.
	Settings func() ([]byte, error)

	// MayChange refuses all that is no GET while the daemon can only show; nil refuses nothing.
	MayChange func() error

	// MCPWait is how long an answer by MCP waits for its call; nil = mcp.DefaultWait.
	MCPWait func() time.Duration

	// MaxConns bounds the open connections of one uid; default 1024. Peers that
	// are nobody to the daemon share one such bound.
	MaxConns int
	// MaxStreams bounds the open streams (events, calls, followed outputs, files)
	// of one uid; default 256.
	MaxStreams int
	// MaxBody bounds a JSON body in bytes; default 16 MiB.
	MaxBody int64
	// MaxBodies bounds the bytes of the JSON bodies of one uid that are held in
	// memory at once; default 128 MiB.
	MaxBodies int
	// Requests bounds the memory of the large requests of all users, from their first bytes
	// until their calls have ended; nil bounds them by MaxBodies alone.
	Requests *budget.Memory
	// RequestWait is how long a large request waits for that; default 10 s.
	RequestWait time.Duration
	// MaxFile bounds an uploaded file in bytes; default 1 GiB.
	MaxFile int64
	// MaxImage bounds an imported archive in bytes; default 16 GiB.
	MaxImage int64
	// HeaderTimeout is how long a client may take to send a header; default 10 s.
	HeaderTimeout time.Duration
	// BodyTimeout is how long it may take to send a JSON body, and how long an
	// upload may go without a byte; default 30 s.
	BodyTimeout time.Duration
	// WriteTimeout is how long it may take to accept an answer, or the next
	// event of a stream; default 10 s.
	WriteTimeout time.Duration
	// IdleTimeout closes connections that have no request; default 2 min.
	IdleTimeout time.Duration
	// Heartbeat is the pause after which a silent stream gets a comment, so that
	// both ends notice a dead peer; default 15 s.
	Heartbeat time.Duration
}

// API is what is behind the routes. Errors that clients are to see are *fault.Error or
// *client.Error. Ids of other tenants are answered exactly like unknown ones.
type API struct {
	Sessions  Sessions
	Calls     Calls
	Files     Files
	Events    Events
	Approvals Approvals
	Policy    Policy
	Images    Images
	Tools     Tools
	Usage     Usage
	Collector Collector
	Health    Health
	Doctor    Doctor
	Replay    Replayer
	Trees     Trees
	Networks  Networks
	Caches    Caches
	Drainer   Drainer
}

// whole reports whether nothing is missing.
func (a *API) whole() bool {
	return !slices.Contains([]any{a.Sessions, a.Calls, a.Files, a.Events, a.Approvals, a.Policy, a.Images, a.Tools, a.Usage, a.Collector, a.Health, a.Doctor, a.Replay, a.Trees, a.Networks, a.Caches, a.Drainer}, nil)
}

// Doctor examines the host and the sandboxes; *doctor.Doctor implements it.
type Doctor interface {
	Doctor(ctx context.Context, p auth.Principal, probe bool) (*client.Doctor, error)
}

// Replayer judges recorded calls by other rules; *replay.Replayer implements it.
type Replayer interface {
	Replay(ctx context.Context, p auth.Principal, r client.PolicyReplay) (*client.PolicyReplayed, error)
}

// maxHeader bounds a request's header. net/http reads 4 KiB more than it is told.
const maxHeader = 16<<10 - 4<<10

// Server answers the API. Make one with New.
type Server struct {
	cfg      Config
	identity atomic.Pointer[Identity]
	mux      *http.ServeMux
	shapes   map[reflect.Type]*strictjson.Shape
	conns    *quota
	idle     idlers
	streams  *quota
	bodies   *quota
	requests *quota // of Requests
	protocol *mcp.Handler
}

// New makes a Server. It fails when a required field of cfg is missing.
func New(cfg Config) (*Server, error) {
	if !cfg.API.whole() || cfg.Identity == nil || cfg.Log == nil || cfg.Metrics == nil || cfg.Reload == nil || cfg.Settings == nil || cfg.Backup == nil {
		return nil, errors.New("server: API, Identity, Log, Metrics, Reload, Settings and Backup are required")
	}
	if cfg.MCPWait == nil {
		cfg.MCPWait = func() time.Duration { return mcp.DefaultWait }
	}
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 1024)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 256)
	cfg.MaxBody = cmp.Or(cfg.MaxBody, 16<<20)
	cfg.MaxBodies = cmp.Or(cfg.MaxBodies, 128<<20)
	cfg.MaxFile = cmp.Or(cfg.MaxFile, 1<<30)
	cfg.MaxImage = cmp.Or(cfg.MaxImage, 16<<30)
	cfg.HeaderTimeout = cmp.Or(cfg.HeaderTimeout, 10*time.Second)
	cfg.RequestWait = cmp.Or(cfg.RequestWait, 10*time.Second)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, 30*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 10*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 2*time.Minute)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), shapes: bodyShapes(),
		conns: newQuota(cfg.MaxConns), streams: newQuota(cfg.MaxStreams),
		bodies: newQuota(cfg.MaxBodies),
	}
	if cfg.Requests != nil {
		s.requests = newQuota(int(cfg.Requests.Share()))
	}
	s.protocol = mcp.NewHandler(errStopping, cfg.Log)
	s.identity.Store(cfg.Identity)
	s.mount()
	return s, nil
}

// SetIdentity replaces who is who, for every request from now on, those of open
// connections included.
func (s *Server) SetIdentity(id *Identity) { s.identity.Store(id) }

// stopGrace is how long requests may go on when the server stops. Then their
// contexts end: a call that somebody waits for is answered as it stands.
const stopGrace = time.Second

// errStopping is the cause of contexts that end because the daemon does.
var errStopping = &client.Error{
	Code: client.CodeOverloaded, Message: "the daemon is stopping",
	Hint: "running calls go on; read them by id when the daemon is back",
}

// Serve answers requests of ln until ctx ends, then stops: no new connections,
// after a moment streams end and waiting requests are answered, and after a bounded time what is
// left is cut. It closes ln, and may be called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	srv := &http.Server{
		Handler:                      s,
		ReadHeaderTimeout:            s.cfg.HeaderTimeout,
		IdleTimeout:                  s.cfg.IdleTimeout,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  withPeer,
		ConnState:                    s.idle.note,
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(&peerListener{Listener: ln, server: s}) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", ln.Addr(), errors.Join(err, srv.Close()))
	case <-ctx.Done():
	}
	grace := time.AfterFunc(stopGrace, func() { cancel(errStopping) })
	defer grace.Stop()
	bound, done := context.WithTimeout(context.WithoutCancel(ctx), stopGrace+s.cfg.WriteTimeout)
	defer done()
	err := srv.Shutdown(bound)
	if err != nil {
		err = fmt.Errorf("stop %s: requests were cut: %w", ln.Addr(), errors.Join(err, srv.Close()))
	}
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// peerKey is the context key of a connection's peer.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if pc, ok := c.(*peerConn); ok {
		return context.WithValue(ctx, peerKey{}, pc.peer)
	}
	return ctx
}

// ServeHTTP takes a request through all steps that do not depend on its route.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, server: s, start: time.Now()}
	defer s.finish(x, r)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.ContentLength != 0 {
		// Covers the body that a handler reads and the one that nobody reads.
		// net/http lifts the deadline when it has seen the body's end.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout))
	}
	if err := s.admit(x, r); err != nil {
		s.fail(x, r, err)
		return
	}
	s.mux.ServeHTTP(x, r)
}

// admit finds out who asks, and refuses requests that two readers could read in
// two ways.
func (s *Server) admit(x *exchange, r *http.Request) (err error) {
	if x.who, err = s.principal(r); err != nil {
		return err
	}
	if r.Header.Get("Origin") != "" {
		return forbidden("requests of web pages are refused: this one has an Origin header", "use a program that is not a browser")
	}
	if e := r.Header.Get("Content-Encoding"); e != "" {
		return invalidStatus(http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Encoding %q is not supported", e), "send the body as it is")
	}
	if p := r.URL.Path; p != path.Clean(p) {
		return invalid(fmt.Sprintf("the path %q is not in its shortest form", p), "leave out . and .., double and final slashes")
	}
	if s.cfg.MayChange != nil && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return s.cfg.MayChange()
	}
	return nil
}

// finish logs the request and turns a panic into an answer for this one request.
// The panic's value is logged only when it is the Go runtime's own: others may
// carry what a client sent.
func (s *Server) finish(x *exchange, r *http.Request) {
	x.large.free()
	v := recover()
	if v == http.ErrAbortHandler { //nolint:errorlint // a panic's value, compared as net/http does
		panic(v)
	}
	if v != nil {
		err, ok := v.(error)
		if _, own := v.(runtime.Error); !ok || !own {
			err = fmt.Errorf("panic of type %T", v)
		}
		s.cfg.Log.LogAttrs(r.Context(), slog.LevelError, "handler panicked", slog.String("stack", string(debug.Stack())))
		if x.status != 0 {
			panic(http.ErrAbortHandler) // too late for an answer; the client must see that it is cut
		}
		s.fail(x, r, err)
	}
	if s.cfg.Log.Enabled(r.Context(), slog.LevelDebug) {
		s.cfg.Log.LogAttrs(r.Context(), slog.LevelDebug, "request",
			slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Int("status", x.status),
			slog.Float64("duration_ms", float64(time.Since(x.start).Microseconds())/1000), slog.String("tenant", x.who.Tenant), slog.Uint64("uid", uint64(x.who.UID)))
	}
}

// exchange is one request's answer, with what is known about who asked.
type exchange struct {
	http.ResponseWriter
	server *Server
	route  *route // nil until it is known
	who    auth.Principal
	start  time.Time
	status int // 0 until the header is sent
	large  large
}

// WriteHeader notes the status that is sent.
func (x *exchange) WriteHeader(status int) {
	x.status = status
	x.ResponseWriter.WriteHeader(status)
}

// Write sends the header, if that was not done, and p.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }
