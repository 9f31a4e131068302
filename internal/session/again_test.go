package session

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// reader is what a client puts together from the events of a call.
type reader struct {
	mu      sync.Mutex // guards the fields below
	out     [2]string  // the whole, or stdout and stderr
	id      string     // of the last output event
	types   []string   // of the events
	missing int64      // bytes that were said not to be kept
	enough  [2]int     // bytes after which leave is called
	leave   func()     // nil: never
}

func (x *reader) take(t testing.TB, e client.Event) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.types = append(x.types, e.Type)
	if e.Type != "output" {
		return
	}
	var o client.Output
	if err := json.Unmarshal(e.Data, &o); err != nil {
		t.Error(err)
	}
	i := 0
	if o.Stream == "stderr" {
		i = 1
	}
	if o.Missing == 0 && o.Offset != int64(len(x.out[i])) {
		t.Errorf("output %q at %d, after %d bytes", o.Stream, o.Offset, len(x.out[i]))
	}
	x.missing += o.Missing
	x.out[i] += string(o.Bytes())
	x.id = e.ID
	if x.leave != nil && len(x.out[0]) >= x.enough[0] && len(x.out[1]) >= x.enough[1] {
		x.leave()
	}
}

// resumed is a reader that goes on where x is.
func (x *reader) resumed() *reader {
	x.mu.Lock()
	defer x.mu.Unlock()
	return &reader{out: x.out, id: x.id}
}

// stream makes a call that has a key, or takes up its stream.
func (h *house) stream(ctx context.Context, session string, r client.CallCreate, split bool, x *reader) (*client.Call, error) {
	h.t.Helper()
	return h.m.calls.Call(ctx, alice, session, r, call.Options{Split: split, After: x.id, OnEvent: func(e client.Event) { x.take(h.t, e) }})
}

// TestStreamAgain: the key of a call gives its stream without a gap, from its first
// byte or from the last id that was seen, while it runs, when it is over, and after
// a restart of the daemon.
func TestStreamAgain(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		split         bool
		before        [2]int // bytes that a client has at "hold"
		want          [2]string
	}{
		{"one", "echo a; bytes e282; hold; bytes ac; echo b", false, [2]int{2}, [2]string{"a\n€b\n"}},
		{"long", "big 200000; hold; echo end", false, [2]int{200000}, [2]string{strings.Repeat("0123456789abcde\n", 12500) + "end\n"}},
		{"two", "echo a; err x; bytes c3; hold; bytes a4; echo b; err y", true, [2]int{2, 2}, [2]string{"a\näb\n", "x\ny\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			h.open()
			s := h.create(alice, client.SessionCreate{})
			r := with(bashCall(tt.command), func(r *client.CallCreate) { r.Key = "k" })
			ended := func(when string, x *reader, c *client.Call, err error) {
				t.Helper()
				if err != nil || !c.Finished() || x.out != tt.want || x.missing != 0 {
					t.Errorf("%s: %.40q and %.40q, %d missing, %v; want %.40q and %.40q", when, x.out[0], x.out[1], x.missing, err, tt.want[0], tt.want[1])
				}
			}
			both := func(when string, first *reader) {
				t.Helper()
				for _, x := range []*reader{{}, first.resumed()} {
					c, err := h.stream(t.Context(), s.ID, r, tt.split, x)
					ended(when, x, c, err)
				}
			}

			// Two go away in the middle: who made the call, and one who took it up.
			var left []*reader
			for range 2 {
				ctx, cancel := context.WithCancel(t.Context())
				x := &reader{enough: tt.before, leave: cancel}
				if c, err := h.stream(ctx, s.ID, r, tt.split, x); err != nil || c.Finished() {
					t.Fatalf("who goes away: %+v, %v", c, err)
				}
				left = append(left, x)
			}
			if left[0].id != left[1].id || left[0].id == "" {
				t.Errorf("last ids %q and %q of the same output", left[0].id, left[1].id)
			}
			var wg sync.WaitGroup
			for _, x := range []*reader{{}, left[0].resumed(), left[1].resumed()} {
				wg.Go(func() {
					c, err := h.stream(t.Context(), s.ID, r, tt.split, x)
					ended("while it runs", x, c, err)
					if got := slices.Compact(x.types); !slices.Equal(got, []string{"running", "output", "completed"}) {
						t.Errorf("events %v", got)
					}
				})
				testrig.Eventually(t, "it hears of the call", func() bool {
					x.mu.Lock()
					defer x.mu.Unlock()
					return len(x.types) > 0
				})
			}
			h.host.box(s.ID).pass()
			wg.Wait()
			both("when it is over", left[0])
			h.settled()
			h.stop()
			h.open()
			both("after a restart", left[1])
		})
	}
}

