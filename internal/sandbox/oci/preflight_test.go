package oci

import "testing"

func TestMapped(t *testing.T) {
	for _, tt := range []struct {
		text string
		base uint32
		want bool
	}{
		{"         0          0 4294967295\n", 1879048192, true},
		{"         0       1000          1\n", 1879048192, false},
		{"0 1000 1\n1 100000 65536\n", 65536, false},
		{"0 1000 1\n1 100000 131072\n", 65536, true},
		{"0 0 131071\n", 65536, false},
		{"0 0 131072\n", 65536, true},
		{"no map\n", 65536, false},
		{"", 65536, false},
	} {
		if got := mapped(tt.text, tt.base); got != tt.want {
			t.Errorf("%q, %d: %v", tt.text, tt.base, got)
		}
	}
}
