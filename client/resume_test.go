package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// event writes one event of a stream and sends it.
func event(w http.ResponseWriter, id, name string, data any) {
	b, _ := json.Marshal(data)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", id, name, b)
	_ = http.NewResponseController(w).Flush()
}

// TestEventsResume: a stream that breaks goes on after the last event that has
// an id, without a gap and without a repetition.
func TestEventsResume(t *testing.T) {
	var asked []string
	c := daemon(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		after := r.Header.Get("Last-Event-ID")
		asked = append(asked, after)
		n := 0
		fmt.Sscanf(after, "evt_%d", &n)
		for i := n + 1; i <= n+2; i++ {
			event(w, fmt.Sprintf("evt_%d", i), "x", Event{ID: fmt.Sprintf("evt_%d", i), Type: "x"})
		}
		_, _ = io.WriteString(w, "event: live\ndata: {\"type\":\"live\"}\n\n") // has no id
		if n >= 2 {
			answerLost(w)
		}
		hangUp(w)
	})
	var got []string
	for e, err := range c.Events(t.Context(), EventQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "x" {
			got = append(got, e.ID)
		}
		if len(got) == 6 {
			break
		}
	}
	if want := []string{"evt_1", "evt_2", "evt_3", "evt_4", "evt_5", "evt_6"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if want := []string{"", "evt_2", "evt_4"}; !slices.Equal(asked, want) {
		t.Errorf("resumed after %v, want %v", asked, want)
	}
}

// TestEventsStored: what is on record ends where the daemon says so. A stream that
// ends without that was cut off, and goes on.
func TestEventsStored(t *testing.T) {
	var asked []string
	c := daemon(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"))
		n := len(asked)
		event(w, fmt.Sprintf("evt_%d", n), "x", Event{})
		if n == 2 {
			event(w, "", EventEnd, Event{Type: EventEnd})
			<-r.Context().Done()
		}
	})
	opened := 0
	count, last := drain(c.Events(t.Context(), EventQuery{Stored: true, Opened: func() { opened++ }}))
	if want := []string{"stored=1 ", "stored=1 evt_1"}; count != 2 || last != nil || opened != 2 || !slices.Equal(asked, want) {
		t.Errorf("%d events of %d streams, %v; asked for %q, want %q", count, opened, last, asked, want)
	}
}

// answerLost ends a stream in the middle of an event.
func answerLost(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "id: evt_99\ndata: {")
	_ = http.NewResponseController(w).Flush()
}

// TestEventsGiveUp: errors of the daemon itself, and a daemon that stays away,
// end the stream.
func TestEventsGiveUp(t *testing.T) {
	var n atomic.Int32
	answers := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { event(w, "evt_1", "x", Event{}) },
		func(w http.ResponseWriter) { answer(w, 503, Problem{Code: CodeOverloaded, Detail: "starting"}) }, // worth another attempt
		hangUp,
		func(w http.ResponseWriter) { event(w, "evt_2", "x", Event{}) },
		func(w http.ResponseWriter) { answer(w, 403, Problem{Code: CodeForbidden, Detail: "no"}) },
	}
	c := daemon(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { answers[n.Add(1)-1](w) })
	count, last := drain(c.Events(t.Context(), EventQuery{}))
	if e := new(Error); !errors.As(last, &e) || e.Code != CodeForbidden || count != 2 {
		t.Errorf("ended with %v after %d events, want forbidden after 2", last, count)
	}
	c = daemon(t, Options{Reconnect: 50 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 6 {
			event(w, "evt_1", "x", Event{})
		}
		hangUp(w)
	})
	if count, last = drain(c.Events(t.Context(), EventQuery{})); !errors.Is(last, ErrDisconnected) || count != 1 || n.Load() < 7 {
		t.Errorf("ended with %v after %d events, want ErrDisconnected after 1", last, count)
	}
	c = daemon(t, Options{Reconnect: -1}, func(w http.ResponseWriter, _ *http.Request) { event(w, "evt_1", "x", Event{}) })
	if count, last = drain(c.Events(t.Context(), EventQuery{})); !errors.Is(last, ErrDisconnected) || count != 1 {
		t.Errorf("without resuming: %v after %d events, want ErrDisconnected after 1", last, count)
	}
}

