package session

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// logLines collects the lines of a log.
type logLines struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// find gives the last line with this message; nil for none.
func (l *logLines) find(message string) (found map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.b.Bytes()) {
		var v map[string]any
		if json.Unmarshal(line, &v) == nil && v["msg"] == message {
			found = v
		}
	}
	return found
}

// TestLogOfACall: the line of a call says whose it is, how it ended and how long it
// took, in a unit that its name has.
func TestLogOfACall(t *testing.T) {
	h, log := newHouse(t), &logLines{}
	h.log = slog.New(slog.NewJSONHandler(log, nil))
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c := h.call(s.ID, bashCall("sleep 20; exit 7"))
	var v map[string]any
	testrig.Eventually(t, "its line", func() bool { v = log.find("call finished"); return v != nil })
	for name, want := range map[string]any{
		"session": s.ID, "tenant": "a", "call": c.ID, "tool": "bash", "status": "completed", "is_error": true, "reason": "exit", "exit_code": 7.0,
	} {
		if v[name] != want {
			t.Errorf("%s is %v, want %v", name, v[name], want)
		}
	}
	if ms, ok := v["duration_ms"].(float64); !ok || ms < 20 || ms > 60_000 || v["duration"] != nil {
		t.Errorf("duration_ms is %v", v["duration_ms"])
	}
}
