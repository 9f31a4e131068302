package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/testrig"
)

// testEngine is a private Docker Engine with an image of this host's programs.
type testEngine struct {
	t   *testing.T
	dir string
}

func newEngine(t *testing.T) *testEngine {
	t.Helper()
	if os.Geteuid() != 0 {
		testrig.Skipf(t, "docker", "an Engine is started by root only")
	}
	e := &testEngine{t, filepath.Join(os.TempDir(), fmt.Sprintf("toold-engine-test-%d-%d", os.Getpid(), rand.IntN(1e6)))}
	t.Cleanup(func() {
		if out, err := exec.Command("../../scripts/engine", "stop", e.dir).CombinedOutput(); err != nil {
			t.Errorf("stop the Engine: %v\n%s", err, out)
		}
	})
	if out, err := exec.Command("../../scripts/engine", "start", e.dir).CombinedOutput(); err != nil {
		testrig.Skipf(t, "docker", "no Docker Engine: %v\n%s", err, out)
	}
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(sandboxtest.HostImage(w, nil, "sh", "bash", "echo", "ls", "sleep", "cat", "id", "chmod", "git", "ln", "mkdir", "mkfifo", "readlink", "rm", "touch"))
	}()
	e.api(http.MethodPost, "/images/create?fromSrc=-&repo=toold-test&tag=host", r)
	return e
}

// api makes a request of the Engine behind the daemon's back.
func (e *testEngine) api(method, path string, body io.Reader) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	mustNil(e.t, err)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.dir+"/docker.sock")
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	mustNil(e.t, err)
	defer resp.Body.Close()
	if answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20)); err != nil || resp.StatusCode >= 400 {
		e.t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, answer, err)
	}
}

// daemon starts one whose sessions the Engine holds.
func (e *testEngine) daemon(p *place) *instance {
	e.t.Helper()
	file := filepath.Join(p.dir, "docker.toml")
	mustNil(e.t, os.WriteFile(file, []byte("[sandbox]\ndriver = \"docker\"\nrootfs = \"toold-test:host\"\n"), 0o600))
	d := p.command("--config", file)
	d.cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+e.dir+"/docker.sock")
	return d.start().ready()
}

// A container that is killed or removed under a running call ends it with its output
// so far, and the session says why.
func TestDockerContainerEndsUnderACall(t *testing.T) {
	p := newPlace(t)
	e := newEngine(t)
	d := e.daemon(p)
	for name, r := range map[string]struct{ method, path, why string }{
		"kill":   {http.MethodPost, "/containers/toold-%s/kill", "its container was killed"},
		"remove": {http.MethodDelete, "/containers/toold-%s?force=1", "its container was "}, // killed, then removed
	} {
		t.Run(name, func(t *testing.T) {
			c := d.client()
			s, err := c.CreateSession(t.Context(), client.SessionCreate{})
			mustNil(t, err)
			call, err := c.CreateCall(t.Context(), s.ID, client.CallCreate{
				Tool: "bash", Input: json.RawMessage(`{"command":"echo before; sleep 1000"}`), WaitMillis: new(int64),
			}, client.CallOptions{})
			mustNil(t, err)
			testrig.Eventually(t, "the call has printed", func() bool {
				out, err := c.CallOutput(t.Context(), call.ID, client.OutputQuery{})
				if err != nil {
					return false
				}
				defer out.Close()
				text, err := io.ReadAll(out)
				return err == nil && strings.Contains(string(text), "before")
			})
			e.api(r.method, fmt.Sprintf(r.path, s.ID), nil)
			testrig.Eventually(t, "the call has ended", func() bool {
				call, err = c.GetCall(t.Context(), call.ID)
				mustNil(t, err)
				return call.Status == client.CallError
			})
			if call.Error == nil || call.Error.Code != client.CodeSessionLost || !strings.Contains(call.Error.Message, r.why) || !strings.Contains(call.Output, "before") {
				t.Errorf("the call ended with %+v and output %q", call.Error, call.Output)
			}
			testrig.Eventually(t, "the session is lost", func() bool {
				s, err = c.GetSession(t.Context(), s.ID)
				mustNil(t, err)
				return s.State == client.SessionLost
			})
			if !strings.Contains(s.Reason, r.why) || len(s.Notes) == 0 {
				t.Errorf("session is lost for %q, notes are %q", s.Reason, s.Notes)
			}
		})
	}
	d.end(syscall.SIGTERM)
}

// Sessions of the driver that an earlier configuration named go on under another.
func TestSessionsOfAnotherDriver(t *testing.T) {
	p := newPlace(t)
	e := newEngine(t)
	d := e.daemon(p)
	s, err := d.client().CreateSession(t.Context(), client.SessionCreate{})
	mustNil(t, err)
	d.end(syscall.SIGTERM)

	d = p.command()
	d.cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+e.dir+"/docker.sock")
	d.start().ready()
	c := d.client()
	call, err := c.CreateCall(t.Context(), s.ID, client.CallCreate{Tool: "bash", Input: json.RawMessage(`{"command":"id -u"}`)}, client.CallOptions{})
	if err != nil || strings.TrimSpace(call.Output) != "1000" {
		t.Errorf("call is %+v, %v", call, err)
	}
	other, err := c.CreateSession(t.Context(), client.SessionCreate{})
	if err != nil || other.Driver != "oci" {
		t.Errorf("new session is %+v, %v", other, err)
	}
	for _, id := range []string{s.ID, other.ID} {
		if _, err := c.EndSession(t.Context(), id, client.EndOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}
	d.end(syscall.SIGTERM)
}
