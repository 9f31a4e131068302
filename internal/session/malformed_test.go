package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
)

func toolCall(name, input string) client.CallCreate {
	return client.CallCreate{Tool: name, Input: json.RawMessage(input)}
}

// malformed makes a call that no tool takes.
func (h *house) malformed(session string, r client.CallCreate, code client.Code) *client.Call {
	h.t.Helper()
	c, err := h.m.calls.Call(h.t.Context(), alice, session, r, call.Options{})
	if err != nil {
		h.t.Fatalf("%s %.80s: %v, want a call", r.Tool, r.Input, err)
	}
	if c.Status != client.CallError || c.Time.Started != nil || c.Time.Ended == nil || c.Error == nil || c.Error.Code != code {
		h.t.Fatalf("%s %.80s: %+v, want an end with %s", r.Tool, r.Input, c, code)
	}
	return c
}

// TestMalformedCallsAreCalls: they do not run, and have a record like others.
func TestMalformedCallsAreCalls(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	const unknown, invalid = client.CodeUnknownTool, client.CodeInvalidInput
	hostile := "a\nb\x1b[31m\u202e" + strings.Repeat("n", 1<<20)
	for i, tt := range []struct {
		name string
		r    client.CallCreate
		code client.Code
		tool string // on record
		in   string // on record; "" for what was given
		says string
	}{
		{"unknown tool", toolCall("rm", `{}`), unknown, "rm", "", `no tool called "rm"`},
		{"hidden tool", toolCall("file_get", `{"path":"x"}`), unknown, "file_get", "", "file_get"},
		{"hostile name", toolCall(hostile, `{}`), unknown, "a\uFFFDb\uFFFD[31m\uFFFD" + strings.Repeat("n", 49) + "…", "", "the tools are"},
		{"no name", toolCall("", `{}`), unknown, "", "", `""`},
		{"nothing", client.CallCreate{Tool: "bash"}, invalid, "bash", "{}", "/command is required"},
		{"schema", toolCall("bash", `{}`), invalid, "bash", "", "/command is required"},
		{"other case", toolCall("BASH", `{}`), invalid, "bash", "", "/command is required"},
		{"timeout negative", toolCall("bash", `{"command":"x","timeout":-1}`), invalid, "bash", "", "/timeout"},
		{"timeout 2^63", toolCall("bash", `{"command":"x","timeout":9223372036854775808}`), invalid, "bash", `"{\"command\":\"x\",\"timeout\":9223372036854775808}"`, "/timeout"},
		{"twice", toolCall("bash", `{"command":"x","command":"y"}`), invalid, "bash", `"{\"command\":\"x\",\"command\":\"y\"}"`, "/command"},
		{"a list", toolCall("bash", `["x"]`), invalid, "bash", "", "expected an object"},
		{"no JSON", toolCall("bash", `{"command":`), invalid, "bash", `"{\"command\":"`, "unexpected end"},
		{"no UTF-8", toolCall("bash", "\"\xff\""), invalid, "bash", `"\"\ufffd\""`, "invalid UTF-8"},
		{"deep", toolCall("bash", strings.Repeat("[", 100)+strings.Repeat("]", 100)), invalid, "bash", `"` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `"`, "levels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.t = t
			r := tt.r
			r.Key, r.Agent = fmt.Sprint("k", i), "a model's"
			c := h.malformed(s.ID, r, tt.code)
			h.agrees(c, tt.code)
			if want := tt.in; !strings.Contains(c.Output, tt.says) || c.Tool != tt.tool || c.Agent != r.Agent ||
				string(c.Input) != want && (want != "" || string(c.Input) != string(tt.r.Input)) {
				t.Errorf("%q of tool %q, input %q, agent %q", c.Output, c.Tool, c.Input, c.Agent)
			}
			if again := h.malformed(s.ID, r, tt.code); again.ID != c.ID {
				t.Errorf("the key led to %s, want %s", again.ID, c.ID)
			}
			r.Input = json.RawMessage(`{"x":1}`)
			if _, err := h.m.calls.Call(t.Context(), alice, s.ID, r, call.Options{}); codeOfErr(err) != client.CodeConflict {
				t.Errorf("the key with another input: %v", err)
			}
		})
	}
	h.t = t
	if runs := h.host.box(s.ID).runs; len(runs) != 0 {
		t.Errorf("%d calls reached the agent", len(runs))
	}
	if list, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{}); err != nil || len(list.Items) != 14 {
		t.Errorf("list %v, %v", list, err)
	}
	if s := h.m.live()[0]; s.calls.Open() != 0 || s.tenant.Calls.Load() != 0 {
		t.Errorf("%d and %d calls are counted as open", s.calls.Open(), s.tenant.Calls.Load())
	}
	h.kept("a")
}

