package session

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

func TestBadCallsDoNotRun(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	negative := int64(-1)
	many := make(map[string]string)
	for i := range 300 {
		many[fmt.Sprintf("V%d", i)] = ""
	}
	for _, tt := range []struct {
		name string
		r    client.CallCreate
		code client.Code
		says string
	}{
		{"timeout_ms negative", with(bashCall("x"), func(r *client.CallCreate) { r.TimeoutMillis = -1 }), client.CodeInvalidRequest, "timeout_ms"},
		{"timeout_ms above wall", with(bashCall("x"), func(r *client.CallCreate) { r.TimeoutMillis = 60001 }), client.CodeInvalidRequest, "limits.wall"},
		{"timeout_ms overflows", with(bashCall("x"), func(r *client.CallCreate) { r.TimeoutMillis = 1<<63 - 1 }), client.CodeInvalidRequest, "timeout_ms"},
		{"wait_ms negative", with(bashCall("x"), func(r *client.CallCreate) { r.WaitMillis = &negative }), client.CodeInvalidRequest, "wait_ms"},
		{"env LD_PRELOAD", with(bashCall("x"), func(r *client.CallCreate) { r.Env = map[string]string{"LD_PRELOAD": "x"} }), client.CodeInvalidRequest, "LD_PRELOAD"},
		{"env name", with(bashCall("x"), func(r *client.CallCreate) { r.Env = map[string]string{"A=B": "x"} }), client.CodeInvalidRequest, "A=B"},
		{"env NUL", with(bashCall("x"), func(r *client.CallCreate) { r.Env = map[string]string{"A": "x\x00"} }), client.CodeInvalidRequest, "NUL"},
		{"env of 10 MB", with(bashCall("x"), func(r *client.CallCreate) { r.Env = map[string]string{"A": strings.Repeat("x", 10<<20)} }), client.CodeInvalidRequest, "env A"},
		{"too many env", with(bashCall("x"), func(r *client.CallCreate) { r.Env = many }), client.CodeInvalidRequest, "300"},
		{"key", with(bashCall("x"), func(r *client.CallCreate) { r.Key = "a\nb" }), client.CodeInvalidRequest, "key"},
		{"long model", with(bashCall("x"), func(r *client.CallCreate) { r.Model = strings.Repeat("m", 999) }), client.CodeInvalidRequest, "model"},
		{"extra", with(bashCall("x"), func(r *client.CallCreate) { r.Extra = json.RawMessage(`[1]`) }), client.CodeInvalidRequest, "extra"},
		{"large extra", with(bashCall("x"), func(r *client.CallCreate) { r.Extra = json.RawMessage(strings.Repeat(" ", 1<<20)) }), client.CodeInvalidRequest, "extra"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := h.m.calls.Call(t.Context(), alice, s.ID, tt.r, call.Options{})
			if codeOfErr(err) != tt.code || c != nil || !strings.Contains(fmt.Sprintf("%+v", err), tt.says) {
				t.Errorf("got %v, %v, want %s about %q", c, err, tt.code, tt.says)
			}
		})
	}
	if runs := h.host.box(s.ID).runs; len(runs) != 0 {
		t.Errorf("%d calls reached the agent", len(runs))
	}
	if list, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{}); err != nil || len(list.Items) != 0 {
		t.Errorf("list %v, %v", list, err)
	}
	if s := h.m.live()[0]; s.calls.Open() != 0 || s.tenant.Calls.Load() != 0 {
		t.Errorf("%d and %d calls are counted as open", s.calls.Open(), s.tenant.Calls.Load())
	}
}

func with(r client.CallCreate, change func(*client.CallCreate)) client.CallCreate {
	change(&r)
	return r
}

func TestDeadlines(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Limits: client.Limits{Wall: client.Duration(30 * time.Second)}})
	for _, tt := range []struct {
		r    client.CallCreate
		want int64
	}{
		{bashCall("true"), 20000},
		{with(bashCall("true"), func(r *client.CallCreate) { r.TimeoutMillis = 7 }), 7},
		{client.CallCreate{Tool: "bash", Input: json.RawMessage(`{"command":"x","timeout":25000}`)}, 30000},
		{client.CallCreate{Tool: "bash", Input: json.RawMessage(`{"command":"x","timeout":30001}`)}, 30000},
		{client.CallCreate{Tool: "bash", Input: json.RawMessage(`{"command":"x","timeout":0}`)}, 20000},
		{readCall("x"), 30000},
	} {
		c := h.call(s.ID, tt.r)
		if got := h.host.box(s.ID).lastRequest(); got.CallID != c.ID || got.TimeoutMillis != tt.want {
			t.Errorf("%s: deadline %d, want %d ms", c.Input, got.TimeoutMillis, tt.want)
		}
	}
}

