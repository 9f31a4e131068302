package session

import (
	"slices"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
)

// Package managers are told that there is no network, where there is none, and unless
// image or session say otherwise.
func TestOfflineVariables(t *testing.T) {
	got := environment(offlineVariables(client.Network{Mode: call.NoNetwork}),
		map[string]string{"PATH": "/bin", "UV_OFFLINE": "0"}, map[string]string{"GOPROXY": "file:///cache"})
	for _, want := range []string{"npm_config_offline=true", "PIP_RETRIES=0", "CARGO_NET_OFFLINE=true", "UV_OFFLINE=0", "GOPROXY=file:///cache"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in %q", want, got)
		}
	}
	if got := offlineVariables(client.Network{Mode: "rules"}); got != nil {
		t.Errorf("with a network: %v", got)
	}
}
