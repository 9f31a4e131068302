package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// role says who may use a route. Peers that are nobody to the daemon may use none.
type role int

const (
	roleAnyone role = iota // every known peer, and holders of a session's token
	roleToken              // the tenant's users, and holders of a token within its session
	roleTenant             // the tenant's users
	roleAdmin
)

func (ro role) check(who auth.Principal) error {
	switch {
	case ro >= roleTenant && who.Session != "":
		return forbidden("a session's token is good for calls in that session only", "use the socket without the token")
	case ro == roleAdmin && !who.Admin:
		return forbidden("only admins may do this", "an admin can add your uid to [admin] of the daemon's config.toml")
	}
	return nil
}

// Shapes of answers that are not JSON.
type (
	bytesBody  struct{} // application/octet-stream
	textBody   struct{} // text/plain
	eventsBody struct{} // text/event-stream of client.Event
	anyJSON    struct{} // JSON whose shape another document has
)

// route is one line of the API.
type route struct {
	method, pattern string
	op              string // operationId and the name of the client's method
	role            role
	handle          handler
	request         any // zero value of the body's type; nil for none
	status          int // when all went well
	response        any // zero value of the answer's type; nil for none
	query           []param
	summary         string
}

// routes is the API.
var routes = []route{
	{"GET", "/v1/version", "Version", roleAnyone, by(daemonRoutes.version), nil, 200, client.Version{}, nil, "Version of the daemon"},
	{"GET", "/v1/health", "Health", roleAnyone, by(daemonRoutes.health), nil, 200, client.Health{}, nil, "Whether the daemon is alive, also while it takes nothing yet or any more; who has work for it waits for /v1/ready"},
	{"GET", "/v1/ready", "Ready", roleAnyone, by(daemonRoutes.ready), nil, 200, client.Health{}, nil, "Whether the daemon takes sessions and calls; 503 when not"},
	{"GET", "/v1/openapi.json", "OpenAPI", roleAnyone, by(daemonRoutes.openapi), nil, 200, anyJSON{}, nil, "This document, in OpenAPI 3.1"},
	{"GET", "/metrics", "Metrics", roleAdmin, by(daemonRoutes.metrics), nil, 200, textBody{}, nil, "Metrics in the Prometheus format"},
	{"GET", "/v1/tools", "Tools", roleToken, by(daemonRoutes.tools), nil, 200, client.ToolList{}, toolParams, "Definitions of the tools that may be called"},

	{"POST", "/v1/sessions", "CreateSession", roleTenant, given(sessionRoutes.createSession), client.SessionCreate{}, 201, client.Session{}, nil, "Create a session; answers when it is ready"},
	{"GET", "/v1/sessions", "ListSessions", roleTenant, by(sessionRoutes.listSessions), nil, 200, client.List[client.Session]{}, sessionParams, "List sessions, one page"},
	{"GET", "/v1/sessions/{id}", "GetSession", roleToken, by(sessionRoutes.getSession), nil, 200, client.Session{}, nil, "Show a session with its live usage"},
	{"GET", "/v1/sessions/{id}/brief", "Brief", roleToken, by(daemonRoutes.brief), nil, 200, textBody{}, nil, "What a system prompt can say of a session"},
	{"PATCH", "/v1/sessions/{id}", "PatchSession", roleTenant, asked(sessions, Sessions.Patch), client.SessionPatch{}, 200, client.Session{}, nil, "Change labels, time to live or profile"},
	{"DELETE", "/v1/sessions/{id}", "EndSession", roleTenant, by(sessionRoutes.endSession), nil, 200, client.Session{}, endParams, "End a session; answers when none of its processes is alive"},
	{"PUT", "/v1/sessions/{id}/files", "PutFile", roleTenant, streamed(by(fileRoutes.putFile)), bytesBody{}, 200, client.Call{}, putParams, "Write one file in the sandbox, or with archive=tar unpack a tree"},
	{"GET", "/v1/sessions/{id}/files", "GetFile", roleToken, streamed(by(fileRoutes.getFile)), nil, 200, bytesBody{}, getParams, "Read one file of the sandbox, or with archive=tar pack a tree"},

	{"GET", "/v1/sessions/{id}/diff", "Diff", roleTenant, streamed(by(treeRoutes.diff)), nil, 200, bytesBody{}, diffParams, "What differs from the source or a checkpoint: a patch, or with Accept: application/json a list, one page"},
	{"POST", "/v1/sessions/{id}/apply", "Apply", roleTenant, asked(trees, Trees.Apply), client.ApplyRequest{}, 200, client.Applied{}, nil, "Write the changes of a session to its source"},
	{"POST", "/v1/sessions/{id}/discard", "Discard", roleTenant, asked(trees, Trees.Discard), client.DiscardRequest{}, 200, client.Discarded{}, nil, "Drop the changes of a session"},
	{"GET", "/v1/sessions/{id}/checkpoints", "Checkpoints", roleTenant, by(treeRoutes.checkpoints), nil, 200, client.List[client.Checkpoint]{}, nil, "List the checkpoints of a session, oldest first"},
	{"POST", "/v1/sessions/{id}/checkpoints", "Checkpoint", roleTenant, asked(trees, Trees.Checkpoint), client.CheckpointCreate{}, 201, client.Checkpoint{}, nil, "Make a state to which a session can come back"},
	{"DELETE", "/v1/sessions/{id}/checkpoints/{checkpoint}", "DropCheckpoint", roleTenant, by(treeRoutes.dropCheckpoint), nil, 204, nil, nil, "Remove a checkpoint"},
	{"POST", "/v1/sessions/{id}/restore", "Restore", roleTenant, asked(trees, Trees.Restore), client.RestoreRequest{}, 200, client.Restored{}, nil, "Bring all files of a session back to a checkpoint"},
	{"POST", "/v1/sessions/{id}/fork", "Fork", roleTenant, asked(trees, Trees.Fork), client.ForkRequest{}, 201, client.Session{}, nil, "Make a second session that begins where this one is, or was at a checkpoint"},

	{"GET", "/v1/sessions/{id}/network", "SessionNetwork", roleToken, by(networkRoutes.sessionNetwork), nil, 200, client.SessionNetwork{}, nil, "What a session reached by network, or wanted to: a line for each host and verdict"},

	{"POST", "/v1/sessions/{id}/calls", "CreateCall", roleToken, given(callRoutes.createCall), client.CallCreate{}, 200, client.Call{}, callParams, "Run a tool: the finished call, 202 with the call as it stands after wait_ms, or with Accept: text/event-stream its events"},
	{"GET", "/v1/sessions/{id}/calls", "ListCalls", roleToken, by(callRoutes.listCalls), nil, 200, client.List[client.Call]{}, callListParams, "List a session's calls, oldest first, one page"},
	{"GET", "/v1/calls/{id}", "GetCall", roleToken, by(callRoutes.getCall), nil, 200, client.Call{}, nil, "Show a call, running or finished"},
	{"GET", "/v1/calls/{id}/output", "CallOutput", roleToken, by(callRoutes.callOutput), nil, 200, bytesBody{}, outputParams, "The whole saved output of a call"},
	{"POST", "/v1/calls/{id}/abort", "AbortCall", roleToken, by(callRoutes.abortCall), nil, 200, client.Call{}, nil, "Abort a call; answers when it has finished"},
	{"POST", "/v1/sessions/{id}/mcp", "MCP", roleToken, streamed(by(callRoutes.mcp)), anyJSON{}, 200, anyJSON{}, nil, "The session's tools by the Model Context Protocol: streamable HTTP without sessions of its own"},
	{"GET", "/v1/events", "Events", roleTenant, streamed(by(eventRoutes.events)), nil, 200, eventsBody{}, eventParams, "Stream events; Last-Event-ID resumes"},

	{"GET", "/v1/approvals", "ListApprovals", roleTenant, by(approvalRoutes.listApprovals), nil, 200, client.List[client.Approval]{}, approvalParams, "List pending approvals, oldest first, one page"},
	{"POST", "/v1/approvals/{id}", "AnswerApproval", roleTenant, asked(approvals, Approvals.Answer), client.ApprovalAnswer{}, 200, client.Approval{}, nil, "Answer a pending approval; not by the credential that made the call, but for what an admin has typed at a terminal"},
	{"GET", "/v1/approvals/saved", "ListSavedApprovals", roleTenant, by(approvalRoutes.listSavedApprovals), nil, 200, client.List[client.SavedApproval]{}, approvalParams, "List saved approvals, one page"},
	{"DELETE", "/v1/approvals/saved/{id}", "RevokeApproval", roleTenant, removed(approvals, Approvals.Revoke), nil, 204, nil, nil, "Revoke a saved approval; waiting calls are judged again"},
	{"POST", "/v1/policy/explain", "ExplainPolicy", roleTenant, given(policyRoutes.explainPolicy), client.PolicyExplain{}, 200, client.PolicyVerdict{}, nil, "How a call would be judged, and by which rules"},
	{"POST", "/v1/policy/replay", "ReplayPolicy", roleAdmin, given(policyRoutes.replayPolicy), client.PolicyReplay{}, 200, client.PolicyReplayed{}, nil, "Judge recorded calls under other rules"},

	{"GET", "/v1/images", "ListImages", roleTenant, by(imageRoutes.listImages), nil, 200, client.List[client.Image]{}, nil, "List the images that sessions can run"},
	{"POST", "/v1/images", "PullImage", roleAdmin, streamed(given(imageRoutes.pullImage)), client.ImagePull{}, 200, client.Image{}, nil, "Pull an image from its registry; with Accept: text/event-stream its progress, then completed or error"},
	{"POST", "/v1/images/import", "ImportImage", roleAdmin, streamed(by(imageRoutes.importImage)), bytesBody{}, 200, client.Image{}, importParams, "Import an image from an archive: OCI, docker save, or a tar of a root file system"},
	{"DELETE", "/v1/images/{id}", "RemoveImage", roleAdmin, removed(images, Images.RemoveImage), nil, 204, nil, nil, "Remove a name of an image; its last name, or its digest, removes the image"},

	{"GET", "/v1/caches", "ListCaches", roleTenant, by(cacheRoutes.list), nil, 200, client.List[client.Cache]{}, []param{tenantParam}, "List what the tenant keeps of caches for later sessions"},
	{"DELETE", "/v1/caches/{id}", "RemoveCache", roleTenant, removed(caches, Caches.RemoveCache), nil, 204, nil, nil, "Remove what the tenant keeps of a cache; sessions that have it keep it"},
	{"POST", "/v1/sessions/{id}/caches/{cache}/promote", "PromoteCache", roleTenant, by(cacheRoutes.promote), nil, 200, client.Cache{}, nil, "Make a session's cache, as it is now, what later sessions begin with; for admins and for trusted profiles"},

	{"GET", "/v1/usage", "Usage", roleTenant, by(daemonRoutes.usage), nil, 200, client.List[client.TenantUsage]{}, nil, "Usage of each tenant; for who is no admin of their own"},
	{"GET", "/v1/doctor", "Doctor", roleAdmin, by(daemonRoutes.doctor), nil, 200, client.Doctor{}, doctorParams, "Limits and defences of this host"},
	{"POST", "/v1/gc", "GC", roleAdmin, given(daemonRoutes.gc), client.GCRequest{}, 200, client.List[client.Garbage]{}, nil, "Find leftovers of sessions, and remove them unless dry_run is set"},
	{"GET", "/v1/config", "Config", roleAdmin, by(daemonRoutes.config), nil, 200, textBody{}, nil, "The current settings of the daemon, in TOML"},
	{"GET", "/v1/backup", "Backup", roleAdmin, streamed(by(daemonRoutes.backup)), nil, 200, bytesBody{}, nil, "The state of the daemon as a tar, made while it works"},
	{"POST", "/v1/drain", "Drain", roleAdmin, given(daemonRoutes.drain), client.DrainRequest{}, 200, client.Health{}, nil, "Begin no new sessions, or with off do so again; answers as ready does then"},
	{"POST", "/v1/reload", "Reload", roleAdmin, by(daemonRoutes.reload), nil, 200, client.Reloaded{}, reloadParams, "Read the configuration again; with dry_run only look at it"},
}

