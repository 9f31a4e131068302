package session

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// padded is a call of bash whose input has about so many bytes.
func padded(command string, n int) client.CallCreate {
	return bashCall(command + strings.Repeat(" ", n))
}

// kept compares what is counted against a tenant with what its records take.
func (h *house) kept(name string) int64 {
	h.t.Helper()
	h.settled()
	all, err := h.store.RecordBytes(h.t.Context())
	if n := h.m.tenant(name).Kept.Load(); err != nil || n != all[name] {
		h.t.Errorf("%d bytes are counted against tenant %s, its records take %d, %v", n, name, all[name], err)
	}
	return all[name]
}

// TestInputsThatNeverRan: of a large input that was denied a hash stays, of a small
// one the whole, and a key still leads to either.
func TestInputsThatNeverRan(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{})
	for _, keyed := range []bool{false, true} {
		for _, n := range []int{10, 100_000} {
			r := padded(fmt.Sprintf("rm %v", keyed), n)
			if keyed {
				r.Key = fmt.Sprint("k", n)
			}
			c := h.call(s.ID, r)
			if c.Error == nil || c.Error.Code != client.CodeDenied || len(c.Input) < n {
				t.Fatalf("%+v", c)
			}
			row, err := h.store.Call(t.Context(), c.ID)
			if err != nil || (row.InputNotKept != nil) != (n > 10_000) || (row.Input == nil) != (n > 10_000) {
				t.Errorf("keyed %v, %d bytes: %d bytes and %v are kept, %v", keyed, n, len(row.Input), row.InputNotKept, err)
			}
			if !keyed {
				continue
			}
			if again := h.call(s.ID, r); again.ID != c.ID || again.Error == nil {
				t.Errorf("the key led to %+v", again)
			}
			other := padded("rm other", n)
			other.Key = r.Key
			if _, err := h.m.calls.Call(t.Context(), alice, s.ID, other, call.Options{}); codeOfErr(err) != client.CodeConflict {
				t.Errorf("the key with another input: %v", err)
			}
		}
	}
	// One that waited for its approval and was rejected.
	c, a := h.waitingFor(alice, s.ID, padded("ls", 100_000))
	h.answer(a, reject)
	h.finished(c.ID)
	if row, err := h.store.Call(t.Context(), c.ID); err != nil || row.InputNotKept == nil {
		t.Errorf("rejected: %+v, %v", row, err)
	}
	if n := h.kept("a"); n > 60_000 {
		t.Errorf("the records take %d bytes", n)
	}
	r, err := h.replayer().Replay(t.Context(), root, client.PolicyReplay{Rules: "[permission]\nbash = \"allow\"\n"})
	if err != nil || r.Calls != 2 || !strings.Contains(strings.Join(r.Notes, "\n"), "3 calls were passed over: large inputs") {
		t.Errorf("replay: %+v, %v", r, err)
	}
}

// TestQuotaOfRecords: old records make room for new ones; a tenant whose open calls
// fill what it has is refused, alone, and what it is told to do helps.
func TestQuotaOfRecords(t *testing.T) {
	const quota, input = 2 << 20, 100_000
	h := newHouse(t)
	h.set.Records = 1 << 30
	h.set.Tenants = map[string]Tenant{"a": {Records: quota}}
	h.set.Limits.Calls = 40
	h.open()
	s, other := h.create(alice, client.SessionCreate{}), h.create(bob, client.SessionCreate{})
	var ids []string
	for i := range 3 * quota / input {
		c := h.call(s.ID, padded(fmt.Sprint("echo ", i), input))
		if c.Error != nil {
			t.Fatal(c.Error)
		}
		ids = append(ids, c.ID)
		if n := h.kept("a"); n > quota {
			t.Fatalf("after %d calls the records take %d bytes", i, n)
		}
	}
	list, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{Limit: 1000})
	if err != nil || len(list.Items) != len(ids) {
		t.Fatalf("%d calls of %d, %v", len(list.Items), len(ids), err)
	}
	first := slices.IndexFunc(list.Items, func(c client.Call) bool { return c.InputNotKept == nil })
	if first < len(ids)/2 || slices.ContainsFunc(list.Items[first:], func(c client.Call) bool { return c.InputNotKept != nil }) {
		t.Errorf("the oldest give way first: the first whole one is %d of %d", first, len(ids))
	}
	if c := list.Items[0]; c.Output == "" || c.InputNotKept.Bytes < input {
		t.Errorf("%+v", c)
	}
	var open []string
	for i := 0; ; i++ {
		r := padded(fmt.Sprintf("hold; echo %d", i), input)
		r.WaitMillis = new(int64)
		c, err := h.m.calls.Call(t.Context(), alice, s.ID, r, call.Options{})
		if err == nil && i < 40 {
			open = append(open, c.ID)
			continue
		}
		if codeOfErr(err) != client.CodeQuotaExceeded || !strings.Contains(err.Error(), "2MiB") || !strings.Contains(err.Error(), "abort some") {
			t.Fatalf("after %d open calls: %v", i, err)
		}
		break
	}
	if n := len(open); n < quota/input-3 {
		t.Errorf("refused with %d open calls", n)
	}
	if c, err := h.m.calls.Call(t.Context(), bob, other.ID, padded("echo b", input), call.Options{}); err != nil || c.Error != nil {
		t.Errorf("another tenant: %+v, %v", c, err)
	}
	if _, err := h.m.calls.AbortCall(t.Context(), alice, open[0]); err != nil {
		t.Fatal(err)
	}
	if c := h.call(s.ID, padded("echo again", input)); c.Error != nil {
		t.Errorf("after an abort: %v", c.Error)
	}
	if n := h.kept("a"); n > quota {
		t.Errorf("the records take %d bytes", n)
	}
	h.host.box(s.ID).release()
}