// TestLongTimeoutIsCut: one that the session does not allow is no error, and the
// answer says what it was cut to; also the answer of the next daemon.
func TestLongTimeoutIsCut(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Limits: client.Limits{Wall: client.Duration(30 * time.Second)}})
	for timeout, cut := range map[int64]bool{0: false, 1: false, 30000: false, 30001: true, 1e12: true} {
		c := h.call(s.ID, client.CallCreate{Tool: "bash", Input: json.RawMessage(fmt.Sprintf(`{"command":"echo %d","timeout":%d}`, timeout, timeout))})
		want := fmt.Sprintf("%d\n", timeout)
		if cut {
			want += fmt.Sprintf("(timeout %d was cut to 30000 ms, the most that this session allows)", timeout)
		}
		if c.Output != want || c.IsError || h.output(c.ID) != fmt.Sprintf("%d\n", timeout) {
			t.Errorf("timeout %d: %q, %v, want %q", timeout, c.Output, c.Error, want)
		}
	}
	long := client.CallCreate{Tool: "bash", Input: json.RawMessage(`{"command":"hold; echo x","timeout":60000}`), WaitMillis: new(int64)}
	c := h.call(s.ID, long)
	box := h.host.box(s.ID)
	testrig.Eventually(t, "it runs", func() bool { return box.holding.Load() == 1 })
	h.kill()
	h.open()
	box.release()
	if c = h.finished(c.ID); !strings.HasSuffix(c.Output, "x\n(timeout 60000 was cut to 30000 ms, the most that this session allows)") {
		t.Errorf("after a restart: %q", c.Output)
	}
}

func TestKey(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	r := with(bashCall("hold; echo done"), func(r *client.CallCreate) { r.Key = "k1" })
	var wg sync.WaitGroup
	got := make([]*client.Call, 8)
	var events [8][]string
	for i := range got {
		wg.Go(func() {
			var err error
			got[i], err = h.m.calls.Call(context.Background(), alice, s.ID, r, call.Options{OnEvent: func(e client.Event) { events[i] = append(events[i], e.Type) }})
			if err != nil {
				t.Error(err)
			}
		})
	}
	box := h.host.box(s.ID)
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	// The same key with another spelling of the same input leads there, too.
	in := with(r, func(r *client.CallCreate) {
		r.Input = json.RawMessage(` { "command" : "hold; echo done" } `)
		r.WaitMillis = new(int64)
	})
	if c, err := h.m.calls.Call(t.Context(), alice, s.ID, in, call.Options{}); err != nil || c.Status != client.CallRunning {
		t.Errorf("while it runs: %+v, %v", c, err)
	}
	box.release()
	wg.Wait()
	for i, c := range got {
		if c == nil || c.ID != got[0].ID || c.Output != "done\n" {
			t.Errorf("call %d: %+v", i, c)
		}
		if e := events[i]; len(e) == 0 || e[len(e)-1] != "completed" {
			t.Errorf("events of call %d: %v", i, e)
		}
	}
	var last []string
	c, err := h.m.calls.Call(t.Context(), alice, s.ID, r, call.Options{OnEvent: func(e client.Event) { last = append(last, e.Type) }})
	if err != nil || c.ID != got[0].ID || !slices.Equal(last, []string{"output", "completed"}) {
		t.Errorf("after its end: %+v, %v, events %v", c, err, last)
	}
	if len(box.runs) != 1 {
		t.Errorf("it ran %d times", len(box.runs))
	}
	for _, other := range []client.CallCreate{
		with(bashCall("echo other"), func(r *client.CallCreate) { r.Key = "k1" }),
		with(readCall("x"), func(r *client.CallCreate) { r.Key = "k1" }),
		with(r, func(r *client.CallCreate) { r.Env = map[string]string{"A": "b"} }),
	} {
		if _, err := h.m.calls.Call(t.Context(), alice, s.ID, other, call.Options{}); codeOfErr(err) != client.CodeConflict {
			t.Errorf("another input with the key: %v", err)
		}
	}
	// Keys are a session's own.
	other := h.create(alice, client.SessionCreate{})
	if c := h.call(other.ID, with(bashCall("echo x"), func(r *client.CallCreate) { r.Key = "k1" })); c.ID == got[0].ID {
		t.Error("a key led to a call of another session")
	}
	// It leads to the call also when the session is over.
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	if c, err := h.m.calls.Call(t.Context(), alice, s.ID, r, call.Options{}); err != nil || c.ID != got[0].ID || c.Output != "done\n" {
		t.Errorf("in a session that is over: %+v, %v", c, err)
	}
	for _, other := range []client.CallCreate{bashCall("echo x"), with(bashCall("echo x"), func(r *client.CallCreate) { r.Key = "k1" }), with(r, func(r *client.CallCreate) { r.Key = "k2" })} {
		if _, err := h.m.calls.Call(t.Context(), alice, s.ID, other, call.Options{}); codeOfErr(err) != client.CodeSessionLost {
			t.Errorf("another call in a session that is over: %v", err)
		}
	}
}

