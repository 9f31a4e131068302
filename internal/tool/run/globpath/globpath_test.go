package globpath

import "testing"

func TestSplit(t *testing.T) {
	for _, tt := range []struct{ path, pattern, dir, rest string }{
		{"", "*.go", "", "*.go"},
		{"", "src/*.go", "", "src/*.go"},
		{"src", "*.go", "src", "*.go"},
		{"", "/etc/*.conf", "/etc", "/*.conf"},
		{"", "/etc/a/**/*.conf", "/etc/a", "/**/*.conf"},
		{"", "/etc/x{a,b}/c", "/etc", "/x{a,b}/c"},
		{"", "/*.go", "", "/*.go"},
		{"", "/**/x", "", "/**/x"},
		{"", "/etc/hosts", "/etc", "/hosts"},
		{"/etc", "/etc/*.conf", "/etc", "/etc/*.conf"},
		{"", "../x/*", "../x", "/*"},
		{"src", "../x/*", "src/../x", "/*"},
		{"", "a/../b/*.go", "a/../b", "/*.go"},
		{"", "../*", "..", "/*"},
		{"", "..", "", ".."},
		{"", "*/../x", "", "*/../x"},
		{"", "!/etc/*", "", "!/etc/*"},
	} {
		if dir, rest := Split(tt.path, tt.pattern); dir != tt.dir || rest != tt.rest {
			t.Errorf("%q, %q: %q, %q, want %q, %q", tt.path, tt.pattern, dir, rest, tt.dir, tt.rest)
		}
	}
}
