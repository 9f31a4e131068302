package session

import (
	"slices"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/testrig"
)

func TestAuditOfCalls(t *testing.T) {
	h, o, id := hooked(t)
	short := h.call(id, bashCall("echo x"))
	long := h.call(id, bashCall("big 200000"))
	if len(o.finished) != 2 || o.finished[0].ID != short.ID || o.finished[0].Status != client.CallCompleted || o.by[0].UID != alice.UID || o.by[0].Tenant != "a" {
		t.Fatalf("%+v by %+v", o.finished, o.by)
	}
	if want := sha([]byte("x\n")); o.hashes[0] != want {
		t.Errorf("hash of a short output: %x, want %x", o.hashes[0], want)
	}
	if want := sha([]byte(h.output(long.ID))); o.hashes[1] != want {
		t.Errorf("hash of a long output: %x, want %x", o.hashes[1], want)
	}
	o.fail = fault.Overloaded.Errorf("the audit log cannot be written").Next("free space")
	c := h.call(id, bashCall("echo y"))
	if c.Error == nil || c.Error.Code != client.CodeOverloaded || slices.Contains(h.host.box(id).runs, c.ID) {
		t.Errorf("a call without a record: %+v", c)
	}
}

// TestAuditOfTakenUpCalls: the end of a call of an earlier daemon is recorded,
// with the hash of all of its output.
func TestAuditOfTakenUpCalls(t *testing.T) {
	h, o, id := hooked(t)
	c := h.background(id, "big 300000; hold; echo end")
	testrig.Eventually(t, "the command holds", func() bool { return h.host.box(id).holding.Load() == 1 })
	h.kill()
	h.openAudited(o)
	h.host.box(id).release()
	h.finished(c.ID)
	n := len(o.finished) - 1
	if n < 0 || o.finished[n].ID != c.ID || o.by[n].Tenant != "a" || o.by[n].PID != 0 {
		t.Fatalf("%d records, by %+v", n+1, o.by)
	}
	if want := sha([]byte(h.output(c.ID))); o.hashes[n] != want {
		t.Errorf("hash %x, want %x", o.hashes[n], want)
	}
}
