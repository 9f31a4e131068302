package session

import (
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/tool"
)

// countedTools counts how often an input is decoded.
type countedTools struct {
	call.Tools
	n atomic.Int64
}

func (c *countedTools) Parse(name string, raw json.RawMessage) (*tool.Invocation, error) {
	c.n.Add(1)
	return c.Tools.Parse(name, raw)
}

func (c *countedTools) ParseHidden(name string, raw json.RawMessage) (*tool.Invocation, error) {
	c.n.Add(1)
	return c.Tools.ParseHidden(name, raw)
}

// TestInputIsDecodedOnce: a call's input is decoded when the call comes, and no step after
// that reads it again. That none does so by itself is for TestInputsAreRead in the root.
func TestInputIsDecodedOnce(t *testing.T) {
	h := newHouse(t)
	m := h.open()
	tools := &countedTools{Tools: m.calls.Tools}
	m.calls.Tools = tools
	s := h.create(alice, client.SessionCreate{})
	for _, tt := range []struct {
		name, tool, input string
		want              int64
	}{
		{"nothing to resolve", "bash", `{"command":"echo hello"}`, 1},
		{"a path, a directory, a timeout", "bash", `{"command":"echo hello > x","workdir":"/workspace","timeout":5000}`, 1},
		{"a repeat", "bash", `{"command":"echo hello"}`, 1},
		{"malformed", "bash", `{"command":1}`, 1},
	} {
		before := tools.n.Load()
		h.call(s.ID, client.CallCreate{Tool: tt.tool, Input: json.RawMessage(tt.input)})
		if got := tools.n.Load() - before; got != tt.want {
			t.Errorf("%s: the input was decoded %d times, want %d", tt.name, got, tt.want)
		}
	}
}
