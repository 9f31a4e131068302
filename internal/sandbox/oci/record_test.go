package oci

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/sandbox/state"
)

// These are a record and a configuration as daemons before this one have written them.
const (
	earlierRecord = `{
  "SessionID": "ses_1",
  "Incarnation": "one",
  "Owner": "me",
  "Runtime": "runsc",
  "UIDBase": 65536,
  "PID": 7,
  "PIDStart": 8,
  "BootID": "now",
  "Notes": [
    "a note"
  ],
  "IDMap": "idmapped",
  "Dials": true,
  "Disk": true
}`
	earlierConfig = `{"annotations":{"toold.incarnation":"one","toold.owner":"me","toold.runtime":"runsc","toold.session":"ses_1","toold.uid-base":"65536"}}`
)

// Sessions outlive an upgrade: what earlier daemons have written is read, and what this
// one writes they read.
func TestEarlierRecord(t *testing.T) {
	b := bundle{state.Dir{Path: filepath.Join(t.TempDir(), "ses_1")}}
	if err := os.Mkdir(b.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"record.json": earlierRecord, "config.json": earlierConfig} {
		if err := os.WriteFile(b.File(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id := sandbox.ID{SessionID: "ses_1", Incarnation: "one", Owner: "me", UIDBase: 65536}
	want := &record{
		Base: near.Base{Base: state.Base{
			Record: sandbox.Record{ID: id, Runtime: "runsc", PID: 7, PIDStart: 8},
			BootID: "now", Notes: []string{"a note"}, IDMap: "idmapped",
		}},
		Dials: true, Disk: true,
	}
	got, err := b.read()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := b.Write(want); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(b.File("record.json"))
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.SameJSON(t, string(text), earlierRecord)
}
