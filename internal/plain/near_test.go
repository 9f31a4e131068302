package plain

import "testing"

func TestAlike(t *testing.T) {
	for _, tt := range []struct {
		name, other string
		want        bool
	}{
		{"bash", "bash", true},
		{"bahs", "bash", true},
		{"task", "bash", false},
		{"gre", "grep", true},
		{"ls", "list", false},
		{"todowrite", "write", false},
		{"", "", true},
		{"", "a", false},
		{"äö", "öä", false},
		{"häuser", "häsuer", true},
		{"main.go", "main.sock", false},
		{"ab", "ba", false},
		{"abc", "bca", false},
	} {
		if _, ok := Alike(tt.name, tt.other); ok != tt.want {
			t.Errorf("%q and %q: %t", tt.name, tt.other, ok)
		}
	}
}
