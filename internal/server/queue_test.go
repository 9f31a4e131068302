package server

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// CreateQueued has two before the request.
func (f *fakeAPI) CreateQueued(ctx context.Context, p auth.Principal, r client.SessionCreate, queued func(position int)) (*client.Session, error) {
	if r.Queue == 0 {
		return f.Create(ctx, p, r)
	}
	queued(2)
	queued(1)
	if r.Name == "late" {
		return nil, &client.Error{Code: client.CodeQuotaExceeded, Message: "no place", Hint: "end a session"}
	}
	return f.Create(ctx, p, r)
}

// TestQueued: a request that waits for a place is told its position, and then what
// came of it.
func TestQueued(t *testing.T) {
	d := start(t, nil)
	for name, code := range map[string]client.Code{"soon": "", "late": client.CodeQuotaExceeded} {
		var told []int
		s, err := d.client(client.Options{}).CreateQueued(t.Context(), client.SessionCreate{Name: name, Queue: client.Duration(time.Second)}, func(q client.SessionQueued) { told = append(told, q.Position) })
		if !slices.Equal(told, []int{2, 1}) {
			t.Errorf("%s: told %v", name, told)
		}
		switch {
		case code == "" && (err != nil || s.Name != name):
			t.Errorf("%s: %+v, %v", name, s, err)
		case code != "" && asError(t, err).Code != code:
			t.Errorf("%s: %v, want %s", name, err, code)
		}
	}
	// What is refused at once is an answer like any other.
	if resp, body := d.do(t, "POST", "/v1/sessions", `{"queue":"5"}`, "Accept", "text/event-stream"); resp.StatusCode != 400 || !strings.Contains(body, "5 what?") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestRetryAfter: what is overloaded, not ready or full says when to come again.
func TestRetryAfter(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	for path, want := range map[string]string{"late": "1", "echo": ""} {
		resp, body := d.do(t, "POST", "/v1/sessions/"+s.ID+"/calls", `{"tool":"`+path+`","input":{}}`, "Accept", "text/event-stream")
		if got := resp.Header.Get("Retry-After"); got != want {
			t.Errorf("%s: %d, Retry-After %q, want %q\n%s", path, resp.StatusCode, got, want, body)
		}
	}
	for _, id := range []string{"evt_1", "-1", "1,2,3", "x"} {
		if resp, body := d.do(t, "POST", "/v1/sessions/"+s.ID+"/calls", `{"key":"k","tool":"echo","input":{}}`, "Accept", "text/event-stream", "Last-Event-ID", id); resp.StatusCode != 400 {
			t.Errorf("Last-Event-ID %q: %d %s", id, resp.StatusCode, body)
		}
	}
}
