package docker

import (
	"os"
	"reflect"
	"testing"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/sandbox/state"
)

// earlierRecord is one as daemons before this one have written it.
const earlierRecord = `{
  "SessionID": "ses_1",
  "Incarnation": "one",
  "Owner": "me",
  "Runtime": "runc",
  "UIDBase": 65536,
  "PID": 7,
  "PIDStart": 8,
  "BootID": "now",
  "Container": "abc",
  "Engine": "ssh://one",
  "Group": "/toold/abc",
  "Divided": true,
  "Notes": [
    "a note"
  ],
  "IDMap": "copied"
}`

// Sessions outlive an upgrade: what earlier daemons have written is read, and what this
// one writes they read.
func TestEarlierRecord(t *testing.T) {
	d := fakeDriver(t, "")
	p := d.place("ses_1")
	must(t, os.Mkdir(p.Path, 0o700))
	must(t, os.WriteFile(p.File("record.json"), []byte(earlierRecord), 0o600))
	id := sandbox.ID{SessionID: "ses_1", Incarnation: "one", Owner: "me", UIDBase: 65536}
	want := &record{
		Base: near.Base{Base: state.Base{
			Record: sandbox.Record{ID: id, Runtime: "runc", PID: 7, PIDStart: 8},
			BootID: "now", Notes: []string{"a note"}, IDMap: "copied",
		}},
		Container: "abc", Engine: "ssh://one", Group: "/toold/abc", Divided: true,
	}
	got, err := p.read()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if list, err := d.places("me"); err != nil || len(list) != 1 || list[0] != want.Record {
		t.Errorf("listed %+v, %v", list, err)
	}
	must(t, p.Write(want))
	text, err := os.ReadFile(p.File("record.json"))
	must(t, err)
	sandboxtest.SameJSON(t, string(text), earlierRecord)
}