// handler answers a request of one route.
type handler func(*Server, *exchange, *request) error

// by makes a handler of one resource one of the server.
func by[T ~struct{ *Server }](handle func(T, *exchange, *request) error) handler {
	return func(s *Server, x *exchange, r *request) error { return handle(T(struct{ *Server }{s}), x, r) }
}

// given is by for a route with a JSON body.
func given[T ~struct{ *Server }, R any](handle func(T, *exchange, *request, R) error) handler {
	return func(s *Server, x *exchange, r *request) error {
		var req R
		if err := s.decode(x, r, &req); err != nil {
			return err
		}
		return handle(T(struct{ *Server }{s}), x, r, req)
	}
}

// streamed makes a handler count as a stream of the user's while it runs.
func streamed(handle handler) handler {
	return func(s *Server, x *exchange, r *request) error {
		release, err := s.stream(r)
		if err != nil {
			return err
		}
		defer release()
		return handle(s, x, r)
	}
}

// asked is the handler of a route that is one method of the API: what the body asks for is
// done to what the path names.
func asked[I, R, A any](of func(*API) I, do func(I, context.Context, auth.Principal, string, R) (A, error)) handler {
	return func(s *Server, x *exchange, r *request) error {
		var req R
		if err := s.decode(x, r, &req); err != nil {
			return err
		}
		return x.answer(do(of(&s.cfg.API), r.Context(), r.who, r.id, req))
	}
}

