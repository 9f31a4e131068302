package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/cgroup"
)

// fakeEngine answers as an Engine whose every answer a test can replace, by the end
// of its path.
func fakeEngine(t *testing.T, faults map[string]http.HandlerFunc) string {
	t.Helper()
	image := map[string]any{"Id": "sha256:" + strings.Repeat("a", 64), "Os": "linux", "Architecture": runtime.GOARCH, "Config": map[string]any{}}
	good := map[string]any{
		"/_ping":      "OK",
		"/version":    map[string]any{"Version": "20.10.24", "ApiVersion": "1.41"},
		"/info":       map[string]any{"OSType": "linux", "DefaultRuntime": "runc", "Runtimes": map[string]any{"runc": map[string]any{"path": "runc"}}, "MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": true},
		"/json":       image, // of an image
		"/create":     map[string]any{"Id": strings.Repeat("b", 64)},
		"/containers": []any{},
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		for end, fault := range faults {
			if strings.HasSuffix(r.URL.Path, end) {
				fault(w, r)
				return
			}
		}
		if strings.Contains(r.URL.Path, "/containers/toold-") || r.Method == http.MethodDelete {
			http.Error(w, `{"message":"No such container"}`, http.StatusNotFound)
			return
		}
		for end, v := range good {
			if strings.HasSuffix(r.URL.Path, end) {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(v)
				return
			}
		}
		http.Error(w, `{"message":"not in this test"}`, http.StatusNotImplemented)
	})
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-served
	})
	return "unix://" + socket
}

func says(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// endless writes a JSON string without an end.
func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, err := io.WriteString(w, `{"Version":"`)
	for chunk := strings.Repeat("x", 1<<16); err == nil && r.Context().Err() == nil; {
		_, err = io.WriteString(w, chunk)
	}
}

