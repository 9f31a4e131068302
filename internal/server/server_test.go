package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// daemon is a Server on a socket of its own, with a fake behind it.
type daemon struct {
	*Server
	api     *fakeAPI
	socket  string
	checked string // the socket of a proxy that checks answers against the spec
	logs    *logBuffer
}

// start serves until the test ends. change may alter the configuration.
func start(t *testing.T, change func(*Config)) *daemon {
	t.Helper()
	d := &daemon{api: newFake(), socket: filepath.Join(shortDir(t), "s"), logs: &logBuffer{}}
	me := Peers{UIDs: []uint32{uint32(os.Getuid())}}
	id := NewIdentity(IdentityConfig{Admins: me, Tenants: map[string]Peers{"a": {UIDs: []uint32{40001}}, "b": {UIDs: []uint32{40002}}}})
	cfg := Config{
		API: apiOf(d.api), Identity: id, Log: newLog(d.logs),
		Version: client.Version{Version: "test", GoVersion: "go", API: "v1"},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = io.WriteString(w, "up 1\n")
		}),
		Reload: func(context.Context, bool) (*client.Reloaded, error) {
			return nil, errors.New("config.toml:3: unknown key")
		},
		Backup: func(_ context.Context, to io.Writer) error {
			_, err := io.WriteString(to, "tar")
			return err
		},
		Settings: func() ([]byte, error) { return []byte("[limits]\ncpus = 2.0\n"), nil },
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if d.Server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d.socket, 0o777); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	d.checked = specProxy(t, d)
	return d
}

// shortDir is a temporary directory whose name fits into a socket's address and
// that other users may enter.
func shortDir(t *testing.T) string {
	t.Helper()
	return testrig.TempDir(t, "toold")
}

func (d *daemon) client(o client.Options) *client.Client {
	o.Socket = d.checked
	return client.New(o)
}

func TestSessionAndCall(t *testing.T) {
	d := start(t, nil)
	c, ctx := d.client(client.Options{}), t.Context()
	s, err := c.CreateSession(ctx, client.SessionCreate{Name: "one", TTL: client.Duration(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	call, err := c.CreateCall(ctx, s.ID, client.CallCreate{Tool: "echo", Input: json.RawMessage(`{"a":1}`)}, client.CallOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if call.Status != client.CallCompleted || call.Output != `{"a":1}` {
		t.Errorf("call = %+v, want completed with its input as output", call)
	}
	if got, err := c.GetCall(ctx, call.ID); err != nil || got.Output != call.Output {
		t.Errorf("GetCall = %+v, %v", got, err)
	}
	if l, err := c.ListSessions(ctx, client.SessionQuery{}); err != nil || len(l.Items) != 1 {
		t.Errorf("ListSessions = %+v, %v; want one", l, err)
	}
	if s, err := c.EndSession(ctx, s.ID, client.EndOptions{Force: true}); err != nil || s.State != client.SessionEnded {
		t.Errorf("EndSession = %+v, %v", s, err)
	}
	if h, err := c.Health(ctx); err != nil || h.Status != "ok" {
		t.Errorf("Health = %+v, %v", h, err)
	}
	if v, err := c.Version(ctx); err != nil || v.Version != "test" {
		t.Errorf("Version = %+v, %v", v, err)
	}
}