// removed is the handler of a route that removes what the path names.
func removed[I any](of func(*API) I, do func(I, context.Context, auth.Principal, string) error) handler {
	return func(s *Server, x *exchange, r *request) error {
		return x.done(do(of(&s.cfg.API), r.Context(), r.who, r.id))
	}
}

func sessions(a *API) Sessions   { return a.Sessions }
func approvals(a *API) Approvals { return a.Approvals }
func trees(a *API) Trees         { return a.Trees }
func images(a *API) Images       { return a.Images }
func caches(a *API) Caches       { return a.Caches }

// request is one request to a route, checked as far as the table says how.
type request struct {
	*http.Request
	who   auth.Principal
	id    string // the {id} of the path: a session's id or name, or the id of what the route is about
	query url.Values
}

// mount puts the table into the mux. Methods are told apart here and not by the
// mux, whose answers are plain text.
func (s *Server) mount() {
	byPattern := make(map[string]map[string]*route)
	for i := range routes {
		rt := &routes[i]
		if byPattern[rt.pattern] == nil {
			byPattern[rt.pattern] = make(map[string]*route)
		}
		byPattern[rt.pattern][rt.method] = rt
	}
	for pattern, methods := range byPattern {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			x := w.(*exchange)
			if err := s.dispatch(x, r, methods); err != nil && x.status == 0 {
				s.fail(x, r, err)
			} else if err != nil {
				s.cut(r, err)
			}
		})
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, noRoute(r.URL.Path))
	})
}

