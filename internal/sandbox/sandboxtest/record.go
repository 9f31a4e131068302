package sandboxtest

import (
	"encoding/json"
	"reflect"
	"testing"
)

// SameJSON fails when two objects differ in a name or a value. Their order is not asked.
func SameJSON(t testing.TB, got, want string) {
	t.Helper()
	var g, w map[string]any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
