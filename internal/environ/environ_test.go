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