func noRoute(path string) *client.Error {
	return &client.Error{
		Code:    client.CodeNotFound,
		Message: fmt.Sprintf("there is no route %q in this version", path),
		Hint:    "GET /v1/openapi.json lists the routes",
	}
}

// dispatch takes a request through the steps that depend on its route.
func (s *Server) dispatch(x *exchange, r *http.Request, methods map[string]*route) error {
	rt := methods[r.Method]
	if r.Method == http.MethodHead && methods["GET"] != nil && methods["GET"].response != any(eventsBody{}) {
		rt = methods["GET"]
	}
	if rt == nil {
		allow := allowed(methods)
		x.Header().Set("Allow", allow)
		if r.Method == http.MethodOptions {
			x.WriteHeader(http.StatusNoContent)
			return nil
		}
		return invalidStatus(http.StatusMethodNotAllowed, fmt.Sprintf("%s has no method %q", r.URL.Path, r.Method), "it has "+allow)
	}
	if err := rt.role.check(x.who); err != nil {
		return err
	}
	req := &request{Request: r, who: x.who}
	var err error
	if req.query, err = rt.parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if req.query.Get(tenantName) != "" {
		if err := req.who.Administers(); err != nil {
			return forbidden("only admins may ask about all tenants", "leave tenant=* (toolctl: -A) out")
		}
		req.who.AllTenants = true
	}
	if err := rt.checkIDs(r); err != nil {
		return err
	}
	req.id = r.PathValue("id")
	if rt.ofSession() {
		if req.id, err = req.ownSession(req.id); err != nil {
			return err
		}
	}
	if rt.request == nil {
		if err := s.noBody(req); err != nil {
			return err
		}
	}
	x.route = rt
	return rt.handle(s, x, req)
}

// ownSession keeps a token's holder in its session, which it may name by the id or the
// name; another one's is answered like an unknown one. Others may name any session.
func (r *request) ownSession(ref string) (string, error) {
	switch {
	case r.who.Session == "" || ref == r.who.Session:
		return ref, nil
	case ref != "" && ref == r.who.SessionName:
		return r.who.Session, nil
	}
	e := noSession(ref)
	e.Hint = fmt.Sprintf("this token is for session %s alone", r.who.Session)
	return "", e
}

func allowed(methods map[string]*route) string {
	list := slices.Sorted(maps.Keys(methods))
	if g := methods["GET"]; g != nil && g.response != any(eventsBody{}) {
		list = append(list, "HEAD")
	}
	return strings.Join(append(list, "OPTIONS"), ", ")
}

// bodyType is the type of a route's JSON body, nil for none.
func (rt *route) bodyType() reflect.Type {
	if rt.request == nil || rt.request == any(bytesBody{}) || rt.request == any(anyJSON{}) {
		return nil
	}
	return reflect.TypeOf(rt.request)
}
