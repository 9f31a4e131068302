package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
)

func looping(t *testing.T, rule string) (*house, *watcher) {
	h, w := newHouse(t), &watcher{}
	h.obs = []Observer{w}
	h.set.Loop = policy.LoopConfig{Threshold: 3, PollingThreshold: 6, MaxPeriod: 4, HardLimit: 8}
	h.set.Policy = rules(t, rule)
	h.open()
	return h, w
}

const loopsDenied = `permission = { doom_loop = "deny" }`

func TestLoopsAreStopped(t *testing.T) {
	for _, tt := range []struct {
		name   string
		calls  string // commands; the last one is stopped
		says   string
		metric string
	}{
		{"the same", "echo a|echo a|echo a", "call 3 in a row of bash", "bash 1 deny"},
		{"nearly the same", "echo a|  echo   a # again|echo 'a'", "call 3 in a row", "bash 1 deny"},
		{"with others before", "echo x|echo a|echo a|echo a", "call 3 in a row", "bash 1 deny"},
		{"a cycle of two", "echo a|echo b|echo a|echo b|echo a|echo b", "the same 2 calls (bash, bash)", "bash 2 deny"},
		{"failures", "exit 3|exit 3|exit 3", "call 3 in a row", "bash 1 deny"},
		{"polling", "change|change|change|change|change|change", "call 6 in a row", "bash 1 deny"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, w := looping(t, loopsDenied)
			s := h.create(alice, client.SessionCreate{})
			commands := strings.Split(tt.calls, "|")
			for i, command := range commands {
				if command == "change" {
					h.host.box(s.ID).setChange(i)
				}
				c := h.call(s.ID, bashCall(command))
				last := i == len(commands)-1
				if last != (c.Error != nil) {
					t.Fatalf("call %d: %+v", i, c.Error)
				}
				if last && (c.Error.Code != client.CodeDoomLoop || !strings.Contains(c.Error.Message, tt.says) || c.Error.Hint == "" || c.Permission.Verdict != "deny") {
					t.Errorf("%+v, %+v", c.Error, c.Permission)
				}
			}
			if got := strings.Join(w.loops, ","); got != tt.metric {
				t.Errorf("observers heard %q, want %q", got, tt.metric)
			}
			if n := len(h.host.box(s.ID).runs); n != len(commands)-1 {
				t.Errorf("%d calls ran", n)
			}
		})
	}
}

func TestNoLoops(t *testing.T) {
	h, w := looping(t, loopsDenied)
	s := h.create(alice, client.SessionCreate{})
	for i := range 4 { // no three in a row, and no cycle
		for _, command := range []string{"echo a", "echo a", fmt.Sprintf("echo %d", i)} {
			if c := h.call(s.ID, bashCall(command)); c.Error != nil {
				t.Fatalf("%s: %+v", command, c.Error)
			}
		}
	}
	if len(w.loops) != 0 {
		t.Errorf("loops %v", w.loops)
	}
}

// What a person has typed is no part of a loop, also not of one that an agent is in.
func TestTypedCallsAreNoLoop(t *testing.T) {
	h, w := looping(t, loopsDenied)
	s := h.create(alice, client.SessionCreate{})
	typed := with(bashCall("echo a"), func(r *client.CallCreate) { r.Typed = true })
	for i := range 10 {
		if i == 5 {
			h.stop()
			h.open()
		}
		if c := h.call(s.ID, typed); c.Error != nil || !c.Typed {
			t.Fatalf("%d: %+v", i, c)
		}
	}
	if len(w.loops) > 0 || !w.decisions[0].Typed {
		t.Errorf("loops %v, first decision %+v", w.loops, w.decisions[0])
	}
	h.call(s.ID, bashCall("echo a"))
	h.call(s.ID, typed)
	h.call(s.ID, bashCall("echo a"))
	if c := h.call(s.ID, bashCall("echo a")); c.Error == nil || c.Error.Code != client.CodeDoomLoop || !strings.Contains(c.Error.Message, "call 3 in a row") {
		t.Errorf("an agent's third: %+v", c)
	}
	h.settled()
	if l, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{}); err != nil || !l.Items[0].Typed || l.Items[10].Typed {
		t.Errorf("on record: %+v, %v", l.Items, err)
	}
	token := auth.Principal{UID: alice.UID, Tenant: "a", Session: s.ID}
	if _, err := h.m.calls.Call(t.Context(), token, s.ID, typed, call.Options{}); codeOfErr(err) != client.CodeForbidden {
		t.Errorf("with a token: %v", err)
	}
}

// No model can make a transfer, so that it is no part of a loop.
func TestTransfersAreNoLoop(t *testing.T) {
	h, _ := looping(t, loopsDenied)
	s := h.create(alice, client.SessionCreate{})
	for i := range 6 {
		if i == 4 {
			h.stop()
			h.open()
		}
		r, _, err := h.m.Files.Download(t.Context(), alice, s.ID, "f")
		if err != nil {
			t.Fatalf("download %d: %v", i, err)
		}
		r.Close()
	}
}

