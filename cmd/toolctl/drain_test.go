package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestDrain: what is asked of the daemon, and what is said of the sessions of all tenants that are left.
func TestDrain(t *testing.T) {
	other := session()
	other.Tenant, other.Name = "ci", "build"
	d := startFake(t, map[string]http.HandlerFunc{
		"POST /v1/drain":   answerWith(client.Health{Status: "draining"}),
		"GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{session(), other}}),
	})
	d.ctl("drain", "--timeout", "0").want(t, exitTimeout, "build", "2 sessions left")
	if q := d.asked("GET", "/sessions")[0].query; !strings.Contains(q, "tenant=%2A") {
		t.Errorf("asked for the sessions of %q", q)
	}
	d.ctl("drain", "--off").want(t, 0, "new sessions begin again", "")
	for i, want := range []string{"{}", `{"off":true}`} {
		if got := string(d.asked("POST", "/drain")[i].body); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}
