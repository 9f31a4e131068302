package session

import "testing"

// TestTellsOf: variables by which programs find what is mounted.
func TestTellsOf(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]bool{
		"GOMODCACHE=/data/mod": true, "D=/data": true, "PATH=/usr/bin:/data/bin": true, "PIP_FIND_LINKS=file:///data/simple": true, "GOPROXY=file:///data,off": true,
		"CFLAGS=-O2 -I/data/include": true, "LDFLAGS=-L/data/": true, "A='/data/x'": true,
		"HOME=/home/tool": false, "D=/database": false, "D=data": false, "D=/workspace/data": false, "ROOT=/": false, "EMPTY=": false, "URL=https://data/data": false, "PATH=/usr/local/bin:/usr/bin": false,
	} {
		if tellsOf(variable, "/data") != want {
			t.Errorf("%s: %v", variable, !want)
		}
	}
	if !tellsOf("MODELS=/mnt", "/mnt/models") {
		t.Error("a directory above it")
	}
}
