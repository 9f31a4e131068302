package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
)

// A profile's own length of outputs holds for its sessions and no others.
func TestTruncationOfAProfile(t *testing.T) {
	h := newHouse(t)
	short := h.set.Truncate
	short.MaxLines = 10
	h.set.ProfileTruncate = map[string]output.Limits{"ci": short}
	h.open()
	long := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"long","content":""}`)}
	for profile, want := range map[string]int{"ci": 10, "build": 2000} {
		s := h.create(alice, client.SessionCreate{Profile: profile})
		if c := h.call(s.ID, long); strings.Count(c.Output, "a line") != want {
			t.Errorf("%s: %d lines, want %d", profile, strings.Count(c.Output, "a line"), want)
		}
	}
}

// The direction "auto" is the tool's own, also over another one that holds for all.
func TestTruncationAuto(t *testing.T) {
	h := newHouse(t)
	h.set.Truncate.Direction = "tail"
	h.set.ProfileTruncate = map[string]output.Limits{"ci": {Direction: "auto"}}
	h.open()
	long := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"long","content":""}`)}
	for profile, head := range map[string]bool{"ci": true, "build": false} {
		s := h.create(alice, client.SessionCreate{Profile: profile})
		out := beforeMark(t, h.call(s.ID, long).Output)
		if strings.HasPrefix(out, "a line") != head || !strings.HasSuffix(out, "a line of text\n") {
			t.Errorf("%s: %.60q …", profile, out)
		}
	}
}

// What is set for a tool goes before that, key by key, and for no other tool.
func TestTruncationOfATool(t *testing.T) {
	h := newHouse(t)
	short := h.set.Truncate
	short.MaxLines = 10
	h.set.ProfileTruncate = map[string]output.Limits{"ci": short}
	h.set.ToolTruncate = map[string]output.Limits{"write": {MaxLines: 7, Direction: "tail"}, "edit": {MaxLines: 3}}
	h.open()
	long := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"long","content":""}`)}
	for _, profile := range []string{"ci", "build"} {
		s := h.create(alice, client.SessionCreate{Profile: profile})
		if c := h.call(s.ID, long); strings.Count(c.Output, "a line") != 7 || strings.HasPrefix(c.Output, "a line") {
			t.Errorf("%s: %d lines, want the last 7: %.60q", profile, strings.Count(c.Output, "a line"), c.Output)
		}
	}
}
