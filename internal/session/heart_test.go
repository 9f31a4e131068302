package session

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// TestAgentThatDoesNotAnswer: its session is lost, with its calls, and its sandbox
// removed; one that answers is asked again and again, and one without calls seldom.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	h := newHouse(t)
	m := h.build()
	m.beat = beat{every: 2 * time.Millisecond, idle: time.Hour, time: 100 * time.Millisecond}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	box.mu.Lock()
	box.patience = time.Millisecond
	box.mu.Unlock()
	c := h.background(s.ID, "echo begun; hold")
	pings := func() int {
		box.mu.Lock()
		defer box.mu.Unlock()
		return box.pings
	}
	testrig.Eventually(t, "it was asked ten times", func() bool { return pings() > 10 })
	box.release()
	if c := h.finished(c.ID); c.Error != nil {
		t.Fatal(c.Error)
	}
	live, err := m.find(alice, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, "nobody watches closely", func() bool {
		live.heart.mu.Lock()
		defer live.heart.mu.Unlock()
		return live.heart.calls == 0
	})
	c = h.background(s.ID, "echo begun; hold; echo more")
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	box.mu.Lock()
	box.deaf = true
	box.mu.Unlock()
	if c := h.finished(c.ID); c.Error == nil || c.Error.Code != client.CodeSessionLost || !strings.Contains(c.Error.Message, "its agent did not answer for 101ms") || c.Printed() != "begun\n" {
		t.Errorf("the call ended as %+v", c)
	}
	testrig.Eventually(t, "the session is lost", func() bool {
		s, err := m.Get(t.Context(), alice, s.ID)
		return err == nil && s.State == client.SessionLost && strings.Contains(s.Reason, "did not answer")
	})
	if h.host.box(s.ID) != nil {
		t.Error("its sandbox is left")
	}
}

// TestIdleAgentThatDoesNotAnswer: it is noticed without a call, in a session that never had one,
// in one that had, and in one that an earlier daemon has made.
func TestIdleAgentThatDoesNotAnswer(t *testing.T) {
	h := newHouse(t)
	patient := func() *Manager {
		m := h.build()
		m.beat = beat{every: time.Hour, idle: 2 * time.Millisecond, time: 100 * time.Millisecond}
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	patient()
	adopted := h.create(alice, client.SessionCreate{})
	h.kill()
	m := patient()
	fresh, used := h.create(alice, client.SessionCreate{}), h.create(alice, client.SessionCreate{})
	h.call(used.ID, bashCall("echo x"))
	for name, id := range map[string]string{"adopted": adopted.ID, "fresh": fresh.ID, "used": used.ID} {
		box := h.host.box(id)
		box.mu.Lock()
		asked := box.pings
		box.mu.Unlock()
		testrig.Eventually(t, name+" is asked again and again", func() bool {
			box.mu.Lock()
			defer box.mu.Unlock()
			return box.pings > asked+5
		})
		box.mu.Lock()
		box.deaf = true
		box.mu.Unlock()
		testrig.Eventually(t, name+" is lost", func() bool {
			s, err := m.Get(t.Context(), alice, id)
			return err == nil && s.State == client.SessionLost && strings.Contains(s.Reason, "did not answer")
		})
	}
}

// TestRealAgentStopped: the same with an agent that was stopped by a signal.
func TestRealAgentStopped(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	m.beat = beat{every: 50 * time.Millisecond, idle: time.Hour, time: 2 * time.Second}
	s, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	live, err := m.find(alice, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	pid := live.sb.Record().PID
	for _, busy := range []bool{true, false} {
		done := make(chan *client.Call, 1)
		ask := func(command string) {
			c, err := m.calls.Call(t.Context(), alice, s.ID, bashCall(command), call.Options{})
			if err != nil {
				t.Error(err)
			}
			done <- c
		}
		if busy {
			go ask("sleep 3600")
			testrig.Eventually(t, "the call runs", func() bool {
				list, err := m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{Status: client.CallRunning})
				return err == nil && len(list.Items) == 1
			})
		}
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if !busy {
			go ask("true")
		}
		select {
		case c := <-done:
			if c == nil || c.Error == nil || c.Error.Code != client.CodeSessionLost || !strings.Contains(c.Error.Message, "its agent did not answer") {
				t.Errorf("the call ended as %+v", c)
			}
		case <-time.After(time.Minute):
			t.Fatal("the call hangs")
		}
		testrig.Eventually(t, "the agent is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
		if !busy {
			return
		}
		if s, err = m.Create(t.Context(), alice, client.SessionCreate{}); err != nil {
			t.Fatal(err)
		}
		if live, err = m.find(alice, s.ID); err != nil {
			t.Fatal(err)
		}
		pid = live.sb.Record().PID
	}
}
