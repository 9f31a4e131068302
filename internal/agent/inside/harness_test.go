package inside

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// As in the agent itself: threads that change their ids may not be the main one.
func init() { runtime.LockOSThread() }

var testNonce = bytes.Repeat([]byte{7}, 32)

// rig is a Server in this process and the way to it.
type rig struct {
	t      testing.TB
	path   string
	dir    string // worktree
	server *Server
	stop   context.CancelFunc
	done   chan error
}

func newRig(t testing.TB, tools ...run.Tool) *rig {
	t.Helper()
	return newRigOn(t, nil, tools...)
}

// newRigOn makes a rig whose server has these connections, nil: it listens.
func newRigOn(t testing.TB, from Connections, tools ...run.Tool) *rig {
	t.Helper()
	needs.Filter(t)
	dir, err := filepath.EvalSymlinks(testrig.TempDir(t, "toold-agent"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, path: filepath.Join(dir, "sock"), dir: filepath.Join(dir, "work"), done: make(chan error, 1)}
	if err := os.Mkdir(r.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if from == nil {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		from = ln
	}
	var log bytes.Buffer
	r.server, err = NewServer(ServerConfig{
		Listener: from, Nonce: testNonce, Tools: append(tools, run.Bash{}), Version: "test",
		TreeDir: filepath.Join(dir, "tree"), SameUser: os.Getuid() != 0, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- r.server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(30 * time.Second):
			buf := make([]byte, 1<<20)
			t.Errorf("server does not end\n%s", buf[:runtime.Stack(buf, true)])
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return r
}

func (r *rig) hello() agent.Hello {
	return agent.Hello{
		Nonce: testNonce, Worktree: r.dir, Home: r.dir, Tmp: filepath.Join(r.dir, "tmp"), OutputDir: r.dir,
		ToolUID: 1000, ToolGID: 1000,
		Env:   []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + r.dir, "LANG=C.UTF-8"},
		Shell: []string{"/bin/bash", "--noprofile", "--norc"},
	}
}

func (r *rig) dial() *net.UnixConn {
	r.t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) connect(h agent.Hello) (*agent.Conn, *agent.Welcome) {
	r.t.Helper()
	c, w, err := agent.Connect(r.t.Context(), r.dial(), h)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c, w
}

// sendHello begins a connection as a daemon does.
func sendHello(c net.Conn, h agent.Hello) error {
	h.Version = wire.Version
	b, err := wire.Marshal(h)
	if err == nil {
		_, err = c.Write(wire.Frame(wire.Head{Kind: wire.KindHello}, b))
	}
	return err
}

// sink keeps all that a call sends, and checks that there is no gap.
type sink struct {
	mu     sync.Mutex
	start  int64
	data   []byte
	errOut []byte
	meta   []map[string]any
	chunks int
	gap    error
	hook   func(end int64) error
}

func (s *sink) Output(offset int64, stderr bool, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := s.start + int64(len(s.data)); offset != want && s.gap == nil {
		s.gap = fmt.Errorf("output at %d, expected %d", offset, want)
	}
	s.chunks++
	s.data = append(s.data, p...)
	if stderr {
		s.errOut = append(s.errOut, p...)
	}
	if s.hook != nil {
		return s.hook(offset + int64(len(p)))
	}
	return nil
}

func (s *sink) Metadata(m map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meta = append(s.meta, m)
}

// until is a shell's command that ends when release has been called with name.
func until(name string) string { return "until [ -e " + name + " ]; do sleep 0.01; done" }

// release lets calls of the worktree go on.
func (r *rig) release(name string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func bashCall(id, command string) agent.Request {
	in, _ := json.Marshal(map[string]any{"command": command})
	return agent.Request{CallID: id, Tool: "bash", Input: in}
}

// bash runs a command line and fails the test if it could not be run.
func (r *rig) bash(c *agent.Conn, id, command string) (string, *agent.Outcome) {
	r.t.Helper()
	var s sink
	o, err := c.Run(r.t.Context(), bashCall(id, command), &s)
	if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	if o.Err != nil {
		r.t.Fatalf("%s: %v", command, o.Err)
	}
	if s.gap != nil {
		r.t.Fatal(s.gap)
	}
	if o.OutputEnd != int64(len(s.data)) {
		r.t.Errorf("output end %d, got %d bytes", o.OutputEnd, len(s.data))
	}
	return string(s.data), o
}
