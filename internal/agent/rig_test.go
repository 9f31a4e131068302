package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/toold/toold/internal/agent/inside"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// As in the agent itself: threads that change their ids may not be the main one.
func init() { runtime.LockOSThread() }

var testNonce = bytes.Repeat([]byte{7}, 32)

// rig is a real agent in this process, and a connection to it.
type rig struct {
	*Conn
	t   testing.TB
	dir string // worktree
}

func newRig(t testing.TB) *rig {
	t.Helper()
	needs.Filter(t)
	dir := testrig.TempDir(t, "toold-agent")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	server, err := inside.NewServer(inside.ServerConfig{
		Listener: ln, Nonce: testNonce, Tools: []run.Tool{run.Bash{}}, SameUser: os.Getuid() != 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := Connect(t.Context(), c, Hello{
		Nonce: testNonce, Worktree: dir, Home: dir, Tmp: filepath.Join(dir, "tmp"), OutputDir: dir,
		ToolUID: 1000, ToolGID: 1000,
		Env:   []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "LANG=C.UTF-8"},
		Shell: []string{"/bin/bash", "--noprofile", "--norc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rig{Conn: conn, t: t, dir: dir}
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

func bashCall(id, command string) Request {
	in, _ := json.Marshal(map[string]any{"command": command})
	return Request{CallID: id, Tool: "bash", Input: in}
}

// sink keeps all that a call sends.
type sink struct {
	mu   sync.Mutex
	data []byte
	meta []map[string]any
	hook func(end int64) error
}

func (s *sink) Output(offset int64, _ bool, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = append(s.data, p...)
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

type sinkFunc func(offset int64, p []byte) error

func (f sinkFunc) Output(offset int64, _ bool, p []byte) error { return f(offset, p) }
func (f sinkFunc) Metadata(map[string]any)                     {}