// TestStreamAgainMissing: bytes that are not kept are counted.
func TestStreamAgainMissing(t *testing.T) {
	h := newHouse(t)
	h.set.Truncate.SpillFile, h.set.Truncate.MaxBytes = 1000, 100
	h.open()
	s := h.create(alice, client.SessionCreate{})
	r := with(bashCall("big 5000; hold"), func(r *client.CallCreate) { r.Key = "k" })
	ctx, cancel := context.WithCancel(t.Context())
	first := &reader{enough: [2]int{5000}, leave: cancel}
	if _, err := h.stream(ctx, s.ID, r, false, first); err != nil {
		t.Fatal(err)
	}
	check := func(when string, x *reader, bytes int, missing int64) {
		t.Helper()
		if _, err := h.stream(t.Context(), s.ID, r, false, x); err != nil || len(x.out[0]) != bytes || x.missing != missing || x.id != "5000" {
			t.Errorf("%s: %d bytes, %d missing, id %q, %v; want %d and %d", when, len(x.out[0]), x.missing, x.id, err, bytes, missing)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { check("while it runs", &reader{}, 1000, 4000) })
	h.host.box(s.ID).pass()
	wg.Wait()
	check("when it is over", &reader{}, 1000, 4000)
	check("who had all of it", first.resumed(), 5000, 0)
	h.settled()
	files, err := filepath.Glob(filepath.Join(h.dir, "output", s.ID, "call_*"))
	if err != nil || len(files) != 1 || os.Remove(files[0]) != nil {
		t.Fatalf("files %v, %v", files, err)
	}
	check("without its file", &reader{}, 0, 5000)
}

// TestStreamAgainApproval: who takes up a call that waits for approval is told so,
// and whoever answers sees the answer.
func TestStreamAgainApproval(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{})
	r := with(bashCall("ls x"), func(r *client.CallCreate) { r.Key = "k" })
	_, a := h.waitingFor(alice, s.ID, r)
	x := &reader{}
	asked := make(chan client.Approval, 1)
	answered := make(chan *client.Approval, 1)
	go func() {
		<-asked
		v, err := h.m.Approvals.Answer(t.Context(), carol, a.ID, client.ApprovalAnswer{Answer: client.AnswerReject, Message: "no"})
		if err != nil {
			t.Error(err)
		}
		answered <- v
	}()
	c, err := h.m.calls.Call(t.Context(), alice, s.ID, r, call.Options{OnEvent: func(e client.Event) {
		x.take(t, e)
		var v client.Approval
		if e.Type == client.EventApprovalAsked && json.Unmarshal(e.Data, &v) == nil && v.ID == a.ID && v.Reply == nil {
			asked <- v
		}
	}})
	if err != nil || c.Error == nil || c.Error.Code != client.CodeDenied {
		t.Errorf("%+v, %v", c, err)
	}
	if want := []string{"pending", client.EventApprovalAsked, client.EventApprovalReplied, "error"}; !slices.Equal(x.types, want) {
		t.Errorf("events %v, want %v", x.types, want)
	}
	if v := <-answered; !reflect.DeepEqual(v.Reply, &client.ApprovalReply{ID: a.ID, Answer: "reject", By: "uid 1002", Message: "no"}) {
		t.Errorf("answered: %+v", v.Reply)
	}
}

// TestStreamAgainRefusals: what cannot be taken up is refused, and nothing runs.
func TestStreamAgainRefusals(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	ask := func(key, command, after string, split bool) error {
		r := with(bashCall(command), func(r *client.CallCreate) { r.Key = key })
		_, err := h.stream(t.Context(), s.ID, r, split, &reader{id: after})
		return err
	}
	if err := ask("k", "echo a", "", false); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		key, after string
		want       client.Code
	}{
		{"", "2", client.CodeInvalidRequest},
		{"other", "2", client.CodeNotFound},
		{"k", "3", client.CodeInvalidRequest},
		{"k", "1,1", client.CodeInvalidRequest},
		{"k", "2", ""},
	} {
		if err := ask(tt.key, "echo a", tt.after, false); codeOfErr(err) != tt.want {
			t.Errorf("key %q after %q: %v, want %q", tt.key, tt.after, err, tt.want)
		}
	}
	l, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{})
	if err != nil || len(l.Items) != 1 {
		t.Errorf("%d calls, %v; want 1", len(l.Items), err)
	}
}
