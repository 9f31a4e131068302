package environ

import (
	"slices"
	"strings"
	"testing"
)

// Package managers are told that there is no network, where there is none, and unless
// image or session say otherwise.
func TestOfflineVariables(t *testing.T) {
	got := Tools(None,
		map[string]string{"PATH": "/bin", "UV_OFFLINE": "0"}, map[string]string{"GOPROXY": "file:///cache"})
	for _, want := range []string{"npm_config_offline=true", "PIP_RETRIES=0", "CARGO_NET_OFFLINE=true", "UV_OFFLINE=0", "GOPROXY=file:///cache"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in %q", want, got)
		}
	}
	for _, kv := range Tools(Transparent, nil, nil) {
		if name, _, _ := strings.Cut(kv, "="); offline[name] != "" {
			t.Errorf("with a network: %v", kv)
		}
	}
}

// TestRelativePath: no PATH has a directory that depends on where a command runs.
func TestRelativePath(t *testing.T) {
	for value, ok := range map[string]bool{
		"/bin": true, "/usr/bin:/bin": true, "/a b:/c": true,
		"": false, ".": false, "bin:/bin": false, "/bin:": false, ":/bin": false, "/bin::/usr/bin": false, "~/bin:/bin": false, "/bin:./x": false,
	} {
		if err := Check(map[string]string{"PATH": value}); (err == nil) != ok {
			t.Errorf("PATH=%q: %v", value, err)
		}
	}
}
