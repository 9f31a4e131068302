package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestNotesAreSaidOnce: what earlier sessions had said already is not said again, and
// what is said fits on a line.
func TestNotesAreSaidOnce(t *testing.T) {
	long := "the new cause " + strings.Repeat("x", 200)
	created, before := session(), session()
	before.ID, before.Notes = "ses_before", []string{"the known cause"}
	created.Notes = []string{"the known cause", long}
	list := client.List[client.Session]{Items: []client.Session{before, created}}
	d := startFake(t, map[string]http.HandlerFunc{"POST /v1/sessions": answerWith(created), "GET /v1/sessions": answerWith(&list)})
	r := d.ctl("session", "create")
	r.want(t, 0, fakeSession, "said once; toolctl session show "+fakeSession)
	if strings.Contains(r.stderr, "known") || !strings.Contains(r.stderr, "note: the new cause x") || strings.Contains(r.stderr, long) {
		t.Errorf("printed %q", r.stderr)
	}
	list.Items[0].Notes = created.Notes
	if r := d.ctl("session", "create"); r.code != 0 || r.stderr != "" {
		t.Errorf("the second time: code %d, %q", r.code, r.stderr)
	}
}
