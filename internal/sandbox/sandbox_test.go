package sandbox

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// Daemons before and after this one read the same records.
func TestRecordStays(t *testing.T) {
	const earlier = `{"SessionID":"ses_1","Incarnation":"one","Owner":"me","Runtime":"runc","UIDBase":65536,"PID":7,"PIDStart":8}`
	want := Record{
		ID:      ID{SessionID: "ses_1", Incarnation: "one", Owner: "me", UIDBase: 65536},
		Runtime: "runc", PID: 7, PIDStart: 8,
	}
	var got Record
	if err := json.Unmarshal([]byte(earlier), &got); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	written, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var fields, earlierFields map[string]any
	if err := json.Unmarshal(written, &fields); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(earlier), &earlierFields); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(fields, earlierFields) {
		t.Errorf("fields %q, and were %q", slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(earlierFields)))
	}
}

// A name alone is not the sandbox.
func TestSame(t *testing.T) {
	one := ID{SessionID: "ses_1", Incarnation: "one", Owner: "me", UIDBase: 65536}
	for name, tt := range map[string]struct {
		other ID
		same  bool
	}{
		"itself":               {one, true},
		"without its ids":      {ID{SessionID: "ses_1", Incarnation: "one", Owner: "me"}, true},
		"another's":            {ID{SessionID: "ses_1", Incarnation: "one", Owner: "you"}, false},
		"an earlier one":       {ID{SessionID: "ses_1", Incarnation: "none", Owner: "me"}, false},
		"of another session's": {ID{SessionID: "ses_2", Incarnation: "one", Owner: "me"}, false},
	} {
		if got := one.Same(&tt.other); got != tt.same {
			t.Errorf("%s: %v", name, got)
		}
	}
}
