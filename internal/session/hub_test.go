package session

import (
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/event"
)

// What is on record ends with an event that says so, and has everything in it that
// somebody has been told.
func TestStoredEvents(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for _, tt := range []struct {
		filter event.Filter
		want   string
	}{
		{event.Filter{Stored: true}, "session.created call.pending call.running call.completed end"},
		{event.Filter{Stored: true, Session: s.ID, Type: "call.completed"}, "call.completed call.completed end"},
		{event.Filter{Stored: true, Type: "file.*"}, "end"},
	} {
		h.call(s.ID, bashCall("echo hello"))
		events, err := h.m.Events.Events(t.Context(), alice, tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for e := range events {
			got = append(got, e.Type)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%+v: got %v, want %s", tt.filter, got, tt.want)
		}
	}
}
