package call

import (
	"errors"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/environ"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/strictjson"
)

// ErrLeaving is why the context of a session ends that goes on without this daemon.
var ErrLeaving = errors.New("the daemon is leaving; the session goes on without it")

// Bounds of what a request may hold.
const (
	maxTTL   = 10 * 365 * 24 * time.Hour
	maxText  = 256 // key, message_id, agent, model
	maxExtra = 64 << 10
)

// shown is what a message may quote of something that a client sent.
func shown(s string) string { return plain.Cut(s, 80) }

func noCall(id string) error {
	return fault.NotFound.Errorf("there is no call %q", shown(id)).
		Next("toolctl session logs SESSION --short lists the calls of a session, as GET /v1/sessions/SESSION/calls does")
}

// check refuses what no call of the session may ask for, whatever its tool.
func (s *site) check(r *client.CallCreate) error {
	wall := time.Duration(s.limits.Wall).Milliseconds()
	if r.TimeoutMillis < 0 || r.TimeoutMillis > maxTTL.Milliseconds() {
		return fault.In(fault.Invalid.Errorf("timeout_ms is %d; give 1 or more milliseconds, or leave it out", r.TimeoutMillis), "timeout_ms")
	}
	if wall > 0 && r.TimeoutMillis > wall {
		return fault.In(fault.Invalid.Errorf("timeout_ms is %d; limits.wall of this session is %d ms", r.TimeoutMillis, wall), "timeout_ms")
	}
	for _, f := range []struct{ name, value string }{
		{"key", r.Key}, {"message_id", r.MessageID}, {"agent", r.Agent}, {"model", r.Model},
	} {
		if len(f.value) > maxText || !plain.Printable(f.value) {
			return fault.In(fault.Invalid.Errorf("%s is UTF-8 text without control characters, at most %d bytes", f.name, maxText), f.name)
		}
	}
	if len(r.Extra) > maxExtra {
		return fault.In(fault.Invalid.Errorf("extra has %d bytes; at most %d", len(r.Extra), maxExtra), "extra")
	}
	if len(r.Extra) > 0 && !strictjson.IsObject(r.Extra) {
		return fault.In(fault.Invalid.Errorf("extra is not a JSON object"), "extra")
	}
	if r.WaitMillis != nil && *r.WaitMillis < 0 {
		return fault.In(fault.Invalid.Errorf("wait_ms is %d; give 0 to answer at once, or leave it out to wait for the end", *r.WaitMillis), "wait_ms")
	}
	return environ.Check(r.Env)
}

// asObject is m, which in JSON is an object and never null.
func asObject(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}
