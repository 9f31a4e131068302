package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// TestDaemonDiesInTheMiddleOfOutput is the promise of the manager: whatever the
// moment, every line is there once, and nothing runs twice.
func TestDaemonDiesInTheMiddleOfOutput(t *testing.T) {
	h := newHouse(t)
	h.open()
	const sessions = 20
	var ids []string
	boxes := make(map[string]*fakeBox)
	for i := range sessions {
		s := h.create(alice, client.SessionCreate{})
		command := "lines 300 2"
		if i%2 == 0 { // long enough for a file
			command = "big 300000; lines 100 2; big 300000"
		}
		c := h.background(s.ID, command)
		ids = append(ids, c.ID)
		box := h.host.box(s.ID)
		boxes[c.ID] = box
		testrig.Eventually(t, "the command runs", func() bool {
			box.mu.Lock()
			defer box.mu.Unlock()
			return len(box.runs) == 1
		})
	}
	for range 4 {
		time.Sleep(60 * time.Millisecond)
		h.kill()
		h.open()
	}
	digits := strings.Repeat("0123456789abcde\n", 4096)
	var big strings.Builder
	for n := 300000; n > 0; n -= len(digits) {
		big.WriteString(digits[:min(n, len(digits))])
	}
	for i, id := range ids {
		c := h.finished(id)
		if c.Status != client.CallCompleted || c.IsError {
			t.Errorf("call %d: %v %v", i, c.Status, c.Error)
			continue
		}
		want := numberedLines(300)
		if i%2 == 0 {
			want = big.String() + numberedLines(100) + big.String()
		}
		if got := h.output(id); got != want {
			t.Errorf("call %d: %d bytes, want %d", i, len(got), len(want))
		}
		if n := len(boxes[id].runs); n != 1 {
			t.Errorf("call %d ran %d times", i, n)
		}
	}
}

func TestWhatTheNextDaemonDoes(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Name: "n", Limits: client.Limits{Calls: 3}, Token: true})
	box := h.host.box(s.ID)
	finished := h.background(s.ID, "echo finished; hold; exit 4")
	unknown := h.background(s.ID, "echo unknown; hold")
	running := h.background(s.ID, "echo running; hold")
	testrig.Eventually(t, "three hold", func() bool { return box.holding.Load() == 3 })
	queued := h.background(s.ID, "echo queued")
	h.kill()
	// While no daemon runs: one call ends, the agent forgets one, and it has one
	// that no daemon knows of.
	box.mu.Lock()
	box.calls[unknown.ID].stop("aborted")
	delete(box.calls, unknown.ID)
	stray := newFakeCall(box, box.calls[finished.ID].req)
	stray.id = "call_stray"
	box.calls[stray.id] = stray
	box.mu.Unlock()
	go stray.work()
	testrig.Eventually(t, "three hold", func() bool { return box.holding.Load() == 3 })
	box.mu.Lock()
	box.calls[finished.ID].stop("aborted")
	box.mu.Unlock()
	testrig.Eventually(t, "one has ended", func() bool {
		box.mu.Lock()
		defer box.mu.Unlock()
		c := box.calls[finished.ID]
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.outcome != nil
	})
	h.open()
	if c := h.finished(finished.ID); c.Status != client.CallCompleted || c.Output != "finished\naborted" {
		t.Errorf("finished: %+v", c)
	}
	if c := h.finished(unknown.ID); c.Status != client.CallError || c.Error.Code != client.CodeSessionLost || c.Metadata["reason"] != "lost" {
		t.Errorf("unknown: %+v", c)
	}
	if c := h.finished(queued.ID); c.Status != client.CallError || c.Error.Code != client.CodeAborted || !strings.Contains(c.Error.Message, "before the call ran") {
		t.Errorf("queued: %+v", c)
	}
	testrig.Eventually(t, "the stray call is gone", func() bool {
		box.mu.Lock()
		defer box.mu.Unlock()
		return box.calls["call_stray"] == nil
	})
	// It can be aborted, read and found by its session's name as before.
	if c, err := h.m.calls.AbortCall(t.Context(), alice, running.ID); err != nil || c.Output != "running\naborted" {
		t.Errorf("running: %+v, %v", c, err)
	}
	got, err := h.m.Get(t.Context(), alice, "n")
	if err != nil || got.State != client.SessionReady || got.Usage.Calls != 4 {
		t.Errorf("session %+v, %v", got, err)
	}
	if p, err := h.m.TokenSession(t.Context(), s.Token); err != nil || p.Session != s.ID || p.SessionName != "n" || p.Tenant != "a" {
		t.Errorf("token: %+v %v", p, err)
	}
	if c := h.call(s.ID, bashCall("echo next")); c.Output != "next\n" {
		t.Errorf("next: %+v", c)
	}
	if n := len(box.runs); n != 4 {
		t.Errorf("%d runs, want 4", n)
	}
}

