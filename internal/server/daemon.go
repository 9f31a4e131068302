package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/toold/toold/api"
	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/tool"
)

// Tools says what sessions can be asked to do; *session.Toolbox implements it.
type Tools interface {
	// Tools lists the tools that nothing denies for good, with descriptions for the
	// session, or else for the profile.
	Tools(ctx context.Context, p auth.Principal, f client.ToolQuery) (*tool.Set, error)
	// Brief describes a session for a system prompt.
	Brief(ctx context.Context, p auth.Principal, session string) (string, error)
}

// Usage counts what each tenant uses, for admins and metrics; *session.Usage implements it.
type Usage interface {
	Usage(ctx context.Context) ([]client.TenantUsage, error)
}

// Collector removes what belongs to no session; *session.Collector implements it.
type Collector interface {
	GC(ctx context.Context, p auth.Principal, r client.GCRequest) ([]client.Garbage, error)
}

// Health says whether sessions and calls can be made, and else why not; *session.Manager
// implements it.
type Health interface {
	Ready(ctx context.Context) client.Health
}

// Drainer keeps new sessions from beginning; *session.Door implements it.
type Drainer interface {
	Drain(p auth.Principal, off bool) error
}

// daemonRoutes are the handlers of routes about the daemon.
type daemonRoutes struct{ *Server }

func (s daemonRoutes) version(x *exchange, _ *request) error {
	v := s.cfg.Version
	v.MCPWait = client.Duration(s.cfg.MCPWait())
	return s.reply(x, http.StatusOK, v)
}

// health says that the process answers; it asks nothing else, so that a watchdog
// does not kill a daemon for what a restart would not mend.
func (s daemonRoutes) health(x *exchange, _ *request) error {
	return s.reply(x, http.StatusOK, client.Health{Status: "ok"})
}

func (s daemonRoutes) ready(x *exchange, r *request) error {
	h := s.cfg.API.Health.Ready(r.Context())
	status := http.StatusOK
	if h.Status != "ok" {
		status = http.StatusServiceUnavailable
	}
	return s.reply(x, status, h)
}

// drain answers with what ready says then, but for the status.
func (s daemonRoutes) drain(x *exchange, r *request, req client.DrainRequest) error {
	if err := s.cfg.API.Drainer.Drain(x.who, req.Off); err != nil {
		return err
	}
	return x.answer(s.cfg.API.Health.Ready(r.Context()), nil)
}

func (s daemonRoutes) openapi(x *exchange, _ *request) error {
	s.writeBody(x, http.StatusOK, "application/json", api.OpenAPI)
	return nil
}

func (s daemonRoutes) metrics(x *exchange, r *request) error {
	s.extendWrite(x)
	s.cfg.Metrics.ServeHTTP(x, r.Request)
	return nil
}

func (s daemonRoutes) tools(x *exchange, r *request) error {
	f := client.ToolQuery{
		Profile: r.query.Get("profile"), Session: r.query.Get("session"),
		Provider: r.query.Get("provider"), Model: r.query.Get("model"),
	}
	var err error
	if f.Session != "" {
		if f.Session, err = r.ownSession(f.Session); err != nil {
			return err
		}
	}
	set, err := s.cfg.API.Tools.Tools(r.Context(), r.who, f)
	if err != nil {
		return err
	}
	return x.answer(toolList(set, r.query.Get("format"), r.flag("all")))
}

func (s daemonRoutes) brief(x *exchange, r *request) error {
	text, err := s.cfg.API.Tools.Brief(r.Context(), r.who, r.id)
	if err != nil {
		return err
	}
	s.writeBody(x, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	return nil
}

func (s daemonRoutes) doctor(x *exchange, r *request) error {
	return x.answer(s.cfg.API.Doctor.Doctor(r.Context(), r.who, r.flag("probe")))
}

func (s daemonRoutes) gc(x *exchange, r *request, req client.GCRequest) error {
	return x.answer(all(s.cfg.API.Collector.GC(r.Context(), r.who, req)))
}

func (s daemonRoutes) reload(x *exchange, r *request) error {
	v, err := s.cfg.Reload(r.Context(), r.flag("dry_run"))
	if err != nil {
		return invalid("the configuration is refused and the old one stays: "+err.Error(), "correct the file and reload again")
	}
	return x.answer(v, nil)
}

func (s daemonRoutes) backup(x *exchange, r *request) error {
	if r.Method == http.MethodHead {
		return invalidStatus(http.StatusMethodNotAllowed, "a backup has no HEAD: it is made as it is sent", "use GET")
	}
	err := s.cfg.Backup(r.Context(), &sentParts{s.Server, x})
	if err != nil && x.status != 0 {
		s.cfg.Log.Error("send a backup", "error", err)
		panic(http.ErrAbortHandler) // the client sees that there was no end
	}
	return err
}

// sentParts sends what is written to it.
type sentParts struct {
	server *Server
	x      *exchange
}

// Write implements io.Writer.
func (p *sentParts) Write(b []byte) (int, error) {
	if p.x.status == 0 {
		p.x.Header().Set("Content-Type", "application/octet-stream")
		p.x.Header().Set("Cache-Control", "no-store")
	}
	return len(b), p.server.sendPart(p.x, b, false)
}

func (s daemonRoutes) config(x *exchange, _ *request) error {
	text, err := s.cfg.Settings()
	if err != nil {
		return err
	}
	s.writeBody(x, http.StatusOK, "text/plain; charset=utf-8", text)
	return nil
}

// page is a part of a list as it is answered: one without items is [] and not null.
func page[T any](l client.List[T], err error) (client.List[T], error) {
	if l.Items == nil {
		l.Items = []T{}
	}
	return l, err
}

// all is page of a list that has no other part.
func all[T any](items []T, err error) (client.List[T], error) {
	return page(client.List[T]{Items: items}, err)
}

// tools is client.ToolList with definitions in any format.
type tools struct {
	Items    []json.RawMessage   `json:"items"`
	Revision string              `json:"revision"`
	Absent   []client.AbsentTool `json:"absent,omitempty"`
}

// toolList renders a set, with the tools that are absent if all is set.
func toolList(set *tool.Set, format string, all bool) (*tools, error) {
	list := &tools{Items: []json.RawMessage{}, Revision: set.Revision}
	absent := set.Absent
	for _, d := range set.Tools {
		raw, err := tool.Render(d, format)
		if cannot, ok := errors.AsType[*tool.LoweringError](err); ok {
			absent = append(absent, tool.Absent{Name: d.Name, Why: cannot.Error()})
			continue
		}
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, raw)
	}
	if all {
		for _, a := range absent {
			list.Absent = append(list.Absent, client.AbsentTool(a))
		}
	}
	return list, nil
}
