package docker

import (
	"net/http"
	"testing"

	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/near"
)

// TestBaseAlone: whose the container's ids are on the host is known without the Engine, which may not answer when
// a worktree is laid anew.
func TestBaseAlone(t *testing.T) {
	t.Parallel()
	asked := 0
	d := fakeDriver(t, fakeEngine(t, map[string]http.HandlerFunc{"/info": func(w http.ResponseWriter, r *http.Request) {
		asked++
		says(500, `{"message":"it is stopped"}`)(w, r)
	}}))
	for _, o := range []loopdisk.Owners{
		{ToolUID: 1000, ToolGID: 1000},
		{RootUID: 7, RootGID: 8, ToolUID: 1007, ToolGID: 1008},
	} {
		s := &Sandbox{d: d, rec: &record{Base: near.Base{Owners: o}}}
		if got, err := s.base(t.Context()); err != nil || got != (ids{uint32(o.RootUID), uint32(o.RootGID)}) || asked > 0 {
			t.Errorf("%+v: got %+v, %v; asked %d times", o, got, err, asked)
		}
	}
	earlier := &Sandbox{d: d, rec: &record{}}
	if got, err := earlier.base(t.Context()); err == nil || asked != 1 {
		t.Errorf("of a record without them: %+v, %v; asked %d times", got, err, asked)
	}
}