// TestJournalEndsBeforeTheCallBegan: a call that runs, or has ended, in the sandbox is on record
// as pending, since the end of the journal is lost. It is not said that it did not run.
func TestJournalEndsBeforeTheCallBegan(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, "[permission.bash]\n\"*\" = \"allow\"\n\"echo asked*\" = \"ask\"\n")
	h.open()
	s := h.create(alice, client.SessionCreate{Limits: client.Limits{Calls: 4}})
	box := h.host.box(s.ID)
	running := h.background(s.ID, "echo running; hold")
	ended := h.background(s.ID, "echo ended; hold")
	waits, asked := h.waiting(s.ID, "echo asked")
	lost := h.create(alice, client.SessionCreate{})
	gone := h.background(lost.ID, "echo gone; hold")
	testrig.Eventually(t, "all hold", func() bool { return box.holding.Load() == 2 && h.host.box(lost.ID).holding.Load() == 1 })
	h.kill()
	h.host.box(lost.ID).die()
	box.mu.Lock()
	box.calls[ended.ID].stop("by itself")
	box.mu.Unlock()
	st, err := store.Open(store.Config{Path: filepath.Join(h.dir, "toold.db"), Log: h.log})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{running.ID, ended.ID, gone.ID} {
		if err := st.Write(func(tx *store.Tx) error { return tx.RequeueCall(id) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	h.open()
	if c := h.finished(ended.ID); c.Status != client.CallCompleted || c.Output != "ended\nby itself" || c.Time.Started == nil {
		t.Errorf("ended: %+v, %v", c, c.Error)
	}
	if c, err := h.m.calls.GetCall(t.Context(), alice, running.ID); err != nil || c.Status != client.CallRunning || c.Time.Started == nil {
		t.Errorf("running: %+v, %v", c, err)
	}
	if c := h.finished(gone.ID); c.Error == nil || c.Error.Code != client.CodeSessionLost || strings.Contains(c.Error.Message, "before the call ran") {
		t.Errorf("of a session that is lost: %+v", c.Error)
	}
	if c, err := h.m.calls.AbortCall(t.Context(), alice, running.ID); err != nil || c.Output != "running\naborted" {
		t.Errorf("running: %+v, %v", c, err)
	}
	h.answer(asked, once)
	if c := h.finished(waits.ID); c.Output != "asked\n" {
		t.Errorf("what waited for its approval: %+v, %v", c, c.Error)
	}
	if n := len(box.runs); n != 3 {
		t.Errorf("%d runs, want 3", n)
	}
}

func TestSandboxesThatDiedWithoutADaemon(t *testing.T) {
	h := newHouse(t)
	h.open()
	dead := h.create(alice, client.SessionCreate{})
	deaf := h.create(alice, client.SessionCreate{})
	creating := h.create(alice, client.SessionCreate{})
	ending := h.create(alice, client.SessionCreate{})
	mute := h.create(alice, client.SessionCreate{})
	c := h.background(dead.ID, "echo so far; hold")
	big := h.background(dead.ID, "big 100000; hold")
	box := h.host.box(dead.ID)
	testrig.Eventually(t, "both hold", func() bool { return box.holding.Load() == 2 })
	live := func(id string) *Session {
		h.m.mu.RLock()
		defer h.m.mu.RUnlock()
		return h.m.sessions[id]
	}
	for id, state := range map[string]client.SessionState{creating.ID: client.SessionCreating, ending.ID: client.SessionEnding} {
		if err := live(id).write("", func(r *store.Session) error { r.State = state; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	orphan := &fakeBox{host: h.host, rec: sandbox.Record{ID: sandbox.ID{SessionID: "ses_orphan", Owner: "me"}}, died: make(chan struct{})}
	foreign := &fakeBox{host: h.host, rec: sandbox.Record{ID: sandbox.ID{SessionID: "ses_foreign", Owner: "other"}}, died: make(chan struct{})}
	h.host.mu.Lock()
	h.host.boxes["ses_orphan"], h.host.boxes["ses_foreign"] = orphan, foreign
	h.host.mu.Unlock()
	if err := os.Mkdir(filepath.Join(h.dir, "output", "ses_nobody"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.kill()
	box.die()
	for _, b := range h.host.boxes {
		if b.rec.SessionID == deaf.ID {
			b.refuse = errors.New("no answer")
		}
	}
	h.open()
	for _, tt := range []struct {
		id, says string
		state    client.SessionState
	}{
		{dead.ID, "ended while no daemon ran", client.SessionLost},
		{deaf.ID, "does not answer", client.SessionLost},
		{creating.ID, "while it was made", client.SessionLost},
		{ending.ID, "", client.SessionEnded},
		{mute.ID, "", client.SessionReady},
	} {
		if s, err := h.m.Get(t.Context(), alice, tt.id); err != nil || s.State != tt.state || !strings.Contains(s.Reason, tt.says) {
			t.Errorf("%s: %v %q, %v, want %v", tt.says, s.State, s.Reason, err, tt.state)
		}
	}
	if done := h.finished(c.ID); done.Error == nil || done.Error.Code != client.CodeSessionLost {
		t.Errorf("call %+v", done)
	}
	if done := h.finished(big.ID); done.Metadata["output_path"] == nil || !strings.HasSuffix(beforeMark(t, done.Printed()), "abcde\n") {
		t.Errorf("call %+v", done.Metadata)
	}
	if out := h.output(big.ID); len(out) == 0 || len(out) > 100000 {
		t.Errorf("%d bytes of output are kept", len(out))
	}
	if h.host.box("ses_orphan") != nil || h.host.box("ses_foreign") == nil || len(h.host.boxes) != 2 {
		t.Errorf("boxes %v", h.host.boxes)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "output", "ses_nobody")); err == nil {
		t.Error("outputs of nobody are left")
	}
	if held, _, err := h.store.Leases(t.Context()); err != nil || len(held) != 1 {
		t.Errorf("leases %v, %v", held, err)
	}
}

func TestSplitCallOverADaemonsDeath(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	zero := int64(0)
	for _, command := range []string{"echo a; err b; hold; echo c; err d", "hold; echo a; err b; echo c; err d"} {
		c, err := h.m.calls.Call(t.Context(), alice, s.ID, with(bashCall(command), func(r *client.CallCreate) { r.WaitMillis = &zero }), call.Options{Split: true})
		if err != nil {
			t.Fatal(err)
		}
		box := h.host.box(s.ID)
		testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
		h.kill()
		h.open()
		box.release()
		h.finished(c.ID)
		for stream, want := range map[string]string{"": "a\nb\nc\nd\n", "stdout": "a\nc\n", "stderr": "b\nd\n"} {
			r, _, err := h.m.calls.Output(t.Context(), alice, c.ID, client.OutputQuery{Stream: stream})
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			var b strings.Builder
			_, err = io.Copy(&b, r)
			if r.Close(); err != nil {
				t.Error(err)
			}
			if b.String() != want {
				t.Errorf("%s: %q: %q, want %q", command, stream, b.String(), want)
			}
		}
	}
}

func TestOutputBeyondTheCapOverADaemonsDeath(t *testing.T) {
	h := newHouse(t)
	h.set.Truncate.SpillFile = 200000
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c := h.background(s.ID, "big 900000; hold; echo end")
	box := h.host.box(s.ID)
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	h.kill()
	h.open()
	box.release()
	done := h.finished(c.ID)
	if done.Metadata["total_bytes"] != float64(900004) && done.Metadata["total_bytes"] != int64(900004) {
		t.Errorf("metadata %v", done.Metadata)
	}
	if !strings.Contains(done.Output, "\nend\n[") || done.Metadata["output_incomplete"] == nil || len(h.output(c.ID)) != 200000 {
		t.Errorf("metadata %v, %d bytes kept", done.Metadata, len(h.output(c.ID)))
	}
}

func TestLeavingAndDraining(t *testing.T) {
	h := newHouse(t)
	m := h.build()
	if m.Ready(t.Context()).Status != "starting" {
		t.Errorf("before Start: %+v", m.Ready(t.Context()))
	}
	if _, err := m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeOverloaded {
		t.Errorf("create before Start: %v", err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	short := h.background(s.ID, "sleep 100; echo short")
	long := h.background(s.ID, "hold; echo long")
	var wg sync.WaitGroup
	wg.Go(func() { // a client that waits gets an answer
		c, err := m.calls.Call(context.Background(), alice, s.ID, bashCall("hold"), call.Options{})
		if err != nil || c.Status != client.CallRunning {
			t.Errorf("waiting client: %+v, %v", c, err)
		}
	})
	testrig.Eventually(t, "both hold", func() bool { return box.holding.Load() == 2 })
	done := make(chan error, 1)
	m.drain = time.Hour
	ctx, enough := context.WithCancel(t.Context())
	go func() { done <- m.Close(ctx) }()
	testrig.Eventually(t, "it drains", func() bool { return m.Ready(t.Context()).Status == "draining" })
	if _, err := m.calls.Call(t.Context(), alice, s.ID, bashCall("x"), call.Options{}); codeOfErr(err) != client.CodeOverloaded {
		t.Errorf("call while draining: %v", err)
	}
	h.finished(short.ID)
	select {
	case err := <-done:
		t.Fatalf("it did not wait for the others: %v", err)
	default:
	}
	enough()
	if err := <-done; err != nil {
		t.Error(err)
	}
	wg.Wait()
	if row, err := h.store.Call(t.Context(), short.ID); err != nil || row.Status != client.CallCompleted {
		t.Errorf("the short call: %+v, %v", row, err)
	}
	if row, err := h.store.Call(t.Context(), long.ID); err != nil || row.Status != client.CallRunning {
		t.Errorf("the long call: %+v, %v", row, err)
	}
	if box.dead() {
		t.Error("the sandbox was ended")
	}
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	h.open()
	box.release()
	if c := h.finished(long.ID); c.Output != "long\n" {
		t.Errorf("the long call: %+v", c)
	}
}

func TestTenants(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Name: "mine", Token: true})
	c := h.call(s.ID, bashCall("echo x"))
	live := h.background(s.ID, "hold")
	unknownSession, unknownCall := h.store.NewID("ses_"), h.store.NewID("call_")
	verbs := map[string]func(p auth.Principal, session, call string) error{
		"get": func(p auth.Principal, s, c string) error { _, err := h.m.Get(t.Context(), p, s); return err },
		"patch": func(p auth.Principal, s, c string) error {
			_, err := h.m.Patch(t.Context(), p, s, client.SessionPatch{})
			return err
		},
		"end": func(p auth.Principal, s, c string) error {
			_, err := h.m.End(t.Context(), p, s, client.EndOptions{})
			return err
		},
		"call": func(p auth.Principal, s, c string) error {
			_, err := h.m.calls.Call(t.Context(), p, s, bashCall("x"), call.Options{})
			return err
		},
		"list": func(p auth.Principal, s, c string) error {
			_, err := h.m.calls.ListCalls(t.Context(), p, s, client.CallQuery{})
			return err
		},
		"get call": func(p auth.Principal, s, c string) error { _, err := h.m.calls.GetCall(t.Context(), p, c); return err },
		"abort": func(p auth.Principal, s, c string) error {
			_, err := h.m.calls.AbortCall(t.Context(), p, c)
			return err
		},
		"output": func(p auth.Principal, s, c string) error {
			_, _, err := h.m.calls.Output(t.Context(), p, c, client.OutputQuery{})
			return err
		},
		"upload": func(p auth.Principal, s, c string) error {
			_, err := h.m.Files.Upload(t.Context(), p, s, "x", 0, strings.NewReader(""))
			return err
		},
		"download": func(p auth.Principal, s, c string) error {
			_, _, err := h.m.Files.Download(t.Context(), p, s, "x")
			return err
		},
		"events": func(p auth.Principal, s, c string) error {
			_, err := h.m.Events.Events(t.Context(), p, event.Filter{Session: s})
			return err
		},
		"tools": func(p auth.Principal, s, c string) error {
			_, err := h.m.Tools.Tools(t.Context(), p, client.ToolQuery{Session: s})
			return err
		},
	}
	for name, verb := range verbs {
		for _, call := range []string{c.ID, live.ID} {
			foreign, unknown := verb(bob, s.ID, call), verb(bob, unknownSession, unknownCall)
			if codeOfErr(foreign) != client.CodeNotFound {
				t.Errorf("%s: %v", name, foreign)
				continue
			}
			text := strings.NewReplacer(s.ID, "ID", call, "ID").Replace(inside(foreign))
			want := strings.NewReplacer(unknownSession, "ID", unknownCall, "ID").Replace(inside(unknown))
			if text != want {
				t.Errorf("%s: a foreign id is answered by %s, an unknown one by %s", name, text, want)
			}
			if err := verb(bob, "mine", call); codeOfErr(err) != client.CodeNotFound {
				t.Errorf("%s by name: %v", name, err)
			}
		}
	}
	if l, err := h.m.List(t.Context(), bob, client.SessionQuery{All: true}); err != nil || len(l.Items) != 0 {
		t.Errorf("b sees %v, %v", l.Items, err)
	}
	// An administrator acts for the tenant that the server put in.
	if _, err := h.m.Get(t.Context(), auth.Principal{Tenant: "a", Admin: true}, "mine"); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"doctor": second(h.doctor().Doctor(t.Context(), alice, false)), "gc": second(h.m.Collector.GC(t.Context(), alice, client.GCRequest{DryRun: true})),
	} {
		if codeOfErr(err) != client.CodeForbidden {
			t.Errorf("%s for everyone: %v", name, err)
		}
	}

	agent, err := h.m.TokenSession(t.Context(), s.Token)
	if err != nil || agent.Session != s.ID || agent.Tenant != "a" {
		t.Fatalf("token: %+v %v", agent, err)
	}
	agent.Admin = true
	for _, name := range []string{"call", "list", "get call", "abort", "output", "tools"} {
		if err := verbs[name](agent, s.ID, c.ID); err != nil {
			t.Errorf("token: %s: %v", name, err)
		}
	}
	for _, name := range []string{"get", "patch", "end", "events"} {
		if err := verbs[name](agent, s.ID, c.ID); codeOfErr(err) != client.CodeForbidden {
			t.Errorf("token: %s: %v", name, err)
		}
	}
	other := h.create(alice, client.SessionCreate{})
	foreign := h.call(other.ID, bashCall("echo x"))
	for _, name := range []string{"call", "list", "get call", "abort", "output", "tools"} {
		if err := verbs[name](agent, other.ID, foreign.ID); codeOfErr(err) != client.CodeNotFound {
			t.Errorf("token in another session: %s: %v", name, err)
		}
	}
	if _, err := h.m.Create(t.Context(), agent, client.SessionCreate{}); codeOfErr(err) != client.CodeForbidden {
		t.Errorf("token: create: %v", err)
	}
	for _, bad := range []string{"", "toold_", s.Token + "x", s.Token[:len(s.Token)-1], strings.Replace(s.Token, s.ID[4:], other.ID[4:], 1), other.ID} {
		if _, err := h.m.TokenSession(t.Context(), bad); codeOfErr(err) != client.CodeForbidden {
			t.Errorf("token %q was taken", bad)
		}
	}
}

// inside shows every field of a *fault.Error or *client.Error.
func inside(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return fmt.Sprintf("%q %q %q", f.Kind, f.Err, f.Hint)
	}
	ce, _ := errors.AsType[*client.Error](err)
	return fmt.Sprintf("%#v", ce)
}

func second[T any](_ T, err error) error { return err }

func TestEventStreams(t *testing.T) {
	h := newHouse(t)
	h.open()
	all, err := h.m.Events.Events(t.Context(), alice, event.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := h.m.Events.Events(t.Context(), bob, event.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	s := h.create(alice, client.SessionCreate{})
	outputs, err := h.m.Events.Events(t.Context(), alice, event.Filter{Session: s.ID, Type: client.EventCallOutput})
	if err != nil {
		t.Fatal(err)
	}
	c := h.call(s.ID, bashCall("progress; echo hello"))
	var types, ids []string
	for range 5 {
		e := <-all
		types = append(types, e.Type)
		if e.ID != "" {
			ids = append(ids, e.ID)
		}
		if e.Tenant != "a" || e.Session != s.ID || e.Time.IsZero() {
			t.Errorf("event %+v", e)
		}
	}
	if got := strings.Join(types, " "); got != "session.created call.pending call.running call.metadata call.completed" {
		t.Errorf("events %s", got)
	}
	if e := <-outputs; e.Call != c.ID || string(e.Data) != `{"offset":0,"text":"hello\n"}` {
		t.Errorf("output event %s", e.Data)
	}
	select {
	case e := <-foreign:
		t.Errorf("another tenant got %+v", e)
	default:
	}
	// Who comes back hears what was missed, then what is new.
	again, err := h.m.Events.Events(t.Context(), alice, event.Filter{After: ids[1], Type: "call.*"})
	if err != nil {
		t.Fatal(err)
	}
	h.call(s.ID, bashCall("echo again"))
	var got []string
	for range 5 {
		got = append(got, (<-again).Type)
	}
	if strings.Join(got, " ") != "call.running call.completed call.pending call.running call.completed" {
		t.Errorf("resumed: %v", got)
	}
	if _, err := h.m.Events.Events(t.Context(), alice, event.Filter{After: "evt_x"}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("bad id: %v", err)
	}
	// A reader that does not read is let go, and nobody waits for it.
	for range event.Buffer {
		h.m.hub.Publish([]client.Event{{Tenant: "b", Type: "x"}, {Tenant: "b", Type: "x"}})
	}
	n := 0
	for range foreign {
		n++
	}
	if n > event.Buffer+1 {
		t.Errorf("the slow reader got %d events", n)
	}
	var last error
	for range event.MaxStreams + 1 {
		_, last = h.m.Events.Events(t.Context(), bob, event.Filter{})
	}
	if codeOfErr(last) != client.CodeOverloaded {
		t.Errorf("too many streams: %v", last)
	}
}

func TestSweep(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c := h.call(s.ID, bashCall("big 100000"))
	if h.m.live()[0].calls.Spilled.Load() != 100000 {
		t.Error("the output is not counted")
	}
	set := testSettings()
	set.Truncate.Keep, set.Retention = time.Nanosecond, time.Hour
	h.m.Reload(set)
	time.Sleep(5 * time.Millisecond)
	h.m.Collector.sweep(t.Context())
	if _, _, err := h.m.calls.Output(t.Context(), alice, c.ID, client.OutputQuery{}); codeOfErr(err) == "" {
		// The head is all that is left of it.
		t.Error("the output is still there")
	}
	if got := h.m.live()[0].calls.Spilled.Load(); got != 0 {
		t.Errorf("%d bytes are counted", got)
	}
	if _, err := h.m.calls.GetCall(t.Context(), alice, c.ID); err != nil {
		t.Errorf("the call went with its output: %v", err)
	}
	set.Retention = time.Nanosecond
	h.m.Reload(set)
	h.m.Collector.sweep(t.Context())
	if _, err := h.m.calls.GetCall(t.Context(), alice, c.ID); codeOfErr(err) != client.CodeNotFound {
		t.Errorf("the call is still there: %v", err)
	}
	if _, err := h.m.Get(t.Context(), alice, s.ID); err != nil {
		t.Errorf("the live session went, too: %v", err)
	}
}

// A session on another host is not lost by a network that is away for a while, nor by
// that at the start of a daemon.
func TestPatience(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	box.patience = time.Minute
	away := func() (back chan struct{}) {
		back = make(chan struct{})
		h.host.fail("dial", errors.New("no route to host"))
		go func() {
			defer close(back)
			time.Sleep(fakePatience + 500*time.Millisecond)
			h.host.fail("dial", nil)
		}()
		return back
	}
	lives := func(when string) {
		t.Helper()
		testrig.Eventually(t, "it works after "+when, func() bool {
			got, err := h.m.Get(t.Context(), alice, s.ID)
			if err != nil || got.State != client.SessionReady {
				t.Fatalf("%s: %+v, %v", when, got, err)
			}
			c := h.finished(h.background(s.ID, "echo hi").ID)
			return c.Status == client.CallCompleted && c.Output == "hi\n"
		})
	}
	back := away()
	box.sever(agent.ErrLost)
	<-back
	lives("the connection was lost")
	h.kill()
	back = away()
	h.open()
	<-back
	lives("the daemon was started")
}

func TestGC(t *testing.T) {
	h := newHouse(t)
	h.set.Retention = 0 // or the sweep at the start may be there first
	h.open()
	s := h.create(alice, client.SessionCreate{})
	h.host.mu.Lock()
	h.host.boxes["ses_x"] = &fakeBox{host: h.host, rec: sandbox.Record{ID: sandbox.ID{SessionID: "ses_x", Owner: "me"}}, died: make(chan struct{})}
	h.host.mu.Unlock()
	stray := filepath.Join(h.dir, "output", "stray")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		all, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{DryRun: dry})
		b, _ := json.Marshal(all)
		if err != nil || len(all) != 2 || all[0].Kind != "container" || all[0].Name != "ses_x" || all[1].Kind != "output" || all[0].Removed == dry || all[1].Removed == dry {
			t.Errorf("dry %v: %s, %v", dry, b, err)
		}
	}
	if h.host.box(s.ID) == nil || h.host.box("ses_x") != nil {
		t.Error("the wrong sandbox was removed")
	}
	if all, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{}); err != nil || len(all) != 0 {
		t.Errorf("again: %+v, %v", all, err)
	}
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.host.fail("list", errors.New("boom"))
	if _, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{}); codeOfErr(err) != client.CodeInternal || strings.Contains(err.Error(), "boom") {
		t.Errorf("fault: %v", err)
	}
	if _, err := os.Stat(stray); err == nil {
		t.Error("what else is garbage stays when a driver does not answer")
	}
	h.host.fail("list", nil)
}