func TestLoopsOverADaemonsDeath(t *testing.T) {
	h, _ := looping(t, loopsDenied)
	s := h.create(alice, client.SessionCreate{})
	other := h.create(alice, client.SessionCreate{})
	h.call(s.ID, bashCall("echo a"))
	h.call(s.ID, bashCall("echo  a"))
	h.stop()
	h.open()
	if c := h.call(s.ID, bashCall("echo a # 3")); c.Error == nil || c.Error.Code != client.CodeDoomLoop {
		t.Errorf("after a restart: %+v", c)
	}
	if c := h.call(other.ID, bashCall("echo a")); c.Error != nil {
		t.Errorf("another session: %+v", c.Error)
	}
}

func TestParallelLoops(t *testing.T) {
	h, _ := looping(t, loopsDenied)
	s := h.create(alice, client.SessionCreate{})
	h.background(s.ID, "hold")
	h.background(s.ID, "hold")
	testrig.Eventually(t, "two hold", func() bool { return h.host.box(s.ID).holding.Load() == 2 })
	if c := h.call(s.ID, bashCall("hold")); c.Error == nil || c.Error.Code != client.CodeDoomLoop {
		t.Errorf("%+v", c)
	}
	h.host.box(s.ID).release()
}

func TestApprovedLoop(t *testing.T) {
	h, w := looping(t, ``)
	s := h.create(alice, client.SessionCreate{})
	h.call(s.ID, bashCall("echo a"))
	h.call(s.ID, bashCall("echo a"))
	// Once lets one through, and the count goes on.
	for n := 3; n <= 5; n++ {
		c, a := h.waiting(s.ID, "echo a")
		if len(a.Requests) != 1 || a.Requests[0].Permission != policy.PermissionDoomLoop || a.Requests[0].Save != "bash" ||
			!strings.Contains(fmt.Sprint(a.Metadata["loop"]), fmt.Sprintf("call %d in a row", n)) {
			t.Fatalf("%+v", a)
		}
		if n == 4 {
			h.answer(a, client.ApprovalAnswer{Answer: "reject", Message: "stop it"})
			if c := h.finished(c.ID); c.Error == nil || c.Error.Code != client.CodeDoomLoop || !strings.Contains(c.Error.Message, "stop it") {
				t.Errorf("rejected: %+v", c.Error)
			}
			continue
		}
		h.answer(a, once)
		if c := h.finished(c.ID); c.Status != client.CallCompleted {
			t.Errorf("%+v", c.Error)
		}
	}
	if got := strings.Join(w.loops, ","); got != "bash 1 ask,bash 1 ask,bash 1 ask" {
		t.Errorf("observers heard %q", got)
	}
	// Always does too, up to the hard limit.
	c, a := h.waiting(s.ID, "echo a")
	h.answer(a, always)
	h.finished(c.ID)
	if c := h.call(s.ID, bashCall("echo a")); c.Status != client.CallCompleted {
		t.Errorf("saved: %+v", c.Error)
	}
	if c := h.call(s.ID, bashCall("echo a")); c.Error == nil || c.Error.Code != client.CodeDoomLoop || c.Permission.Rule != `[doom_loop] hard_limit` {
		t.Errorf("hard limit: %+v, %+v", c.Error, c.Permission)
	}
}

// A call whose input a hook has replaced counts once, as what it became.
func TestLoopsOfReplacedInputs(t *testing.T) {
	h, _ := looping(t, loopsDenied)
	set := *h.m.settings.Load()
	set.Hooks = []hook.Hook{scripted(t, hook.CallBefore, `echo '{"action":"allow","input":{"command":"echo y"}}'`)}
	h.m.Reload(set)
	s := h.create(alice, client.SessionCreate{})
	for i := 1; i <= 3; i++ {
		c := h.call(s.ID, bashCall("echo x"))
		if i < 3 && c.Error != nil {
			t.Fatalf("call %d: %+v", i, c.Error)
		}
		if i == 3 && (c.Error == nil || c.Error.Code != client.CodeDoomLoop || !strings.Contains(c.Error.Message, "call 3 in a row")) {
			t.Errorf("the third: %+v", c.Error)
		}
	}
}

// stopped says why a call was stopped as part of a loop, or the one part of a batch; nil for neither.
func stopped(t *testing.T, h *house, c *client.Call) *client.Error {
	t.Helper()
	for _, v := range append(childrenOf(t, h, c), c) {
		if v.Error != nil && v.Error.Code == client.CodeDoomLoop {
			return v.Error
		}
	}
	return nil
}