// TestSmallRecordsGiveWay: where nothing can be shortened the oldest go, with their
// output files.
func TestSmallRecordsGiveWay(t *testing.T) {
	h := newHouse(t)
	h.set.Records = 60_000
	h.set.Truncate.MaxBytes = 1000
	h.open()
	s := h.create(alice, client.SessionCreate{})
	first := h.call(s.ID, bashCall("giant 2000"))
	file := first.Metadata["output_path"].(string)
	file = h.host.box(s.ID).spec.OutputDir + strings.TrimPrefix(file, "/run/toold/output")
	for i := range 200 {
		if c := h.call(s.ID, padded(fmt.Sprint("echo ", i), 3000)); c.Error != nil {
			t.Fatal(c.Error)
		}
		if n := h.kept("a"); n > h.set.Records {
			t.Fatalf("the records take %d bytes", n)
		}
	}
	if _, err := h.m.calls.GetCall(t.Context(), alice, first.ID); codeOfErr(err) != client.CodeNotFound {
		t.Errorf("the first call: %v", err)
	}
	if entries, err := os.ReadDir(h.host.box(s.ID).spec.OutputDir); err != nil || len(entries) != 0 {
		t.Errorf("%s is left: %v, %v", file, entries, err)
	}
}

// TestQuotaOfApprovals: what approvers were shown is part of what a tenant may have, and
// goes with the records, as do the events of calls.
func TestQuotaOfApprovals(t *testing.T) {
	const quota = 400_000
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{})
	h.set.Records = quota
	h.m.Reload(h.set)
	var first string
	for i := range 40 {
		c, a := h.waitingFor(alice, s.ID, padded(fmt.Sprint("ls ", i), 20_000))
		h.answer(a, reject)
		h.finished(c.ID)
		if n := h.kept("a"); n > quota {
			t.Fatalf("after %d approvals the records take %d bytes", i, n)
		}
		first = cmp.Or(first, c.ID)
	}
	events, err := h.store.Events(t.Context(), store.EventFilter{Limit: 1000})
	if err != nil || slices.ContainsFunc(events, func(e client.Event) bool { return e.Call == first }) {
		t.Errorf("of %d events some are of the first call, which is not kept, %v", len(events), err)
	}
	if len(events) < 20 {
		t.Errorf("%d events are left", len(events))
	}
}

