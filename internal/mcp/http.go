package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// stateless is the first version of the protocol in which a request is the whole of an
// exchange: closing its connection cancels it.
const stateless = "2026-07-28"

// Handler serves sessions over streamable HTTP. It keeps nothing between two requests but
// the calls that run, for those clients that cancel a request by another one.
type Handler struct {
	stopping error
	log      *slog.Logger

	mu      sync.Mutex // guards running
	running map[runningKey][]context.CancelFunc
}

// runningKey is a request of older protocols, whose ids are unique for one client alone.
type runningKey struct{ session, credential, id string }

// NewHandler makes a Handler. stopping is the cause of contexts that end because the
// server does: calls go on then.
func NewHandler(stopping error, log *slog.Logger) *Handler {
	return &Handler{stopping: stopping, log: log, running: make(map[runningKey][]context.CancelFunc)}
}

// Request is one POST of a client.
type Request struct {
	// Credential tells clients apart that are not the same; they are never shown it.
	Credential string
	// Body is the message, which has been read from HTTP.
	Body []byte
	HTTP *http.Request
	// Patience is how long the client may take to accept the next part of an answer.
	Patience time.Duration
}

// Serve answers one request about a session. It returns when the answer has been written,
// or was refused and not written.
func (h *Handler) Serve(w http.ResponseWriter, r Request, cfg Config) *Refused {
	cfg.carrier, cfg.stopping, cfg.Log = r.HTTP.Context(), h.stopping, h.log
	m := messageOf(r)
	cfg.client = m.named(w, r)
	ctx, done := h.cancellable(r, m, cfg.Session)
	defer done()
	server, out := New(cfg), &plainAnswer{ResponseWriter: w, patience: r.Patience}
	sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server.sdk }, &sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, Logger: h.log,
		DisableLocalhostProtection: true, // whoever asks is known by the socket, and web pages are refused before
		MaxRequestBodyBytes:        int64(len(r.Body)) + 1,
	}).ServeHTTP(out, r.HTTP.WithContext(ctx))
	return out.refused()
}

// clientHeader is the header of the id of a session of older protocols. Their clients say who they are
// once, when they begin one, and send its id with all that comes: here it is clientPrefix and the name of
// the client, as nothing is kept between two requests.
const (
	clientHeader = "Mcp-Session-Id"
	clientPrefix = "client-"
)

// message is what has to be known of a request beside what the SDK makes of it: nothing of one that is
// by the present protocol, or that cannot be read.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"`
		Client    json.RawMessage `json:"clientInfo"`
	} `json:"params"`
}

func messageOf(r Request) *message {
	m := new(message)
	if isStateless(r) || json.Unmarshal(r.Body, m) != nil {
		return new(message) // what it is, the SDK says
	}
	return m
}

func isStateless(r Request) bool { return r.HTTP.Header.Get("Mcp-Protocol-Version") >= stateless }

// named is the name of a client that does not say it in each request, "" for none. One that begins is
// given the id that has it.
func (m *message) named(w http.ResponseWriter, r Request) string {
	if isStateless(r) {
		return ""
	}
	if id, ok := strings.CutPrefix(r.HTTP.Header.Get(clientHeader), clientPrefix); ok {
		name, err := base64.RawURLEncoding.DecodeString(id)
		if err != nil || !isAgent(string(name)) {
			return ""
		}
		return string(name)
	}
	var client sdk.Implementation
	if m.Method == "initialize" && json.Unmarshal(m.Params.Client, &client) == nil && isAgent(client.Name) {
		w.Header().Set(clientHeader, clientPrefix+base64.RawURLEncoding.EncodeToString([]byte(client.Name)))
	}
	return ""
}

// cancellable notes a request that another one may cancel, and cancels the one that this
// request names. done forgets it.
func (h *Handler) cancellable(r Request, m *message, session string) (ctx context.Context, done func()) {
	ctx = r.HTTP.Context()
	key := runningKey{session: session, credential: r.Credential, id: string(m.ID)}
	if m.Method == "notifications/cancelled" {
		key.id = string(m.Params.RequestID)
		h.cancel(key)
		return ctx, func() {}
	}
	if m.Method != "tools/call" || len(m.ID) == 0 {
		return ctx, func() {}
	}
	// A client may hang up before it says that it cancels.
	cancelled, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.mu.Lock()
	h.running[key] = append(h.running[key], cancel)
	h.mu.Unlock()
	return context.WithValue(ctx, cancelKey{}, cancelled), func() { h.forget(key); cancel() }
}

// cancelKey is the context key of a context that ends when a client cancels the request.
type cancelKey struct{}

// cancel cancels a request, unless two have this id: then nobody knows which is meant.
func (h *Handler) cancel(key runningKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if same := h.running[key]; len(same) == 1 {
		same[0]()
	}
}

// forget takes one request of this id out: which of several does not matter, as none of
// them can be cancelled.
func (h *Handler) forget(key runningKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if same := h.running[key]; len(same) > 1 {
		h.running[key] = same[1:]
	} else {
		delete(h.running, key)
	}
}

// leaves reports whether the server stops: calls go on then, whatever else ends.
func (c *Config) leaves() bool {
	return c.carrier != nil && errors.Is(context.Cause(c.carrier), c.stopping)
}
