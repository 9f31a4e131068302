package session

import (
	"slices"
	"testing"

	"github.com/toold/toold/client"
)

// Package managers are told that there is no network, where there is none, and unless
// image or session say otherwise.
func TestOfflineVariables(t *testing.T) {
	got := environment(offlineVariables(client.Network{Mode: noNetwork}),
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

// What programs have printed that found no network, each as it stood on a terminal,
// and what others have that failed.
func TestNetworkHint(t *testing.T) {
	none, rules := &Session{}, &Session{}
	none.row.Network.Mode, rules.row.Network.Mode = noNetwork, "rules"
	for _, text := range []string{
		"curl: (6) Could not resolve host: example.com",
		"wget: unable to resolve host address ‘example.com’",
		"bash: example.com: Temporary failure in name resolution",
		"ssh: Could not resolve hostname example.com: Name or service not known",
		"npm error code ENOTCACHED\nnpm error request to https://npm.example/left-pad failed",
		"npm error code EAI_AGAIN",
		"Error: getaddrinfo ENOTFOUND example.com",
		"ERROR: Could not find a version that satisfies the requirement foo (from versions: none)",
		"go: example.com/y@latest: module lookup disabled by GOPROXY=off",
		`Get "https://proxy.example/x": dial tcp: lookup proxy.example on [::1]:53: read udp: connection refused`,
		"Caused by:\n  attempting to make an HTTP request, but --offline was specified",
		"error: Failed to fetch\n  Caused by: Network connectivity is disabled, but the requested data wasn't found in the cache",
		"Temporary failure resolving 'deb.debian.org'",
		"java.net.UnknownHostException: example.com",
		"connect: Network is unreachable",
		"error trying to connect: dns error: failed to lookup address information",
	} {
		if none.networkHint("", text) != offlineHint {
			t.Errorf("no hint under %q", text)
		}
		if got := rules.networkHint(text); got != "" {
			t.Errorf("with a network: %q", got)
		}
	}
	for _, text := range []string{
		"", "no such file or directory", "undefined: lookup", "FAIL: TestOffline", "connect: Connection refused",
		"error: package `x` is not in the index", "unknown hostname option",
	} {
		if got := none.networkHint(text); got != "" {
			t.Errorf("%q has %q under it", text, got)
		}
	}
}
