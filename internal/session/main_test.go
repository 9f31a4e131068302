package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/worktree/layers"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		childDaemon(dir)
		return
	}
	if err := testrig.Doomed(); err != nil { // the way to the janitor stays open
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	before := openFiles()
	code := m.Run()
	if code == 0 {
		if err := left(before); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// left says which goroutines and open files the tests have left. What is about to
// end may take its time.
func left(before []string) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := goleak.Find()
		if after := openFiles(); err == nil && len(after) > len(before) {
			err = fmt.Errorf("files are left open: before the tests %v, after them %v", before, after)
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// openFiles lists what the descriptors of this process name, without what lives
// as long as the process: those of Go's poller, and the user namespaces that the
// oci driver keeps for id mapping.
func openFiles() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(to, "/proc/") && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" && !strings.HasPrefix(to, "user:") {
			all = append(all, to)
		}
	}
	return all
}

// house is a state directory with the host that belongs to it. Managers come
// and go in it like daemons.
type house struct {
	t     testing.TB
	dir   string
	host  *fakeHost
	set   Settings
	image string // of sessions that name none
	uids  string // the file of uid claims, if not its own
	pics  map[string]Images
	log   *slog.Logger
	obs   []Observer
	audit Auditor
	trees *layers.Store

	store *store.Store
	m     *Manager
}

func testSettings() Settings {
	return Settings{
		Limits: client.Limits{
			CPUs: 1, Memory: 64 << 20, PIDs: 100, Tmp: 8 << 20, OpenFiles: 100, FileSize: 1 << 20,
			Calls: 4, Output: 1 << 30, Wall: client.Duration(time.Minute),
		},
		MaxLimits: client.Limits{Memory: 128 << 20, Wall: client.Duration(time.Minute)},
		Settings: call.Settings{
			Truncate:    output.Limits{MaxLines: 2000, MaxBytes: 51200, SpillFile: 64 << 20, SpillSession: 128 << 20, Keep: time.Hour},
			BashTimeout: 20 * time.Second, Shell: []string{"/bin/bash"},
		},
		IdleTimeout: time.Hour, Retention: time.Hour, Path: "/usr/bin:/bin",
	}
}

func newHouse(t testing.TB) *house {
	h := &house{t: t, dir: t.TempDir(), host: newFakeHost(), set: testSettings(), log: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() {
		if h.m != nil {
			h.endAll()
			h.stop()
		}
	})
	return h
}

// open starts a daemon; stop ends it and leaves its sessions alive.
func (h *house) open() *Manager {
	h.t.Helper()
	m := h.build()
	if err := m.Start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	return m
}

func (h *house) build() *Manager {
	h.t.Helper()
	st, err := store.Open(store.Config{Path: filepath.Join(h.dir, "toold.db"), Log: h.log})
	if err != nil {
		h.t.Fatal(err)
	}
	if h.trees, err = layers.Open(filepath.Join(h.dir, "worktrees")); err != nil {
		h.t.Fatal(err)
	}
	caches, err := cache.Open(filepath.Join(h.dir, "caches"))
	if err != nil {
		h.t.Fatal(err)
	}
	m, err := New(Config{
		Store: st, Tools: tool.NewRegistry(), Drivers: map[string]sandbox.Driver{"fake": h.host}, Driver: "fake",
		Log: h.log, Owner: "me", OutputDir: filepath.Join(h.dir, "output"), UIDBase: 1 << 28, UIDClaims: cmp.Or(h.uids, filepath.Join(h.dir, "uids")), Settings: h.set, Observers: h.obs, Auditor: h.audit,
		Images: h.pics, Image: h.image, Trees: h.trees, Caches: caches,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	m.connect = h.host.connect
	h.store, h.m = st, m
	return m
}

func (h *house) stop() {
	h.t.Helper()
	if err := errors.Join(h.m.Close(context.Background()), h.store.Close()); err != nil {
		h.t.Error(err)
	}
	h.m = nil
}

// kill ends a daemon like SIGKILL would, as far as that is possible for a part
// of a process: nothing that it does from here on reaches the store or a sandbox.
func (h *house) kill() {
	h.t.Helper()
	// First, so that what waits for a slot gets none of a call whose connection breaks.
	h.m.leave(call.ErrLeaving)
	h.host.mu.Lock()
	for _, b := range h.host.boxes {
		b.mu.Lock()
		if b.conn != nil {
			b.conn.breakWith(nil)
			b.conn = nil
		}
		b.mu.Unlock()
	}
	h.host.mu.Unlock()
	h.stop()
}

func (h *house) endAll() {
	if err := h.m.EndAll(context.Background()); err != nil {
		h.t.Error(err)
	}
}

var (
	alice = auth.Principal{UID: 1000, Tenant: "a"}
	bob   = auth.Principal{UID: 1001, Tenant: "b"}
	root  = auth.Principal{UID: 0, Tenant: "default", Admin: true}
)

func (h *house) create(p auth.Principal, r client.SessionCreate) *client.Session {
	h.t.Helper()
	s, err := h.m.Create(h.t.Context(), p, r)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func bashCall(command string) client.CallCreate {
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err)
	}
	return client.CallCreate{Tool: "bash", Input: input}
}

func readCall(path string) client.CallCreate {
	return client.CallCreate{Tool: "read", Input: json.RawMessage(fmt.Sprintf(`{"file_path":%q}`, path))}
}

func (h *house) call(session string, r client.CallCreate) *client.Call {
	h.t.Helper()
	c, err := h.m.calls.Call(h.t.Context(), alice, session, r, call.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.settled()
	return c
}

// arrived is how much of a running call's output is here.
func (h *house) arrived(id string) int64 {
	r, n, err := h.m.calls.Output(h.t.Context(), alice, id, client.OutputQuery{})
	if err != nil {
		return -1
	}
	_ = r.Close()
	return n
}

// settled waits until the ends of calls that were told are in the store and on
// the audit log.
func (h *house) settled() { h.m.AwaitTold() }

// background makes a call and returns as soon as it has a record.
func (h *house) background(session, command string) *client.Call {
	h.t.Helper()
	r := bashCall(command)
	r.WaitMillis = new(int64)
	return h.call(session, r)
}

func awaitFor(t testing.TB, most time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(most)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("it took too long until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (h *house) finished(id string) *client.Call {
	h.t.Helper()
	var c *client.Call
	testrig.Eventually(h.t, "call "+id+" has ended", func() bool {
		var err error
		if c, err = h.m.calls.GetCall(h.t.Context(), alice, id); err != nil {
			h.t.Fatal(err)
		}
		return c.Finished()
	})
	h.settled()
	return c
}

func (h *house) output(id string) string {
	h.t.Helper()
	r, total, err := h.m.calls.Output(h.t.Context(), alice, id, client.OutputQuery{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != total {
		h.t.Fatalf("output of %s: %d bytes of %d, %v", id, len(b), total, err)
	}
	return string(b)
}

func codeOfErr(err error) client.Code {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return client.Code(f.Kind)
	}
	if ce, ok := errors.AsType[*client.Error](err); ok {
		return ce.Code
	}
	if err != nil {
		return client.Code("not a client.Error: " + err.Error())
	}
	return ""
}