// drain counts the events of a stream and gives the error that ended it.
func drain(events func(func(Event, error) bool)) (n int, last error) {
	for _, err := range events {
		if last = err; err == nil {
			n++
		}
	}
	return n, last
}

// story is a daemon with one call, that breaks off where it is told to.
type story struct {
	output  string // of the call
	creates atomic.Int32
	follows atomic.Int32
	gets    atomic.Int32
	create  func(w http.ResponseWriter, n int32)
}

func (s *story) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == "POST":
		s.create(w, s.creates.Add(1))
	case strings.HasSuffix(r.URL.Path, "/output"):
		n := s.follows.Add(1)
		offset := 0
		fmt.Sscan(r.URL.Query().Get("offset"), &offset)
		if follow := r.URL.Query().Get("follow") == "1"; follow == r.URL.Query().Has("stream") {
			answer(w, 400, Problem{Code: CodeInvalidRequest, Detail: "whole outputs are followed, streams are not"})
			return
		}
		text := s.output[min(offset, len(s.output)):]
		if stream := r.URL.Query().Get("stream"); stream != "" {
			text = (stream + " of " + s.output)[offset:]
		}
		if n == 1 && len(text) > 2 {
			_, _ = io.WriteString(w, text[:2])
			_ = http.NewResponseController(w).Flush()
			hangUp(w) // breaks again
		}
		_, _ = io.WriteString(w, text)
	default:
		status := CallCompleted
		if s.gets.Add(1) == 1 {
			status = CallRunning // the daemon went away again: not the end
		}
		answer(w, 200, Call{ID: "call_1", SessionID: "ses_1", Status: status, Output: "result"})
	}
}

// run consumes a stream: the types of the events without output, and the output.
func run(t *testing.T, events func(func(Event, error) bool)) (kinds, output string, err error) {
	t.Helper()
	for e, err := range events {
		if err != nil {
			return kinds, output, err
		}
		if e.Type != "output" {
			kinds += e.Type + " "
			continue
		}
		var o Output
		if err := json.Unmarshal(e.Data, &o); err != nil {
			t.Fatal(err)
		}
		if o.Stream == "" && o.Offset != int64(len(output)) {
			t.Errorf("output at %d, %d were seen", o.Offset, len(output))
		}
		if e.Call != "call_1" {
			t.Errorf("output of call %q", e.Call)
		}
		output += string(o.Bytes())
	}
	return kinds, output, nil
}

// TestStreamCallResume: a call whose stream breaks in the middle of its output is
// taken to its end, every byte once.
func TestStreamCallResume(t *testing.T) {
	text := "0123456\xff89é"
	s := &story{output: text, create: func(w http.ResponseWriter, _ int32) {
		event(w, "evt_1", "pending", Call{ID: "call_1"})
		event(w, "evt_2", "running", Call{ID: "call_1"})
		event(w, "", "output", NewOutput("", 0, []byte(text[:8]))) // not UTF-8
		event(w, "", "metadata", map[string]any{})
		answerLost(w)
		hangUp(w)
	}}
	c := daemon(t, Options{}, s.serve)
	kinds, output, err := run(t, c.StreamCall(t.Context(), "ses_1", CallCreate{Tool: "bash"}, CallOptions{}))
	if err != nil || output != text || kinds != "pending running metadata completed " {
		t.Errorf("events %q, output %q, %v; want all of %q once", kinds, output, err, text)
	}
	if s.creates.Load() != 1 {
		t.Errorf("the call was made %d times", s.creates.Load())
	}
}