// TestLoopsOfParts: what is a loop of calls that stand alone is one where each second of them is a part of a
// batch, and is stopped at the same place.
func TestLoopsOfParts(t *testing.T) {
	for _, tt := range []struct{ name, calls, says string }{
		{"the same", "echo a|echo a|echo a", "call 3 in a row of bash"},
		{"nearly the same", "echo a|  echo   a # again|echo 'a'", "call 3 in a row"},
		{"with others before", "echo x|echo a|echo a|echo a", "call 3 in a row"},
		{"a cycle of two", "echo a|echo b|echo a|echo b|echo a|echo b", "of the same 2 calls"},
		{"a cycle of three", "echo a|echo b|echo c|echo a|echo b|echo c|echo a|echo b|echo c", "of the same 3 calls"},
		{"a cycle of four", "echo a|echo b|echo c|echo d|echo a|echo b|echo c|echo d|echo a|echo b|echo c|echo d", "of the same 4 calls"},
		{"failures", "exit 3|exit 3|exit 3", "call 3 in a row"},
		{"polling", "change|change|change|change|change|change", "call 6 in a row"},
	} {
		for first := range 2 { // which of them stand alone
			t.Run(fmt.Sprintf("%s, %d", tt.name, first), func(t *testing.T) {
				t.Parallel()
				h, _ := looping(t, loopsDenied)
				s := h.create(alice, client.SessionCreate{})
				commands := strings.Split(tt.calls, "|")
				for i, command := range commands {
					if command == "change" {
						h.host.box(s.ID).setChange(i)
					}
					r := bashCall(command)
					if i%2 == first {
						if command != "change" {
							command += fmt.Sprintf(" # %d", i) // each batch is another one
						}
						r = batchOf(command)
					}
					why := stopped(t, h, h.call(s.ID, r))
					if last := i == len(commands)-1; last != (why != nil) || last && !strings.Contains(why.Message, tt.says) {
						t.Fatalf("call %d, %s: stopped with %v, want %q of the last", i, command, why, tt.says)
					}
				}
				if n := len(h.host.box(s.ID).runs); n != len(commands)-1 {
					t.Errorf("%d calls ran", n)
				}
			})
		}
	}
}

// TestApprovedLoopOfParts: a part of a batch that would be part of a loop is asked about as a call that
// stands alone; what is allowed once lets that one through, and nothing goes over the hard limit.
func TestApprovedLoopOfParts(t *testing.T) {
	h, _ := looping(t, ``)
	s := h.create(alice, client.SessionCreate{})
	n := 0
	batch := func() *client.Call {
		n++
		r := batchOf(fmt.Sprintf("echo a # %d", n))
		r.WaitMillis = new(int64)
		return h.call(s.ID, r)
	}
	asked := func(count int) *client.Approval {
		t.Helper()
		testrig.Eventually(t, "the part is asked about", func() bool { return len(h.pending()) == 1 })
		a := h.pending()[0]
		if len(a.Requests) != 1 || a.Requests[0].Permission != policy.PermissionDoomLoop || !strings.Contains(fmt.Sprint(a.Metadata["loop"]), fmt.Sprintf("call %d in a row", count)) {
			t.Fatalf("%+v", a)
		}
		return &a
	}
	h.call(s.ID, bashCall("echo a"))
	h.finished(batch().ID)
	for count := 3; count <= 5; count++ {
		c := batch()
		a := asked(count)
		if a.CallID == c.ID {
			t.Errorf("the batch is asked about, and not its part")
		}
		answer := once
		if count == 4 {
			answer = client.ApprovalAnswer{Answer: client.AnswerReject, Message: "stop it"}
		}
		h.answer(a, answer)
		why := stopped(t, h, h.finished(c.ID))
		if (why != nil) != (count == 4) || why != nil && !strings.Contains(why.Message, "stop it") {
			t.Errorf("part %d: %v", count, why)
		}
	}
	c := batch()
	h.answer(asked(6), always)
	h.finished(c.ID)
	if why := stopped(t, h, h.finished(batch().ID)); why != nil {
		t.Errorf("saved: %v", why)
	}
	parts := childrenOf(t, h, h.finished(batch().ID))
	if p := parts[0]; p.Error == nil || p.Error.Code != client.CodeDoomLoop || p.Permission.Rule != `[doom_loop] hard_limit` {
		t.Errorf("hard limit: %+v, %+v", p.Error, p.Permission)
	}
}

// TestLoopsOfReplacedParts: a part whose input a hook has replaced counts once, as what it became.
func TestLoopsOfReplacedParts(t *testing.T) {
	h, _ := looping(t, loopsDenied)
	set := *h.m.settings.Load()
	y := scripted(t, hook.CallBefore, `echo '{"action":"allow","input":{"command":"echo y"}}'`)
	y.Match = map[string]string{"tool": "bash"}
	set.Hooks = []hook.Hook{y}
	h.m.Reload(set)
	s := h.create(alice, client.SessionCreate{})
	for i := 1; i <= 3; i++ {
		why := stopped(t, h, h.call(s.ID, batchOf(fmt.Sprintf("echo %d", i))))
		if (why != nil) != (i == 3) || why != nil && !strings.Contains(why.Message, "call 3 in a row") {
			t.Errorf("part %d: %v", i, why)
		}
	}
}
