package tool

import "testing"

// TestTraits: what is said of a tool agrees with itself and with what its calls ask for.
func TestTraits(t *testing.T) {
	for _, d := range NewRegistry().All() {
		if d.ReadOnly && (d.Destructive || !d.Idempotent) {
			t.Errorf("%s changes nothing, so it destroys nothing and may be repeated: %+v", d.Name, d.Traits)
		}
		writes := false
		for _, r := range d.decode(nil).Access(nil).Requests {
			writes = writes || r.Write
		}
		if d.ReadOnly && writes {
			t.Errorf("%s is read-only and asks to write", d.Name)
		}
		if writes && !d.Destructive {
			t.Errorf("%s writes files and says that it destroys nothing", d.Name)
		}
		if d.Command && !d.OpenWorld {
			t.Errorf("%s: a program is as open as its session: %+v", d.Name, d.Traits)
		}
	}
}
