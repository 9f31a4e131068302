package sandboxtest

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// SameJSON fails when two objects differ in a name or a value. Their order is not asked.
func SameJSON(t testing.TB, got, want string) {
	t.Helper()
	var g, w map[string]any
	testrig.Must(t, json.Unmarshal([]byte(got), &g))
	testrig.Must(t, json.Unmarshal([]byte(want), &w))
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
