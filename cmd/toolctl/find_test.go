package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// randomIDs are ids that often begin alike, as those that are made in the same second.
func randomIDs(r *rand.Rand) []string {
	ids := make([]string, r.IntN(12))
	for i := range ids {
		b := []byte("ses_000000000000000000000000")
		for range r.IntN(6) {
			b[4+r.IntN(len(b)-4)] = "01"[r.IntN(2)]
		}
		ids[i] = string(b)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// What a table shows of an id is the beginning of that id and of no other in it, so that
// it finds the session again.
func TestShortIDs(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		ids := randomIDs(r)
		r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for i, short := range shortIDs(ids) {
			if id, err := completeID(short, "ses_", ids); id != ids[i] || err != nil || len(short) < len("ses_")+minShown {
				t.Fatalf("seed %d: %q of %q finds %q, %v", seed, short, ids[i], id, err)
			}
		}
	}
	if got := shortIDs([]string{"x", "", "ses_1", "ses_1"}); !slices.Equal(got, []string{"x", "", "ses_1", "ses_1"}) {
		t.Errorf("%q", got)
	}
}

// completeID against a look at each id.
func TestCompleteID(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		ids := randomIDs(r)
		ref := "ses_000000000000000000000000"[:r.IntN(29)]
		var begin []string
		for _, id := range ids {
			if strings.HasPrefix(id, ref) {
				begin = append(begin, id)
			}
		}
		got, err := completeID(ref, "ses_", ids)
		switch {
		case !strings.HasPrefix(ref, "ses_") || len(begin) == 0:
			if got != "" || err != nil {
				t.Fatalf("seed %d: %q: %q, %v", seed, ref, got, err)
			}
		case len(ref) > 4 && (len(begin) == 1 || slices.Contains(begin, ref)):
			if err != nil || got != begin[0] {
				t.Fatalf("seed %d: %q: %q, %v, want %q", seed, ref, got, err, begin[0])
			}
		default:
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the beginning of %s: %s", plural(len(begin), "id"), begin[0])) {
				t.Fatalf("seed %d: %q: %q, %v", seed, ref, got, err)
			}
		}
	}
}

// A name goes to the daemon as it is, and so first; only what that does not find is
// looked for. What else was not found stays what it was.
func TestFindSession(t *testing.T) {
	live, old, older := session(), session(), session()
	old.ID, old.Name, old.State = "ses_77", "gone", client.SessionEnded
	older.ID, older.Name, older.State = "ses_66", "gone", client.SessionLost
	known := map[string]client.Session{live.ID: live, live.Name: live, old.ID: old, older.ID: older}
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions": func(w http.ResponseWriter, r *http.Request) {
			list := []client.Session{live}
			if r.URL.Query().Get("all") != "" {
				list = []client.Session{older, old, live}
			}
			answer(w, 200, client.List[client.Session]{Items: list})
		},
		"GET /v1/sessions/{id}": func(w http.ResponseWriter, r *http.Request) {
			s, ok := known[r.PathValue("id")]
			if !ok {
				answerProblem(w, 404, client.CodeNotFound, "no session")
				return
			}
			answer(w, 200, s)
		},
	})
	for _, c := range []struct {
		ref    string
		code   int
		stdout string
		stderr string
	}{
		{"review", 0, live.ID + "\n", ""},
		{"ses_01", 0, live.ID + "\n", ""},
		{"gone", 0, old.ID + "\n", "gone is the name of a session that has ended: ses_77"},
		{"ses_6", 0, older.ID + "\n", ""},
		{"ses_", 2, "", "ses_ is the beginning of 1 id: ses_0123; write more of it"},
		{"ses_8", 4, "", `no session has an id that is "ses_8" or begins so`},
		{"revie", 4, "", `no session is named "revie", did you mean "review"?`},
		{"01", 4, "", `no session is named "01"`},
	} {
		d.ctl("session", "show", c.ref, "-o", "name").want(t, c.code, c.stdout, c.stderr)
	}
	if n := len(d.asked("GET", "/sessions")); n > 18 { // two of them each to look among all tenants' for what is not there
		t.Errorf("%d lists were asked for", n)
	}
	// The session is there: it is the call that is not.
	d.ctl("session", "logs", "review", "call_9").want(t, 4, "", "the fake has no GET /v1/calls/call_9")
}
