package session

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/session/trees"
)

// TestDrain: while an admin drains the daemon no session begins, also none that waited for a place,
// and what is there goes on, until that ends.
func TestDrain(t *testing.T) {
	h := newHouse(t)
	h.set.Tenants = map[string]Tenant{"a": {MaxSessions: 1}}
	m := h.open()
	s := h.create(alice, client.SessionCreate{Key: "k"})
	waits := make(chan error, 1)
	go func() {
		_, err := m.CreateQueued(t.Context(), alice, client.SessionCreate{Queue: client.Duration(time.Hour)}, nil)
		waits <- err
	}()
	h.queueing("a", 1)
	h.drain(false)
	refused := func(err error) {
		t.Helper()
		if codeOfErr(err) != client.CodeOverloaded || !strings.Contains(err.Error(), "drains this daemon") {
			t.Errorf("refused with %v", err)
		}
	}
	refused(<-waits)
	_, err := m.Create(t.Context(), bob, client.SessionCreate{})
	refused(err)
	_, err = m.create(t.Context(), bob, client.SessionCreate{}, nil, trees.Seed{}) // was let in before
	refused(err)
	if again, err := m.Create(t.Context(), alice, client.SessionCreate{Key: "k"}); err != nil || again.ID != s.ID {
		t.Errorf("the session of a key: %+v, %v", again, err)
	}
	if c := h.call(s.ID, bashCall("echo x")); c.Status != client.CallCompleted {
		t.Errorf("a call: %+v", c)
	}
	if r := m.Ready(t.Context()); r.Status != "draining" || len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0], "toolctl drain --off") {
		t.Errorf("ready says %+v", r)
	}
	if u := h.usageOfTenant("a"); u.MoreSessions != 0 || !strings.Contains(u.MoreBound, "drains") {
		t.Errorf("there is room for %d more (%s)", u.MoreSessions, u.MoreBound)
	}
	h.drain(true)
	if r := m.Ready(t.Context()); r.Status != "ok" {
		t.Errorf("afterwards ready says %+v", r)
	}
	if _, err := m.Create(t.Context(), bob, client.SessionCreate{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func (h *house) drain(off bool) {
	h.t.Helper()
	if err := h.m.Door.Drain(root, off); err != nil {
		h.t.Error(err)
	}
}

// TestDrainedOnRecord: draining is in the audit log, once, and where it cannot be it is refused.
func TestDrainedOnRecord(t *testing.T) {
	h := newHouse(t)
	o := &told{}
	h.openAudited(o)
	h.drain(false)
	h.drain(false) // which it is
	h.drain(true)
	if want := []string{"drain", "undrain"}; !slices.Equal(o.admins, want) || o.by[0].UID != root.UID {
		t.Errorf("on record is %q by %+v, want %q", o.admins, o.by, want)
	}
	o.fail = errors.New("the disk is full")
	if err := h.m.Door.Drain(root, false); !errors.Is(err, o.fail) || h.m.Ready(t.Context()).Status != "ok" {
		t.Errorf("without a record: %v, %+v", err, h.m.Ready(t.Context()))
	}
}

// TestDrainedAgain: a daemon that was drained and is started again before it has run empty lets
// nobody in, however it ended; after that it works.
func TestDrainedAgain(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	h.drain(false)
	for _, end := range []func(){h.stop, h.kill} {
		end()
		m := h.open()
		if r := m.Ready(t.Context()); r.Status != "draining" {
			t.Fatalf("after a restart ready says %+v", r)
		}
	}
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h.open()
	h.create(alice, client.SessionCreate{})
	h.drain(false)
	h.drain(true)
	h.kill()
	h.open()
	h.create(alice, client.SessionCreate{})
}

// TestMoreSessions: how many more fit here is what the tightest bound leaves.
func TestMoreSessions(t *testing.T) {
	h := newHouse(t)
	h.set.Tenants = map[string]Tenant{"few": {MaxSessions: 1}}
	h.set.Tenants["low"] = Tenant{MaxLimits: client.Limits{Memory: 512 << 20}}
	h.set.Limits.Memory, h.set.MaxLimits.Memory = 2<<30, 1<<30
	h.set.HostMemory = room.Floor{Bytes: 2 << 30}
	m := h.build()
	m.memory.look = func() (room.Volume, error) { return room.Volume{Free: 10<<30 + 5, Size: 32 << 30}, nil }
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	more := func(tenant string) (int, string) {
		for _, u := range m.Usage.collectUsage(t.Context()) {
			if u.Tenant == tenant {
				return u.MoreSessions, u.MoreBound
			}
		}
		t.Fatalf("no tenant %s", tenant)
		return 0, ""
	}
	if n, by := more("few"); n != 1 || by != "max_sessions" {
		t.Errorf("few: %d by %s", n, by)
	}
	m.tenant("many")
	if n, by := more("many"); n != 7 || by != "memory" { // 10 GiB without one and a half floors
		t.Errorf("many: %d by %s", n, by)
	}
	if n, by := more("low"); n != 14 || by != "memory" { // each may have half as much at most
		t.Errorf("low: %d by %s", n, by)
	}
	set := *m.settings.Load()
	set.Limits.PIDs = 100
	m.settings.Store(&set)
	s, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	h.host.box(s.ID).memory.Store(256 << 20)
	if n, by := more("many"); n != 6 || by != "memory" { // of 7 GiB the session may still take 768 MiB
		t.Errorf("beside a session: %d by %s", n, by)
	}
	h.host.leftMemory.Store(3 << 30)
	if n, by := more("many"); n != 2 || by != "memory" {
		t.Errorf("in a cgroup that has 3 GiB left: %d by %s", n, by)
	}
	h.host.leftPIDs.Store(250)
	if n, by := more("many"); n != 1 || by != "processes" {
		t.Errorf("in a cgroup that has 250 processes left: %d by %s", n, by)
	}
	h.host.leftMemory.Store(0)
	h.host.leftPIDs.Store(0)
	disk, err := room.At(m.disk.dir)
	if err != nil {
		t.Fatal(err)
	}
	set.Limits.Disk, set.DiskOvercommit = client.Size(disk.Size), 1
	m.settings.Store(&set)
	if n, by := more("many"); n != 0 || by != "disk" {
		t.Errorf("with a disk of the host's size: %d by %s", n, by)
	}
	set.Limits.Disk = client.Size(disk.Free / 4)
	m.settings.Store(&set)
	if n, by := more("many"); n != 3 && n != 4 || by != "disk" { // others write there too
		t.Errorf("with a disk of a quarter of what is free: %d by %s", n, by)
	}
	m.liveByID(s.ID).promised.Store(disk.Free / 4 * 2) // made with the first call that writes
	if n, by := more("many"); n != 1 && n != 2 || by != "disk" {
		t.Errorf("where half of it is for a session: %d by %s", n, by)
	}
}