func TestAbort(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Limits: client.Limits{Calls: 1}})
	box := h.host.box(s.ID)
	running := h.background(s.ID, "echo part; hold")
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	waiting := h.background(s.ID, "echo never")
	if c, err := h.m.calls.AbortCall(t.Context(), alice, waiting.ID); err != nil || c.Status != client.CallError || c.Error.Code != client.CodeAborted || c.Time.Started != nil {
		t.Errorf("aborted while it waited: %+v, %v", c, err)
	}
	c, err := h.m.calls.AbortCall(t.Context(), alice, running.ID)
	if err != nil || c.Status != client.CallCompleted || c.Metadata["reason"] != "aborted" || c.Output != "part\naborted" {
		t.Errorf("aborted while it ran: %+v, %v", c, err)
	}
	if again, err := h.m.calls.AbortCall(t.Context(), alice, running.ID); err != nil || again.Output != c.Output {
		t.Errorf("aborted after its end: %+v, %v", again, err)
	}
	if len(box.runs) != 1 {
		t.Errorf("%d calls ran", len(box.runs))
	}
}

func TestClientThatGoesAway(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	for _, abort := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		var id string
		var wg sync.WaitGroup
		wg.Go(func() {
			c, err := h.m.calls.Call(ctx, alice, s.ID, bashCall("hold; echo went on"), call.Options{AbortOnDisconnect: abort})
			if err != nil {
				t.Error(err)
				return
			}
			id = c.ID
		})
		testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
		cancel()
		wg.Wait()
		if !abort {
			box.release()
		}
		want := map[bool]string{false: "exit", true: "aborted"}[abort]
		if c := h.finished(id); c.Metadata["reason"] != want {
			t.Errorf("abort %v: reason %v, want %s", abort, c.Metadata["reason"], want)
		}
	}
}

