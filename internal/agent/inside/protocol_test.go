package inside

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// fakeTool does what a test says.
type fakeTool struct {
	name    string
	prepare func(ctx context.Context, env *run.Env, in json.RawMessage) (*run.Prepared, error)
	run     func(ctx context.Context, env *run.Env, in json.RawMessage, p *run.Prepared) (*run.Result, error)
}

func (f fakeTool) Name() string { return f.name }

func (f fakeTool) Prepare(ctx context.Context, env *run.Env, in json.RawMessage) (*run.Prepared, error) {
	return f.prepare(ctx, env, in)
}

func (f fakeTool) Run(ctx context.Context, env *run.Env, in json.RawMessage, p *run.Prepared) (*run.Result, error) {
	return f.run(ctx, env, in, p)
}

func ask(id, tool string) agent.Request {
	return agent.Request{CallID: id, Tool: tool, Input: json.RawMessage(`{}`)}
}

func TestResults(t *testing.T) {
	var got struct {
		prep *run.Prepared
		in   string
		set  string
	}
	big := strings.Repeat("0123456789abcdef", 20<<20/16)
	tools := []run.Tool{
		fakeTool{
			name: "echo",
			prepare: func(_ context.Context, _ *run.Env, in json.RawMessage) (*run.Prepared, error) {
				return &run.Prepared{
					Targets: []run.Target{{Asked: "a\xffb", Path: "/w/a\xffb", Exists: true, Kind: "file", SHA256: "00", Write: true}},
					Diff:    "-a\n+b\xff\n", State: in,
					Result: &run.Result{Title: "known"},
				}, nil
			},
			run: func(_ context.Context, env *run.Env, in json.RawMessage, p *run.Prepared) (*run.Result, error) {
				got.prep, got.in, got.set = p, string(in), string(env.Settings)
				return &run.Result{
					Title: "t", Output: "o\xff", IsError: true,
					Metadata:    map[string]any{"n": 7, "f": 1.5, "s": "x\xff", "l": []string{"a"}, "m": map[string]any{"k": true}},
					Attachments: []run.Attachment{{Filename: "f", MIME: "image/png", Data: []byte{0, 255}}},
				}, nil
			},
		},
		fakeTool{
			name: "big",
			prepare: func(context.Context, *run.Env, json.RawMessage) (*run.Prepared, error) {
				return &run.Prepared{Result: &run.Result{Output: big}}, nil
			},
			run: func(context.Context, *run.Env, json.RawMessage, *run.Prepared) (*run.Result, error) {
				return &run.Result{Output: big}, nil
			},
		},
		fakeTool{name: "huge", run: func(context.Context, *run.Env, json.RawMessage, *run.Prepared) (*run.Result, error) {
			return &run.Result{Output: big + big}, nil
		}},
		fakeTool{
			name:    "panic",
			prepare: func(context.Context, *run.Env, json.RawMessage) (*run.Prepared, error) { panic("p") },
			run: func(_ context.Context, _ *run.Env, in json.RawMessage, _ *run.Prepared) (*run.Result, error) {
				return nil, fmt.Errorf("%d", in[len(in)])
			},
		},
		fakeTool{
			name: "fail",
			prepare: func(context.Context, *run.Env, json.RawMessage) (*run.Prepared, error) {
				return nil, run.Errorf(run.CodeStale, "stale %s", "x")
			},
			run: func(context.Context, *run.Env, json.RawMessage, *run.Prepared) (*run.Result, error) {
				return nil, errors.New("odd")
			},
		},
		fakeTool{
			name:    "nothing",
			prepare: func(context.Context, *run.Env, json.RawMessage) (*run.Prepared, error) { return nil, nil },
			run: func(context.Context, *run.Env, json.RawMessage, *run.Prepared) (*run.Result, error) {
				return &run.Result{Metadata: map[string]any{"c": make(chan int)}}, nil
			},
		},
		fakeTool{name: "stream", run: func(_ context.Context, env *run.Env, _ json.RawMessage, _ *run.Prepared) (*run.Result, error) {
			for i := range 100 {
				env.Progress(map[string]any{"i": i})
				if _, err := fmt.Fprintf(env.Stream, "%05d\n", i); err != nil {
					return nil, err
				}
			}
			env.Progress(map[string]any{"c": make(chan int)}) // cannot be sent; the last one before it counts
			return &run.Result{}, nil
		}},
	}
	r := newRig(t, tools...)
	c, w := r.connect(r.hello())
	if w.Version != "test" || w.ForkTID <= 0 || len(w.Calls) != 0 {
		t.Errorf("welcome %+v", w)
	}
	ctx := t.Context()

	p, err := c.Prepare(ctx, agent.Request{CallID: "c", Tool: "echo", Input: json.RawMessage(`{"a":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := &run.Prepared{
		Targets: []run.Target{{Asked: "a\xffb", Path: "/w/a\xffb", Exists: true, Kind: "file", SHA256: "00", Write: true}},
		Diff:    "-a\n+b\uFFFD\n", State: json.RawMessage(`{"a":1}`), Result: &run.Result{Title: "known"},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("prepared %+v, want %+v", p, want)
	}
	o, err := c.Run(ctx, agent.Request{CallID: "c", Tool: "echo", Input: json.RawMessage(`{"b":2}`), Settings: json.RawMessage(`{"s":1}`), Prepared: p}, nil)
	if err != nil || o.Err != nil {
		t.Fatal(err, o)
	}
	if !reflect.DeepEqual(got.prep, want) || got.in != `{"b":2}` || got.set != `{"s":1}` {
		t.Errorf("the tool got %+v", got)
	}
	wantResult := &run.Result{
		Title: "t", Output: "o\uFFFD", IsError: true,
		Metadata:    map[string]any{"n": int64(7), "f": 1.5, "s": "x\uFFFD", "l": []any{"a"}, "m": map[string]any{"k": true}},
		Attachments: []run.Attachment{{Filename: "f", MIME: "image/png", Data: []byte{0, 255}}},
	}
	if !reflect.DeepEqual(o.Result, wantResult) {
		t.Errorf("result %+v, want %+v", o.Result, wantResult)
	}

	if p, err := c.Prepare(ctx, ask("b", "big")); err != nil || p.Result.Output != big {
		t.Errorf("big prepare: %v", err)
	}
	for i := range 4 { // several at once
		t.Run(fmt.Sprint("big", i), func(t *testing.T) {
			t.Parallel()
			c, _ := c, w
			if o, err := c.Run(context.Background(), ask(fmt.Sprint("big", i), "big"), nil); err != nil || o.Err != nil || o.Result.Output != big {
				t.Errorf("big: %v", err)
			}
			_ = c.Forget(fmt.Sprint("big", i))
		})
	}
	for _, tc := range []struct {
		tool string
		code run.Code
		text string
	}{
		{"huge", run.CodeInternal, "limit is 33554432"},
		{"panic", run.CodeInternal, "protocol_test.go"},
		{"fail", run.CodeInternal, "odd"},
		{"none", run.CodeInternal, `no tool "none"`},
	} {
		o, err := c.Run(ctx, ask("r"+tc.tool, tc.tool), nil)
		if err != nil || o.Err == nil || o.Result != nil || o.Err.Code != tc.code || !strings.Contains(o.Err.Message, tc.text) {
			t.Errorf("%s: %v %+v", tc.tool, err, o)
		}
	}
	for tool, code := range map[string]run.Code{"panic": run.CodeInternal, "fail": run.CodeStale, "none": run.CodeInternal} {
		_, err := c.Prepare(ctx, ask("p", tool))
		var e *run.Error
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("prepare %s: %v", tool, err)
		}
	}
	if p, err := c.Prepare(ctx, ask("p", "nothing")); err != nil || p == nil {
		t.Errorf("empty prepare: %v %v", p, err)
	}
	if o, err := c.Run(ctx, ask("n", "nothing"), nil); err != nil || o.Result == nil || o.Result.Metadata["metadata_error"] == nil {
		t.Errorf("odd metadata: %v %+v", err, o)
	}
	var s sink
	began := time.Now()
	if o, err := c.Run(ctx, ask("s", "stream"), &s); err != nil || o.Err != nil || len(s.data) != 600 || s.gap != nil {
		t.Errorf("stream: %v %+v %d", err, o, len(s.data))
	}
	// The first comes at once, the last with the end.
	most := 2 + int(time.Since(began)/metadataEvery)
	if n := len(s.meta); n == 0 || n > most || s.meta[n-1]["i"] != int64(99) {
		t.Errorf("metadata %v; %d may be sent", s.meta, most)
	}
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func TestBadRequestsNeverLeave(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	for name, q := range map[string]agent.Request{
		"no id":      {Tool: "bash", Input: json.RawMessage(`{}`)},
		"long id":    {CallID: strings.Repeat("x", 129), Tool: "bash", Input: json.RawMessage(`{}`)},
		"not JSON":   {CallID: "c", Tool: "bash", Input: json.RawMessage(`{`)},
		"no input":   {CallID: "c", Tool: "bash"},
		"huge input": {CallID: "c", Tool: "bash", Input: json.RawMessage(`"` + strings.Repeat("x", 17<<20) + `"`)},
	} {
		if _, err := c.Run(t.Context(), q, nil); err == nil {
			t.Errorf("run, %s: no error", name)
		}
		if _, err := c.Prepare(t.Context(), q); err == nil {
			t.Errorf("prepare, %s: no error", name)
		}
	}
	if c.Ack("", 1) == nil || c.Forget("") == nil || c.Abort("", run.ReasonAborted) == nil {
		t.Error("an empty call id was accepted")
	}
	if _, err := c.Resume(t.Context(), "", 0, nil); err == nil {
		t.Error("an empty call id was accepted")
	}
	// Sixteen MiB of input do arrive.
	in, _ := json.Marshal(map[string]any{"command": "true", "description": strings.Repeat("x", 16<<20)})
	o, err := c.Run(t.Context(), agent.Request{CallID: "c", Tool: "bash", Input: in}, nil)
	if err != nil || o.Err != nil || o.Exit.Code != 0 {
		t.Errorf("16 MiB of input: %v", err)
	}
}

func TestCallLifetimes(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	ctx := t.Context()
	r.bash(c, "a", "echo one; echo two")
	if _, err := c.Run(ctx, bashCall("a", "echo again"), &sink{}); !errors.Is(err, agent.ErrDuplicateCall) {
		t.Errorf("second run: %v", err)
	}
	for i, off := range []int64{0, 4, 8} {
		s := sink{start: off}
		o, err := c.Resume(ctx, "a", off, &s)
		if err != nil || string(s.data) != "one\ntwo\n"[off:] || o.OutputEnd != 8 || s.gap != nil {
			t.Errorf("resume %d at %d: %v %q %+v", i, off, err, s.data, o)
		}
	}
	for _, off := range []int64{-1, 9, 1 << 62} {
		if _, err := c.Resume(ctx, "a", off, &sink{start: off}); !errors.Is(err, agent.ErrOffset) {
			t.Errorf("resume at %d: %v", off, err)
		}
	}
	if _, err := c.Resume(ctx, "nobody", 0, &sink{}); !errors.Is(err, agent.ErrUnknownCall) {
		t.Errorf("unknown call: %v", err)
	}
	c2, w := r.connect(r.hello())
	if want := []agent.CallState{{ID: "a", Finished: true, End: 8}}; !reflect.DeepEqual(w.Calls, want) {
		t.Errorf("calls %+v, want %+v", w.Calls, want)
	}
	// The newest connection wins, and the old one ends.
	select {
	case <-c.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the old connection lives on")
	}
	if !errors.Is(c.Err(), agent.ErrLost) || errors.Is(c.Err(), agent.ErrViolation) {
		t.Errorf("old connection: %v", c.Err())
	}
	if err := c.Ping(ctx); !errors.Is(err, agent.ErrLost) {
		t.Errorf("ping on the old connection: %v", err)
	}
	if err := c.Ack("a", 1<<20); !errors.Is(err, agent.ErrLost) {
		t.Errorf("ack on the old connection: %v", err)
	}
	if err := c2.Forget("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c2.Resume(ctx, "a", 0, &sink{}); !errors.Is(err, agent.ErrUnknownCall) {
		t.Errorf("forgotten call: %v", err)
	}
	if err := c2.Close(); err != nil || c2.Err() != nil {
		t.Errorf("close: %v %v", err, c2.Err())
	}
	if err := c2.Ping(ctx); !errors.Is(err, agent.ErrLost) {
		t.Errorf("ping after close: %v", err)
	}
}

func TestOneRunPerCallAndConnection(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	started := make(chan struct{})
	var once sync.Once
	s := &sink{hook: func(int64) error { once.Do(func() { close(started) }); return nil }}
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(t.Context(), bashCall("a", "echo; "+until("end")), s)
		done <- err
	}()
	<-started
	if _, err := c.Resume(t.Context(), "a", 0, &sink{}); !errors.Is(err, agent.ErrDuplicateCall) {
		t.Errorf("got %v", err)
	}
	r.release("end")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type sinkFunc func(offset int64, p []byte) error

func (f sinkFunc) Output(offset int64, _ bool, p []byte) error { return f(offset, p) }
func (f sinkFunc) Metadata(map[string]any)                     {}

// The daemon acknowledges nothing: the command waits when the agent holds as
// much as it may, and goes on when it is acknowledged.
func TestUnackedOutputWaits(t *testing.T) {
	r := newRig(t)
	h := r.hello()
	h.UnackedBytes = leastUnacked
	c, _ := r.connect(h)
	var n atomic.Int64
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(t.Context(), bashCall("a", "head -c 1000000 /dev/zero; echo end"), sinkFunc(func(_ int64, p []byte) error {
			n.Add(int64(len(p)))
			return nil
		}))
		done <- err
	}()
	for n.Load() < leastUnacked {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	if got := n.Load(); got != leastUnacked {
		t.Errorf("%d bytes came without an acknowledgement; %d were allowed", got, leastUnacked)
	}
	for {
		select {
		case err := <-done:
			if err != nil || n.Load() != 1000004 {
				t.Errorf("%v after %d bytes", err, n.Load())
			}
			return
		case <-time.After(time.Millisecond):
			if err := c.Ack("a", n.Load()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// cutter forwards a connection and breaks it after a number of frames from the
// agent, or of the daemon.
func cutter(t *testing.T, agent *net.UnixConn, up, down int) *net.UnixConn {
	t.Helper()
	a, b := testrig.Socketpair(t)
	forward := func(dst, src net.Conn, frames int) {
		defer dst.Close()
		defer src.Close()
		for i := 0; frames < 0 || i < frames; i++ {
			var length [4]byte
			if _, err := io.ReadFull(src, length[:]); err != nil {
				return
			}
			frame := make([]byte, 4+binary.BigEndian.Uint32(length[:]))
			copy(frame, length[:])
			if _, err := io.ReadFull(src, frame[4:]); err != nil {
				return
			}
			if _, err := dst.Write(frame); err != nil {
				return
			}
		}
	}
	go forward(b, agent, up)
	go forward(agent, b, down)
	return a
}

// The connection breaks after every single frame, in either direction; each time
// a new one resumes where the output stands. Nothing is lost, repeated or run twice.
func TestResumeAtEveryPoint(t *testing.T) {
	r := newRig(t)
	var want strings.Builder
	for i := 1; i <= 60000; i++ {
		fmt.Fprintln(&want, i)
	}
	marker := filepath.Join(r.dir, "ran")
	for _, dir := range []string{"up", "down"} {
		cuts := 0
		for k := 1; ; k++ {
			id := fmt.Sprint(dir, k)
			os.Remove(marker)
			s := &sink{}
			complete := false
			up, down := k, -1
			if dir == "down" {
				up, down = -1, k
			}
			var o *agent.Outcome
			started := false
			for try := 0; o == nil; try++ {
				if try > 50 {
					t.Fatalf("%s: no outcome", id)
				}
				raw := r.dial()
				if try < 3 {
					raw = cutter(t, raw, up, down)
				}
				c, w, err := agent.Connect(t.Context(), raw, r.hello())
				if err != nil {
					continue
				}
				known := false
				for _, st := range w.Calls {
					known = known || st.ID == id
				}
				if started && !known && len(s.data) > 0 {
					t.Fatalf("%s: the agent has forgotten the call", id)
				}
				hook := func(end int64) error { return c.Ack(id, end) }
				s.mu.Lock()
				s.hook = func(end int64) error { _ = hook(end); return nil }
				s.mu.Unlock()
				if known {
					_ = c.Ack(id, int64(len(s.data))) // may have been lost with the connection
					o, err = c.Resume(t.Context(), id, int64(len(s.data)), s)
				} else {
					o, err = c.Run(t.Context(), bashCall(id, "echo x >> "+marker+"; seq 60000"), s)
					started = true
				}
				if err == nil && try == 0 {
					complete = true
				}
				if err != nil && !errors.Is(err, agent.ErrLost) {
					t.Fatalf("%s try %d: %v", id, try, err)
				}
				if o != nil {
					_ = c.Forget(id)
				}
				c.Close()
			}
			if s.gap != nil || string(s.data) != want.String() || o.Exit == nil || o.Exit.Code != 0 {
				t.Fatalf("%s: gap %v, %d bytes of %d, %+v", id, s.gap, len(s.data), want.Len(), o)
			}
			if b, _ := os.ReadFile(marker); string(b) != "x\n" {
				t.Fatalf("%s: ran %d times", id, len(b)/2)
			}
			cuts++
			if complete {
				break
			}
		}
		t.Logf("%s: %d cuts", dir, cuts)
		if cuts < 3 {
			t.Errorf("%s: only %d cuts", dir, cuts)
		}
	}
}

// A daemon is away for the whole of a call: the output waits, and is complete.
func TestDaemonAway(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	ctx, cancel := context.WithCancel(t.Context())
	s := &sink{hook: func(int64) error { cancel(); return nil }}
	_, _ = c.Run(ctx, bashCall("a", "for i in 1 2 3 4 5 6 7 8; do seq 20000; done; sleep 0.1"), s)
	c.Close()
	time.Sleep(300 * time.Millisecond)
	c, w := r.connect(r.hello())
	if len(w.Calls) != 1 || w.Calls[0].Finished || w.Calls[0].End > defaultUnacked {
		t.Errorf("while away: %+v", w.Calls)
	}
	s2 := &sink{}
	s2.hook = func(end int64) error { return c.Ack("a", end) }
	o, err := c.Resume(t.Context(), "a", 0, s2)
	if err != nil || o.Exit.Code != 0 || s2.gap != nil || int64(len(s2.data)) != o.OutputEnd || bytes.Count(s2.data, []byte("\n")) != 160000 {
		t.Errorf("%v %+v %d", err, o, len(s2.data))
	}
}

// What the connection before has said and the agent reads late does not take a call
// from the one that has it now.
func TestLateResume(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	s := r.server
	s.mu.Lock()
	before := s.peer
	s.mu.Unlock()
	r.bash(c, "a", "echo x")
	r.connect(r.hello())
	if err := s.resume(before, wire.Head{Kind: wire.KindResume, ID: 99, N: 1 << 20}, wire.Resume{CallID: "a"}); err == nil {
		t.Error("a connection that is over is attached to a call")
	}
	if _, err := s.run(before, wire.Head{Kind: wire.KindRun, ID: 100, N: 1 << 20}, wire.Request{CallID: "b", Tool: "bash"}); err == nil || s.call("b") != nil {
		t.Errorf("a connection that is over has a call run: %v", err)
	}
}