// TestMalformedCallsAreToldLikeOthers: to who listens, and on the event stream.
func TestMalformedCallsAreToldLikeOthers(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	var heard []string
	if _, err := h.m.calls.Call(t.Context(), alice, s.ID, toolCall("rm", `{}`), call.Options{
		OnEvent: func(e client.Event) { heard = append(heard, e.Type) },
	}); err != nil {
		t.Fatal(err)
	}
	h.settled()
	events, err := h.m.Events.Events(t.Context(), alice, event.Filter{Session: s.ID, Type: "call.*", Stored: true})
	if err != nil {
		t.Fatal(err)
	}
	var stored []string
	for e := range events {
		stored = append(stored, e.Type)
	}
	if got := strings.Join(stored, " "); got != "call.pending call.error end" {
		t.Errorf("on record: %s", got)
	}
	if got := strings.Join(heard, " "); got != "pending error" {
		t.Errorf("heard %s", got)
	}
}

// TestMalformedLoops: equal ones are a loop, which nobody is asked about, over
// restarts too; what is wrong with the call is said all the same.
func TestMalformedLoops(t *testing.T) {
	large := `{"comand":"` + strings.Repeat("x", 100_000) + `"}`
	for _, tt := range []struct {
		name, rule string
		r          client.CallCreate
		code       client.Code
		says       string
		stopped    client.Code // from the third on
	}{
		{"unknown tool", "", toolCall("rm", `{ "a": 1 }`), client.CodeUnknownTool, `no tool called "rm"`, client.CodeDoomLoop},
		{"hidden tool", "", toolCall("file_get", `{ "path": "x" }`), client.CodeUnknownTool, "file_get", client.CodeDoomLoop},
		{"denied", loopsDenied, toolCall("bash", `{"comand": "ls"}`), client.CodeInvalidInput, `did you mean "command"`, client.CodeDoomLoop},
		{"large", "", toolCall("bash", large), client.CodeInvalidInput, `did you mean "command"`, client.CodeDoomLoop},
		{"no input needed", "", toolCall("list", large), client.CodeInvalidInput, "/comand is not a known key", client.CodeDoomLoop},
		{"twice", "", toolCall("bash", `{"command":"x","command":"y"}`), client.CodeInvalidInput, "/command", client.CodeDoomLoop},
		{"allowed", `permission = { doom_loop = "allow" }`, toolCall("rm", `{}`), client.CodeUnknownTool, `no tool called "rm"`, client.CodeUnknownTool},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, w := looping(t, tt.rule)
			s := h.create(alice, client.SessionCreate{})
			for i := 1; i <= 9; i++ {
				if i == 2 || i == 6 {
					h.stop()
					h.open()
				}
				want := tt.code
				if i >= 3 {
					want = tt.stopped
				}
				if i >= 8 {
					want = client.CodeDoomLoop // the hard limit
				}
				c := h.malformed(s.ID, tt.r, want)
				h.agrees(c, want)
				if !strings.Contains(c.Output, tt.says) {
					t.Errorf("call %d says %q", i, c.Output)
				}
				if want == client.CodeDoomLoop && (!strings.Contains(c.Output, fmt.Sprintf("call %d in a row of %s", i, c.Tool)) || c.Permission == nil || c.Permission.Verdict != "deny") {
					t.Errorf("call %d says %q, judged %+v", i, c.Output, c.Permission)
				}
			}
			if len(w.loops) != 7 {
				t.Errorf("observers heard of %v", w.loops)
			}
			typed := with(tt.r, func(r *client.CallCreate) { r.Typed = true })
			h.malformed(s.ID, typed, tt.code)
			if other := h.call(s.ID, bashCall("echo a")); other.Error != nil {
				t.Errorf("another call: %+v", other.Error)
			}
		})
	}
}

// TestRecordsOfMalformedCalls: however large the input, of what no tool takes a
// little is kept, and counted.
func TestRecordsOfMalformedCalls(t *testing.T) {
	var keys, deep strings.Builder
	for i := range 100 {
		fmt.Fprintf(&keys, `"%d%s":1,`, i, strings.Repeat("ü\\u0007", 2000))
		fmt.Fprintf(&deep, `{"%s":`, strings.Repeat("k", 10_000))
	}
	for _, tt := range []struct {
		name, input string
	}{
		{"value", `{"x":"` + strings.Repeat("x", 2<<20) + `"}`},
		{"keys", "{" + keys.String() + `"x":1}`},
		{"path", deep.String()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			h.open()
			s := h.create(alice, client.SessionCreate{})
			none := h.kept("a")
			c := h.malformed(s.ID, toolCall("bash", tt.input), client.CodeInvalidInput)
			answer, err := json.Marshal(c)
			if err != nil || c.Input != nil || c.InputNotKept == nil || len(answer) > 64<<10 {
				t.Errorf("an answer of %d bytes, %v, of an input of %d: %v", len(answer), err, len(tt.input), c.InputNotKept)
			}
			if took := h.kept("a") - none; took < 100 || took > 64<<10 {
				t.Errorf("the record takes %d bytes", took)
			}
			for i := range 20 {
				h.malformed(s.ID, toolCall(fmt.Sprint("rm", i), tt.input), client.CodeUnknownTool)
			}
			if took := h.kept("a") - none; took > 150<<10 {
				t.Errorf("the records take %d bytes", took)
			}
		})
	}
}