func TestAdmission(t *testing.T) {
	h := newHouse(t)
	h.set.Tenants = map[string]Tenant{"b": {MaxCalls: 2}}
	h.open()
	s := h.create(alice, client.SessionCreate{Limits: client.Limits{Calls: 2}})
	box := h.host.box(s.ID)
	var ids []string
	for range 2 + call.QueueLen {
		ids = append(ids, h.background(s.ID, "hold").ID)
	}
	testrig.Eventually(t, "two hold", func() bool { return box.holding.Load() == 2 })
	if _, err := h.m.calls.Call(t.Context(), alice, s.ID, bashCall("x"), call.Options{}); codeOfErr(err) != client.CodeOverloaded {
		t.Errorf("past the queue: %v", err)
	}
	if n := len(box.runs); n != 2 {
		t.Errorf("%d run at once, want 2", n)
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			default:
				if box.holding.Load() > 0 {
					box.release()
				}
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for _, id := range ids {
		h.finished(id)
	}
	close(done)

	sb, err := h.m.Create(t.Context(), bob, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	zero := int64(0)
	for i := range 3 {
		_, err := h.m.calls.Call(t.Context(), bob, sb.ID, with(bashCall("hold"), func(r *client.CallCreate) { r.WaitMillis = &zero }), call.Options{})
		if want := map[bool]client.Code{true: client.CodeOverloaded}[i == 2]; codeOfErr(err) != want {
			t.Errorf("call %d of tenant b: %v", i, err)
		}
	}
}

func TestEventsOfACall(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	var types []string
	var text strings.Builder
	var offset int64
	box := h.host.box(s.ID)
	_, err := h.m.calls.Call(t.Context(), alice, s.ID, bashCall("progress; bytes 61e282; hold; bytes ac62; hold; bytes ff63"), call.Options{OnEvent: func(e client.Event) {
		types = append(types, e.Type)
		if e.Type == "output" {
			if offset < 3 {
				box.pass() // each part is told before the next one comes
			}
			var c client.Output
			if err := json.Unmarshal(e.Data, &c); err != nil || c.Offset != offset {
				t.Errorf("output event at %d, want %d, %v", c.Offset, offset, err)
			}
			text.WriteString(c.Text)
			if len(c.Base64) > 0 {
				text.WriteString("<" + base64.StdEncoding.EncodeToString(c.Base64) + ">")
				offset += 2
			}
			offset += int64(len(c.Text))
		}
		if e.Type == "completed" {
			var c client.Call
			if err := json.Unmarshal(e.Data, &c); err != nil || c.Status != client.CallCompleted || c.Output == "" {
				t.Errorf("completed: %s, %v", e.Data, err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Compact(types); !slices.Equal(got, []string{"pending", "running", "metadata", "output", "completed"}) {
		t.Errorf("events %v", got)
	}
	if text.String() != "a€b</2M=>" {
		t.Errorf("text %q", text.String())
	}
}

func TestWaitMillis(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	ms := int64(20)
	c := h.call(s.ID, with(bashCall("hold"), func(r *client.CallCreate) { r.WaitMillis = &ms }))
	if c.Metadata == nil {
		t.Error("metadata is null in JSON")
	}
	if c.Status != client.CallPending && c.Status != client.CallRunning {
		t.Errorf("after wait_ms: %+v", c)
	}
	box := h.host.box(s.ID)
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	box.release()
	h.finished(c.ID)
}

func TestLimitsEndPrograms(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	for _, tt := range []struct{ command, reason, last string }{
		{"echo x; oom", "memory", "out of memory (limit 64MiB); do less at once, or have the session made with --limit memory=SIZE"},
		{"echo x; forkbomb", "pids", "too many processes (limit 100); start fewer at once, or have the session made with --limit pids=N"},
		{"echo x; agentoom", "memory", "out of memory (limit 64MiB); do less at once, or have the session made with --limit memory=SIZE"},
		{"echo x; agentforkbomb", "pids", "too many processes (limit 100); start fewer at once, or have the session made with --limit pids=N"},
		{"echo x; exit 1", "exit", "exit code 1"},
		{"echo x; signal SIGSEGV", "signal", "killed by SIGSEGV"},
	} {
		c := h.call(s.ID, bashCall(tt.command))
		if c.Metadata["reason"] != tt.reason || c.Output != "x\n"+tt.last || !c.IsError {
			t.Errorf("%s: reason %v, output %q", tt.command, c.Metadata["reason"], c.Output)
		}
	}
	if n := box.freed.Load(); n != 0 {
		t.Errorf("the tmpfs directories were emptied %d times for nothing", n)
	}
	// Memory that is given back a little later was not in files.
	box.memory.Store(60 << 20)
	var asked atomic.Int32
	box.mu.Lock()
	box.asked = func() {
		if asked.Add(1) == 10 {
			box.memory.Store(0)
		}
	}
	box.mu.Unlock()
	if c := h.call(s.ID, bashCall("oom")); strings.Contains(c.Output, "were removed") || box.freed.Load() != 0 {
		t.Errorf("memory that is given back late: %q, freed %d", c.Output, box.freed.Load())
	}
	box.memory.Store(60 << 20)
	if c := h.call(s.ID, bashCall("oom")); !strings.Contains(c.Output, "were removed: they filled the memory") || box.freed.Load() != 1 {
		t.Errorf("memory that stays full: %q, freed %d", c.Output, box.freed.Load())
	}
	// A tolerated kill is not made into a failure, but told, once.
	box.oom.Add(1)
	box.pids.Add(7)
	want := "ok\n(exit code 0, but processes were killed: out of memory (limit 64MiB))\n" +
		"(exit code 0, but processes could not be started: too many processes (limit 100))"
	for _, want := range []string{want, "ok\n"} {
		if c := h.call(s.ID, bashCall("long; echo ok")); c.IsError || c.Metadata["reason"] != "exit" || c.Output != want {
			t.Errorf("got %+v, want %q", c, want)
		}
	}
}

// TestKilledForTool: a kill of a program that a tool runs itself is not held against the command behind it.
func TestKilledForTool(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for _, file := range []string{"huge picture", "huge missing"} {
		h.call(s.ID, readCall(file))
		if c := h.call(s.ID, bashCall("exit 1")); c.Metadata["reason"] != "exit" {
			t.Errorf("behind a read of a %s: %v, %q", file, c.Metadata["reason"], c.Output)
		}
	}
	if c := h.call(s.ID, bashCall("oom")); c.Metadata["reason"] != "memory" {
		t.Errorf("of a command: %v", c.Metadata["reason"])
	}
}

func TestPrepare(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	h.call(s.ID, readCall("file"))
	// What Prepare knows already needs no run, but is shown only if allowed.
	box.prepared = &run.Prepared{
		Targets: []run.Target{{Asked: "file", Path: "/workspace/file"}}, Result: run.Failed("t", "no such file"),
	}
	if c := h.call(s.ID, readCall("file")); c.Output != "no such file" || !c.IsError || c.Status != client.CallCompleted {
		t.Errorf("call %+v", c)
	}
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { read = "deny" }`) })
	if c := h.call(s.ID, readCall("file")); c.Status != client.CallError || c.Error.Code != client.CodeDenied || c.Printed() != "" {
		t.Errorf("denied: %+v", c)
	}
	h.reload(func(set *Settings) { set.Policy = nil })
	box.prepared = nil
	h.host.fail("prepare", &run.Error{Code: run.CodeNotRegularFile, Message: "it is a fifo"})
	if c := h.call(s.ID, readCall("file")); c.Status != client.CallError || c.Error.Code != client.CodeNotRegularFile {
		t.Errorf("refused: %+v", c)
	}
	h.host.fail("prepare", &run.Error{Code: "made_up", Message: "x"})
	if c := h.call(s.ID, readCall("file")); c.Error.Code != client.CodeSandboxFailed {
		t.Errorf("unknown code: %+v", c.Error)
	}
	if len(box.runs) != 1 {
		t.Errorf("%d calls ran", len(box.runs))
	}
}

func TestFileEdited(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	events, err := h.m.Events.Events(t.Context(), alice, event.Filter{Type: "file.*"})
	if err != nil {
		t.Fatal(err)
	}
	c := h.call(s.ID, client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"a.txt","content":"x"}`)})
	e := <-events
	if e.Type != client.EventFileEdited || e.Call != c.ID || string(e.Data) != `{"path":"/workspace/a.txt","tool":"write"}` {
		t.Errorf("event %+v %s", e, e.Data)
	}
}

func TestReconnect(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	r := bashCall("lines 500 1; hold; lines 100 1")
	zero := int64(0)
	r.WaitMillis = &zero
	c := h.call(s.ID, r)
	for range 5 {
		time.Sleep(20 * time.Millisecond)
		box.sever(agent.ErrLost)
	}
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	box.release()
	done := h.finished(c.ID)
	if done.Status != client.CallCompleted || done.Output != numberedLines(500)+numberedLines(100) {
		t.Errorf("call %v %v, %d bytes", done.Status, done.Error, len(done.Output))
	}
	if len(box.runs) != 1 {
		t.Errorf("it ran %d times", len(box.runs))
	}
	if got := h.call(s.ID, bashCall("echo next")).Output; got != "next\n" {
		t.Errorf("next call: %q", got)
	}
}

// TestAgentThatHangsUp: an agent that welcomes and drops every connection is not
// dialled for ever.
func TestAgentThatHangsUp(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
				box.sever(agent.ErrLost)
			}
		}
	}()
	testrig.Eventually(t, "the session is lost", func() bool {
		v, err := h.m.Get(t.Context(), alice, s.ID)
		return err == nil && v.State == client.SessionLost && strings.Contains(v.Reason, "more than 5 times")
	})
}

func numberedLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestRunThatMayHaveBegunIsNotRepeated(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	h.host.fail("run", agent.ErrLost)
	go func() {
		for !h.host.did("run") {
			time.Sleep(time.Millisecond)
		}
		box.sever(agent.ErrLost)
	}()
	c := h.call(s.ID, bashCall("echo x"))
	if c.Status != client.CallError || c.Error.Code != client.CodeSessionLost || c.Metadata["reason"] != "lost" || len(box.runs) != 0 {
		t.Errorf("call %+v", c)
	}
}

func TestSessionIsLost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		break_ func(*house, *fakeBox)
		says   string
	}{
		{"agent dies", func(h *house, b *fakeBox) { b.die() }, "agent died"},
		{"protocol", func(h *house, b *fakeBox) { b.sever(fmt.Errorf("%w: bad frame", agent.ErrViolation)) }, "broke the control protocol"},
		{"no connection", func(h *house, b *fakeBox) {
			b.mu.Lock()
			b.refuse = agent.ErrLost
			b.mu.Unlock()
			b.sever(agent.ErrLost)
		}, "connection to its agent was lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			h.open()
			s := h.create(alice, client.SessionCreate{Name: "n"})
			box := h.host.box(s.ID)
			c := h.background(s.ID, "echo so far; hold")
			testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
			testrig.Eventually(t, "its output is here", func() bool {
				return h.arrived(c.ID) == 3
			})
			tt.break_(h, box)
			done := h.finished(c.ID)
			if done.Status != client.CallError || done.Error.Code != client.CodeSessionLost || done.Printed() != "so\n" || done.Metadata["reason"] != "lost" {
				t.Errorf("call %+v %+v", done, done.Error)
			}
			testrig.Eventually(t, "the session is lost", func() bool {
				got, err := h.m.Get(t.Context(), alice, s.ID)
				return err == nil && got.State == client.SessionLost && strings.Contains(got.Reason, tt.says)
			})
			if h.host.box(s.ID) != nil {
				t.Error("the sandbox was not removed")
			}
			if _, err := h.m.calls.Call(t.Context(), alice, s.ID, bashCall("x"), call.Options{}); codeOfErr(err) != client.CodeSessionLost {
				t.Errorf("a call in it: %v", err)
			}
			if h.output(c.ID) != "so\n" {
				t.Error("the output is gone")
			}
			h.create(alice, client.SessionCreate{Name: "n"}) // the name is free
			if held, _, err := h.store.Leases(t.Context()); err != nil || len(held) != 1 {
				t.Errorf("leases %v, %v", held, err)
			}
		})
	}
}