// TestRecordsAreCounted: what is counted is what the records take, whatever happens
// to calls, and after a kill.
func TestRecordsAreCounted(t *testing.T) {
	h, _ := asking(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	s := h.create(alice, client.SessionCreate{})
	for i := range 60 {
		n := rnd.IntN(3) * rnd.IntN(20_000)
		r := padded(fmt.Sprint([]string{"echo ", "rm "}[rnd.IntN(2)], i), n)
		if rnd.IntN(3) == 0 {
			r.Key = fmt.Sprint("k", i)
		}
		r.Extra = []byte(`{"a":1}`)
		h.call(s.ID, r)
		if i%20 == 10 {
			c, a := h.waitingFor(alice, s.ID, padded(fmt.Sprint("ls ", i), n))
			h.answer(a, []client.ApprovalAnswer{once, reject}[rnd.IntN(2)])
			h.finished(c.ID)
		}
	}
	before := h.kept("a")
	h.waitingFor(alice, s.ID, padded("ls", 50_000))
	h.kill()
	h.open()
	if n := h.kept("a"); n <= before {
		t.Errorf("%d bytes after %d", n, before)
	}
}

// TestNearlyFullDisk: large inputs are refused, small ones are not, and of large
// results little is kept.
func TestNearlyFullDisk(t *testing.T) {
	h := newHouse(t)
	m := h.open()
	s := h.create(alice, client.SessionCreate{})
	h.set.MinFree = 1 << 62
	m.Reload(h.set)
	_, err := m.calls.Call(t.Context(), alice, s.ID, padded("echo x", 5000), call.Options{})
	if codeOfErr(err) != client.CodeOverloaded || !strings.Contains(err.Error(), "are free on the disk") || !strings.Contains(err.Error(), "smaller inputs") {
		t.Errorf("a large input: %v", err)
	}
	c := h.call(s.ID, bashCall("giant 20000"))
	if c.Error != nil || len(c.Output) < 20_000 {
		t.Errorf("a small input: %+v", c)
	}
	if row, err := h.store.Call(t.Context(), c.ID); err != nil || len(row.Call.Output) > 5000 || row.Metadata["not_kept_bytes"] == nil {
		t.Errorf("%d bytes are kept, %v", len(row.Call.Output), err)
	}
	h.kept("a")
}

// TestGCOfRecords: what is said of records is done to them when that is wanted.
func TestGCOfRecords(t *testing.T) {
	h := newHouse(t)
	h.set.Retention = 0
	h.open()
	s, live := h.create(alice, client.SessionCreate{}), h.create(alice, client.SessionCreate{})
	c := h.call(s.ID, padded("echo x", 200_000))
	running := h.call(live.ID, padded("echo x", 200_000))
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		r    client.GCRequest
		want int
	}{
		{client.GCRequest{}, 0},
		{client.GCRequest{DryRun: true, Records: true}, 1},
		{client.GCRequest{Records: true}, 1},
		{client.GCRequest{Records: true}, 0},
	} {
		all, err := h.m.Collector.GC(t.Context(), root, tt.r)
		if err != nil || len(all) != tt.want {
			t.Fatalf("%+v: %+v, %v", tt.r, all, err)
		}
		for _, x := range all {
			if x.Kind != client.GarbageRecords || x.Name != "a" || x.Bytes < 190_000 || x.Removed == tt.r.DryRun {
				t.Errorf("%+v: %+v", tt.r, x)
			}
		}
	}
	for id, want := range map[string]bool{c.ID: true, running.ID: false} {
		if got, err := h.m.calls.GetCall(t.Context(), alice, id); err != nil || (got.InputNotKept != nil) != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	h.kept("a")
}

// slowAudit holds the end of a call between its telling and its record.
type slowAudit struct {
	auditor
	held, goOn chan struct{}
}

func (a *slowAudit) Finished(auth.Principal, *client.Call, [32]byte) error {
	select {
	case a.held <- struct{}{}:
		<-a.goOn
	default:
	}
	return nil
}

// A call whose end somebody has been told makes room, also when its record is not
// written yet.
func TestToldCallsMakeRoom(t *testing.T) {
	const quota, input = 2 << 20, 100_000
	h := newHouse(t)
	h.set.Records = 1 << 30
	h.set.Tenants = map[string]Tenant{"a": {Records: quota}}
	h.set.Limits.Calls = 40
	audit := &slowAudit{held: make(chan struct{}), goOn: make(chan struct{})}
	h.audit = audit
	h.open()
	s := h.create(alice, client.SessionCreate{})
	var open []string
	for i := 0; ; i++ {
		r := padded(fmt.Sprintf("hold; echo %d", i), input)
		r.WaitMillis = new(int64)
		c, err := h.m.calls.Call(t.Context(), alice, s.ID, r, call.Options{})
		if err != nil {
			break
		}
		open = append(open, c.ID)
	}
	aborted := make(chan error, 1)
	go func() {
		_, err := h.m.calls.AbortCall(context.Background(), alice, open[0])
		aborted <- err
	}()
	<-audit.held // its end can be seen, and is not on record
	made := make(chan error, 1)
	go func() {
		_, err := h.m.calls.Call(context.Background(), alice, s.ID, padded("echo again", input), call.Options{})
		made <- err
	}()
	select {
	case err := <-made:
		t.Errorf("before the record is written: %v", err)
		made <- nil
	case <-time.After(50 * time.Millisecond): // nothing more can be waited for
	}
	close(audit.goOn)
	if err := <-made; err != nil {
		t.Error(err)
	}
	if err := <-aborted; err != nil {
		t.Error(err)
	}
	h.host.box(s.ID).release()
}

// TestRoomInsideTheDatabase: what is free inside of the database's file is for records alone. One number
// is said to be free on the disk, and outputs, which are files, are not kept where it is too small.
func TestRoomInsideTheDatabase(t *testing.T) {
	if os.Geteuid() != 0 {
		testrig.Skipf(t, "root", "disks are made by root")
	}
	h := newHouse(t)
	h.dir = testrig.SmallTree(t, 64<<20)
	h.set.Retention = 0
	m := h.open()
	old, s := h.create(alice, client.SessionCreate{}), h.create(alice, client.SessionCreate{})
	for i := range 8 {
		h.call(old.ID, padded(fmt.Sprintf("echo %d", i), 500_000))
	}
	_, err := m.End(t.Context(), alice, old.ID, client.EndOptions{})
	if err == nil {
		_, err = m.Collector.GC(t.Context(), root, client.GCRequest{Records: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	measure := func() (free, inside int64) {
		v, err := room.At(h.dir)
		inside, inErr := h.store.FreeBytes(t.Context())
		if err != nil || inErr != nil || inside < 2<<20 {
			t.Fatalf("%+v, %d bytes inside, %v, %v", v, inside, err, inErr)
		}
		return v.Free, inside
	}
	says := func(least int64) (client.CheckStatus, string) {
		h.set.MinFree = least
		m.Reload(h.set)
		for _, c := range m.Checks(t.Context()) {
			if c.Name == "room for records" {
				return c.Status, c.Detail + c.Hint
			}
		}
		return "", ""
	}
	said := func(free int64) string {
		return client.Size(free).String() + " are free on the disk of the state directory"
	}
	// The store writes what it has put off when it likes to: then all is measured again.
	still := func(what string, look func(free, inside int64) (again bool)) {
		t.Helper()
		testrig.Eventually(t, what, func() bool {
			free, inside := measure()
			again := look(free, inside)
			now, _ := measure()
			return !again || now == free
		})
	}
	// Between the two numbers: records have room, outputs have none.
	var status client.CheckStatus
	var text, want string
	still("a warning of outputs", func(free, inside int64) bool {
		want = said(free)
		status, text = says(free + inside/2)
		return status != client.CheckWarn || !strings.Contains(text, want)
	})
	if status != client.CheckWarn || !strings.Contains(text, want) || !strings.Contains(text, "outputs are not kept") || strings.Contains(text, "inputs") {
		t.Errorf("%s: %s", status, text)
	}
	if r := m.Ready(t.Context()); r.Status != "ok" || len(r.Warnings) != 1 {
		t.Errorf("%+v", r)
	}
	var c *client.Call
	still("a call with a large output", func(free, inside int64) bool {
		says(free + inside/2)
		c, err = m.calls.Call(t.Context(), alice, s.ID, padded("giant 200000", 100_000), call.Options{})
		return codeOfErr(err) == client.CodeOverloaded
	})
	if err != nil {
		t.Fatal(err)
	}
	if why := fmt.Sprint(c.Metadata["output_not_kept"]); c.Error != nil || !strings.Contains(c.Output, "are free on the disk of the state directory") && !strings.Contains(why, "are free on the disk of the state directory") {
		t.Errorf("%v, %.300q … %.300q, %v", c.Metadata, c.Output, c.Output[max(0, len(c.Output)-300):], c.Error)
	}
	// Above both: neither has, and the same number is said.
	still("a failure of inputs", func(free, inside int64) bool {
		want = said(free)
		status, text = says(free + 2*inside + 8<<20)
		_, err = m.calls.Call(t.Context(), alice, s.ID, padded("echo x", 5000), call.Options{})
		return status != client.CheckFail || !strings.Contains(text, want) || err == nil || !strings.Contains(err.Error(), want)
	})
	if status != client.CheckFail || !strings.Contains(text, want) || !strings.Contains(text, "large inputs") {
		t.Errorf("%s: %s", status, text)
	}
	if codeOfErr(err) != client.CodeOverloaded || !strings.Contains(err.Error(), want) {
		t.Errorf("a large input: %v, want %s", err, want)
	}
}
