package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// usageOfTenant asks anew, whatever was asked a moment ago.
func (h *house) usageOfTenant(name string) client.TenantUsage {
	h.t.Helper()
	h.m.Usage.usage.mu.Lock()
	h.m.Usage.usage.at = time.Time{}
	h.m.Usage.usage.mu.Unlock()
	list, err := h.m.Usage.Usage(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, u := range list {
		if u.Tenant == name {
			return u
		}
	}
	h.t.Fatalf("no tenant %s in %v", name, list)
	return client.TenantUsage{}
}

// withoutRoom leaves out what is left on this host.
func withoutRoom(u client.TenantUsage) client.TenantUsage {
	u.MoreSessions, u.MoreBound = 0, ""
	return u
}

// TestUsage: what a tenant used is what its sessions used, and stays counted when
// they are over.
func TestUsage(t *testing.T) {
	h := newHouse(t)
	h.set.Tenants = map[string]Tenant{"idle": {}, "a": {MaxSessions: 2, MaxCalls: 9, Records: 1 << 20}}
	h.set.Records = 2 << 20
	h.open()
	one := h.create(alice, client.SessionCreate{})
	two := h.create(alice, client.SessionCreate{})
	other := h.create(bob, client.SessionCreate{})
	box := h.host.box(one.ID)
	box.cpu.Store(1000)
	box.io.Store(300)
	box.oom.Store(2)
	box.memory.Store(10)
	box.disk.Store(3)
	h.host.box(two.ID).memory.Store(20)
	h.host.box(two.ID).disk.Store(4)
	h.host.box(other.ID).memory.Store(5)
	h.m.sessions[two.ID].calls.Spilled.Store(77)
	running := h.background(two.ID, "hold")
	testrig.Eventually(t, "the command holds", func() bool { return h.host.box(two.ID).holding.Load() == 1 })

	waiting, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = h.m.CreateQueued(waiting, alice, client.SessionCreate{Queue: client.Duration(time.Hour)}, nil)
	})
	h.queueing("a", 1)
	if got, want := withoutRoom(h.usageOfTenant("a")), (client.TenantUsage{
		Tenant: "a", Sessions: 2, Queued: 1, Calls: 1, CPUMillis: 1014, MemoryBytes: 30, DiskBytes: 77, LayerBytes: 7, RecordBytes: int64(len(running.Input)+len(`{"set":""}`+running.ToolSet)) + 2<<10,
		IOBytes: 300, OOMKills: 2, MaxSessions: 2, MaxCalls: 9, MaxRecordBytes: 1 << 20,
	}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	leave()
	wg.Wait()
	if got, want := withoutRoom(h.usageOfTenant("b")), (client.TenantUsage{Tenant: "b", Sessions: 1, CPUMillis: 7, MemoryBytes: 5, MaxRecordBytes: 2 << 20}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := withoutRoom(h.usageOfTenant("idle")), (client.TenantUsage{Tenant: "idle", MaxRecordBytes: 2 << 20}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}

	box.cpu.Store(1500) // used after the last look
	if _, err := h.m.End(t.Context(), alice, one.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	h.host.box(two.ID).release()
	h.finished(running.ID)
	if got, want := withoutRoom(h.usageOfTenant("a")), (client.TenantUsage{
		Tenant: "a", Sessions: 1, CPUMillis: 1514, MemoryBytes: 20, DiskBytes: 77, LayerBytes: 4, RecordBytes: h.kept("a"),
		IOBytes: 300, OOMKills: 2, MaxSessions: 2, MaxCalls: 9, MaxRecordBytes: 1 << 20,
	}); got != want {
		t.Errorf("after the end of one: got %+v, want %+v", got, want)
	}
}

// TestUsageNeverFalls: counters that cannot be read, or that lie, take nothing away.
func TestUsageNeverFalls(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	box.cpu.Store(100)
	box.memory.Store(9)
	for _, tt := range []struct {
		name         string
		do           func()
		cpu, io, mem int64
	}{
		{"as it is", func() {}, 107, 0, 9},
		{"a counter falls", func() { box.cpu.Store(-1000); box.io.Store(-5) }, 107, 0, 9},
		{"and rises again, to less than it was", func() { box.cpu.Store(50) }, 107, 0, 9},
		{"and beyond", func() { box.cpu.Store(110); box.io.Store(3) }, 117, 3, 9},
		{"the sandbox cannot be asked", func() { h.host.fail("usage", errors.New("gone")) }, 117, 3, 0},
		{"it can again", func() { h.host.fail("usage", nil); box.cpu.Store(120) }, 127, 3, 9},
	} {
		tt.do()
		got := h.usageOfTenant("a")
		if got.CPUMillis != tt.cpu || got.IOBytes != tt.io || got.MemoryBytes != tt.mem {
			t.Errorf("%s: got %+v, want cpu %d, io %d, memory %d", tt.name, got, tt.cpu, tt.io, tt.mem)
		}
	}
}

// TestUsageAfterRestart: the new daemon counts from its own beginning; what was
// used before was the old one's to count.
func TestUsageAfterRestart(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	h.host.box(s.ID).cpu.Store(5000)
	h.stop()
	h.open()
	if got := h.usageOfTenant("a"); got.CPUMillis != 0 || got.Sessions != 1 {
		t.Errorf("after a restart: got %+v, want no CPU time yet", got)
	}
	h.host.box(s.ID).cpu.Store(5600)
	if got := h.usageOfTenant("a"); got.CPUMillis != 600 {
		t.Errorf("got %d ms, want 600", got.CPUMillis)
	}
}

// TestUsageIsFresh: asking often reads the cgroups once a second.
func TestUsageIsFresh(t *testing.T) {
	h := newHouse(t)
	h.open()
	h.create(alice, client.SessionCreate{})
	asked := func() (n int) {
		h.host.mu.Lock()
		defer h.host.mu.Unlock()
		for _, op := range h.host.log {
			if op == "usage" {
				n++
			}
		}
		return n
	}
	before := asked()
	h.usageOfTenant("a")
	h.m.Usage.usage.mu.Lock()
	h.m.Usage.usage.at = time.Now().Add(time.Hour) // however long this takes
	h.m.Usage.usage.mu.Unlock()
	list, err := h.m.Usage.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := asked() - before; n != 1 {
		t.Errorf("two questions at once were asked %d times", n)
	}
	list[0].Tenant = "changed by who got it"
	if again, _ := h.m.Usage.Usage(t.Context()); again[0].Tenant != "a" {
		t.Errorf("got %+v", again)
	}
}

// TestUsageIsBounded: when time is up, sessions that were not asked count with
// what they had.
func TestUsageIsBounded(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	h.host.box(s.ID).memory.Store(40)
	h.usageOfTenant("a")
	h.host.box(s.ID).memory.Store(50)
	h.host.box(s.ID).cpu.Store(50)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if got := h.m.Usage.collectUsage(late); len(got) != 1 || got[0].MemoryBytes != 40 || got[0].CPUMillis != 7 {
		t.Errorf("got %+v, want what was seen last", got)
	}
	if got := h.usageOfTenant("a"); got.MemoryBytes != 50 || got.CPUMillis != 57 {
		t.Errorf("got %+v, want what is", got)
	}
}

// BenchmarkUsage is one collection over 1,000 sessions, without the kernel's part.
func BenchmarkUsage(b *testing.B) {
	m := &Usage{roster: newRoster(new(daemon))}
	m.settings.Store(&Settings{})
	calls := call.New(call.Config{Context: b.Context()}, m)
	host := newFakeHost()
	for i := range 1000 {
		s := &Session{daemon: m.daemon, tenant: m.tenant(fmt.Sprint("t", i%10)), sb: &fakeBox{host: host}, calls: calls.Group(call.In{Context: b.Context()})}
		s.gauges.sandbox, s.gauges.used = s.sandbox, &s.tenant.used
		m.sessions[fmt.Sprint(i)] = s
	}
	for b.Loop() {
		host.log = host.log[:0]
		m.collectUsage(b.Context())
	}
}