// TestStreamCallSplitResume: with stdout and stderr apart, each goes on where it broke.
func TestStreamCallSplitResume(t *testing.T) {
	s := &story{output: "x", create: func(w http.ResponseWriter, _ int32) {
		event(w, "", "pending", Call{ID: "call_1", SessionID: "ses_1"})
		event(w, "", "output", NewOutput("stdout", 0, []byte("stdout")))
		event(w, "", "output", NewOutput("stderr", 0, []byte("std")))
		hangUp(w)
	}}
	c := daemon(t, Options{}, s.serve)
	var out [2]string
	for e, err := range c.StreamCall(t.Context(), "by-name", CallCreate{}, CallOptions{Split: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "output" && (e.Session != "ses_1" || e.Call != "call_1" || e.Time.IsZero()) {
			t.Errorf("event of session %q, call %q, at %v", e.Session, e.Call, e.Time)
		}
		var o Output
		if e.Type == "output" && json.Unmarshal(e.Data, &o) == nil {
			i := slices.Index([]string{"stdout", "stderr"}, o.Stream)
			if int(o.Offset) != len(out[i]) {
				t.Errorf("%s at %d, %d were seen", o.Stream, o.Offset, len(out[i]))
			}
			out[i] += string(o.Bytes())
		}
	}
	if out != [2]string{"stdout of x", "stderr of x"} {
		t.Errorf("got %q", out)
	}
}

// TestStreamCallBeforeItsID: a connection that breaks before the daemon has said
// anything is tried again only where a key makes that safe.
func TestStreamCallBeforeItsID(t *testing.T) {
	s := &story{create: func(w http.ResponseWriter, n int32) {
		if n == 1 {
			hangUp(w)
		}
		event(w, "", "error", Call{ID: "call_1", Status: CallError})
	}}
	c := daemon(t, Options{}, s.serve)
	if kinds, _, err := run(t, c.StreamCall(t.Context(), "ses_1", CallCreate{Key: "k"}, CallOptions{})); err != nil || kinds != "error " || s.creates.Load() != 2 {
		t.Errorf("with a key: %q, %v after %d attempts; want the call after 2", kinds, err, s.creates.Load())
	}
	// The daemon is killed, is away for a moment, and then starting.
	away := &story{create: func(w http.ResponseWriter, n int32) {
		switch n {
		case 1:
			gone := c.Socket() + "-away"
			if err := os.Rename(c.Socket(), gone); err != nil {
				t.Error(err)
			}
			time.AfterFunc(100*time.Millisecond, func() { _ = os.Rename(gone, c.Socket()) })
			hangUp(w)
		case 2:
			answer(w, 503, Problem{Code: CodeOverloaded, Detail: "starting"})
		default:
			event(w, "", "error", Call{ID: "call_1", Status: CallError})
		}
	}}
	c = daemon(t, Options{}, away.serve)
	if kinds, _, err := run(t, c.StreamCall(t.Context(), "ses_1", CallCreate{Key: "k"}, CallOptions{})); err != nil || kinds != "error " {
		t.Errorf("with a key, of a daemon that comes back: %q, %v after %d attempts", kinds, err, away.creates.Load())
	}
	c = daemon(t, Options{}, s.serve)
	s.creates.Store(0)
	if _, _, err := run(t, c.StreamCall(t.Context(), "ses_1", CallCreate{}, CallOptions{})); !errors.Is(err, ErrDisconnected) || s.creates.Load() != 1 {
		t.Errorf("without a key: %v after %d attempts; want ErrDisconnected after 1", err, s.creates.Load())
	}
}

// TestStreamCallLeft: leaving the loop ends the stream, quietly.
func TestStreamCallLeft(t *testing.T) {
	s := &story{output: "abc", create: func(w http.ResponseWriter, _ int32) {
		event(w, "", "pending", Call{ID: "call_1"})
		hangUp(w)
	}}
	c := daemon(t, Options{}, s.serve)
	for _, after := range []int{1, 2} {
		n := 0
		for _, err := range c.StreamCall(t.Context(), "ses_1", CallCreate{}, CallOptions{}) {
			if err != nil {
				t.Error(err)
			}
			if n++; n == after {
				break
			}
		}
	}
}

func TestStreamCallNonsense(t *testing.T) {
	for _, kind := range []string{"output", "pending"} {
		s := &story{create: func(w http.ResponseWriter, _ int32) { event(w, "", kind, "x") }}
		c := daemon(t, Options{}, s.serve)
		if _, _, err := run(t, c.StreamCall(t.Context(), "ses_1", CallCreate{}, CallOptions{})); err == nil || !strings.Contains(err.Error(), "not the JSON expected") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestFollowCall(t *testing.T) {
	s := &story{output: "0123456789"}
	c := daemon(t, Options{}, s.serve)
	var got string
	var last Event
	for e, err := range c.FollowCall(t.Context(), "call_1", 4) {
		if err != nil {
			t.Fatal(err)
		}
		var o Output
		if last = e; e.Type == "output" && json.Unmarshal(e.Data, &o) == nil {
			got += string(o.Bytes())
		}
	}
	if got != "456789" || last.Type != "completed" || last.Session != "ses_1" {
		t.Errorf("output %q, last event %+v; want 456789 and completed", got, last)
	}
}