func fakeDriver(t *testing.T, host string) *Driver {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the driver is root's")
	}
	dir := t.TempDir()
	agent := filepath.Join(dir, "toolagent")
	if err := os.WriteFile(agent, []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{
		Host: host, Image: "tools:1", StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), AgentBinary: agent, Ripgrep: t.TempDir(),
		CgroupParent: cgroup.DefaultParent, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func plainSpec() sandbox.Spec {
	return sandbox.Spec{
		ID:    sandbox.ID{SessionID: "ses_fault", Incarnation: "one", Owner: "test", UIDBase: 1 << 30},
		Shape: sandbox.Shape{Limits: client.Limits{Memory: 256 << 20, PIDs: 64, Tmp: 16 << 20}},
		Claim: sandbox.Claim{Worktree: sandbox.Worktree{Mode: client.WorktreeEmpty, Target: sandbox.Workspace}},
		Nonce: make([]byte, 32),
	}
}

// Whatever is wrong with an Engine, the error says what, and nothing is left here.
func TestFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		faults map[string]http.HandlerFunc
		want   string
	}{
		"too old":              {map[string]http.HandlerFunc{"/version": says(200, `{"Version":"19.03.1","ApiVersion":"1.40"}`)}, "upgrade it to 20.10"},
		"no version":           {map[string]http.HandlerFunc{"/version": says(200, `{}`)}, "1.41 is needed"},
		"not json":             {map[string]http.HandlerFunc{"/version": says(200, `<html>`)}, "invalid character"},
		"wrong type":           {map[string]http.HandlerFunc{"/info": says(200, `{"NCPU":"many"}`)}, "cannot unmarshal"},
		"endless":              {map[string]http.HandlerFunc{"/version": endless}, "more than 32 MiB"},
		"windows":              {map[string]http.HandlerFunc{"/info": says(200, `{"OSType":"windows"}`)}, "need linux"},
		"500":                  {map[string]http.HandlerFunc{"/info": says(500, `{"message":"the engine is broken"}`)}, "the engine is broken"},
		"500 without a word":   {map[string]http.HandlerFunc{"/info": says(500, ``)}, "ask about it"},
		"long error":           {map[string]http.HandlerFunc{"/info": says(500, `{"message":"`+strings.Repeat("y", 1<<16)+`"}`)}, "yyy…"},
		"no pids limit":        {map[string]http.HandlerFunc{"/info": says(200, `{"OSType":"linux","DefaultRuntime":"runc","MemoryLimit":true}`)}, "limits.pids"},
		"unknown mapping":      {map[string]http.HandlerFunc{"/info": says(200, `{"OSType":"linux","DefaultRuntime":"runc","MemoryLimit":true,"PidsLimit":true,"SecurityOptions":["name=userns"],"DockerRootDir":"/var/lib/docker"}`)}, "userns-remap"},
		"image cannot be had":  {map[string]http.HandlerFunc{"/images/tools:1/json": says(404, `{"message":"No such image"}`), "/images/create": says(200, `{"status":"Pulling"}{"error":"manifest unknown"}`)}, "manifest unknown"},
		"image of nothing":     {map[string]http.HandlerFunc{"/images/tools:1/json": says(200, `{}`)}, "says nothing about image"},
		"image of another cpu": {map[string]http.HandlerFunc{"/images/tools:1/json": says(200, `{"Id":"sha256:x","Os":"linux","Architecture":"vax","Config":{}}`)}, "vax"},
		"no disk":              {map[string]http.HandlerFunc{"/create": says(500, `{"message":"mkdir: no space left on device"}`)}, "docker system prune"},
		"other files":          {map[string]http.HandlerFunc{"/create": says(400, `{"message":"invalid mount config: bind source path does not exist: /x"}`)}, "sees other files"},
		"name taken":           {map[string]http.HandlerFunc{"/create": says(409, `{"message":"The container name is already in use"}`)}, "already in use"},
		"no id":                {map[string]http.HandlerFunc{"/create": says(201, `{"Id":"../../etc"}`)}, "no container's id"},
		"does not start":       {map[string]http.HandlerFunc{"/start": says(500, `{"message":"OCI runtime create failed"}`)}, "OCI runtime create failed"},
		"ends at once":         {map[string]http.HandlerFunc{"/start": says(204, ``), "bbb/json": says(200, `{"Id":"b","State":{"Running":false,"ExitCode":126,"Error":"exec format error"},"Config":{}}`)}, "exec format error"},
		"a pid that is ours":   {map[string]http.HandlerFunc{"/start": says(204, ``), "bbb/json": says(200, fmt.Sprintf(`{"Id":"b","State":{"Running":true,"Pid":%d},"Config":{}}`, os.Getppid()))}, "does not run the agent"},
		"a pid that is nobody": {map[string]http.HandlerFunc{"/start": says(204, ``), "bbb/json": says(200, `{"Id":"b","State":{"Running":true,"Pid":1073741824},"Config":{}}`)}, "pid namespace"},
		"an answer of nothing": {map[string]http.HandlerFunc{"/start": says(204, ``), "bbb/json": says(200, `{}`)}, "says nothing about container"},
	} {
		t.Run(name, func(t *testing.T) {
			d := fakeDriver(t, fakeEngine(t, tt.faults))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			sb, err := d.Create(ctx, plainSpec())
			if err == nil {
				sb.Close()
				t.Fatal("a sandbox was made")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
			if len(err.Error()) > 2*maxQuoted {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if left, err := os.ReadDir(d.sandboxesDir()); err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}

func TestEngineIsNotThere(t *testing.T) {
	d := fakeDriver(t, "unix://"+filepath.Join(t.TempDir(), "docker.sock"))
	if _, err := d.Create(t.Context(), plainSpec()); err == nil || !strings.Contains(err.Error(), "systemctl start docker") {
		t.Errorf("create: %v", err)
	}
	if names, err := d.Runtimes(t.Context()); len(names) > 0 || err == nil {
		t.Errorf("runtimes are %v, %v", names, err)
	}
	if err := d.Try(t.Context(), "runc"); err == nil || errors.Is(err, sandbox.ErrNoRuntime) {
		t.Errorf("whether there is a runtime: %v; that is not known", err)
	}
	checks := d.Host(t.Context())
	if len(checks) != 1 || checks[0].Status != client.CheckFail || checks[0].Hint == "" {
		t.Errorf("checks are %+v", checks)
	}
}

// An Engine that does not answer is given up at the request's own deadline, one that
// nobody waits for any more at once.
func TestSlowEngine(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	d := fakeDriver(t, fakeEngine(t, map[string]http.HandlerFunc{"/info": hang}))
	_, err := ask(t.Context(), d.engine, 50*time.Millisecond, "ask about it", func(ctx context.Context) (system.Info, error) {
		return d.engine.c.Info(ctx)
	})
	var slow errSlow
	if !errors.As(err, &slow) || !strings.Contains(err.Error(), "look at its log") {
		t.Errorf("slow: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("nobody waits"))
	if _, err := d.Create(ctx, plainSpec()); err == nil || !strings.Contains(err.Error(), "nobody waits") {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRemapped(t *testing.T) {
	for dir, want := range map[string]ids{"/var/lib/docker/165536.165537": {165536, 165537}, "/x/1.2": {1, 2}, "/x/1": {}, "/x/a.b": {}, "/x/-1.2": {}, "": {}} {
		got, err := remapped(&system.Info{SecurityOptions: []string{"name=userns"}, DockerRootDir: dir})
		if got != want || (err != nil) != (want == ids{}) {
			t.Errorf("%q: %v, %v, want %v", dir, got, err, want)
		}
	}
	if got, err := remapped(&system.Info{DockerRootDir: "/x/1.2"}); got != (ids{}) || err != nil {
		t.Errorf("without a mapping: %v, %v", got, err)
	}
}

func TestSlice(t *testing.T) {
	for in, want := range map[string]string{"/toold": "toold.slice", "/a/b": "a-b.slice", "/toold.slice/toold-sessions.service": "toold.slice"} {
		if got := slice(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