func TestAgentThatDoesNotKeepTheDeadline(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes as long as two grace periods")
	}
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	box.mu.Lock()
	box.stubborn = true
	box.mu.Unlock()
	start := time.Now()
	c := h.call(s.ID, with(bashCall("hold"), func(r *client.CallCreate) { r.TimeoutMillis = 10 }))
	if c.Status != client.CallError || c.Error.Code != client.CodeSessionLost || time.Since(start) < 2*sandbox.Grace {
		t.Errorf("after %s: %+v", time.Since(start), c)
	}
}

func TestTransfer(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c, err := h.m.Files.Upload(t.Context(), alice, s.ID, "dir/file", 0o755, strings.NewReader("hello"))
	if err != nil || c.Output != "hello" || c.Tool != "file_put" || !strings.Contains(string(c.Input), `"mode":493`) {
		t.Errorf("upload %+v, %v", c, err)
	}
	if n := len(mustReadDir(t, h.m.cfg.OutputDir+"/"+s.ID)); n != 0 {
		t.Errorf("%d files are left of the upload", n)
	}
	r, n, err := h.m.Files.Download(t.Context(), alice, s.ID, "dir/file")
	if err != nil || n != int64(len("content of dir/file")) {
		t.Fatalf("download %d, %v", n, err)
	}
	r.Close()
	set := testSettings()
	set.Truncate.SpillFile = 3
	h.m.Reload(set)
	if _, err := h.m.Files.Upload(t.Context(), alice, s.ID, "f", 0, strings.NewReader("hello")); codeOfErr(err) != client.CodeQuotaExceeded {
		t.Errorf("too large an upload: %v", err)
	}
	if n := h.m.live()[0].calls.Spilled.Load(); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
	h.host.fail("prepare", &run.Error{Code: run.CodeInvalidPath, Message: "x"})
	if _, _, err := h.m.Files.Download(t.Context(), alice, s.ID, "f"); codeOfErr(err) != client.CodeInvalidPath {
		t.Errorf("download of nothing: %v", err)
	}
}
