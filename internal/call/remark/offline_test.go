package remark

import (
	"testing"
)

// What programs have printed that found no network, each as it stood on a terminal,
// and what others have that failed.
func TestOffline(t *testing.T) {
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
		if Offline(NoNetwork, "", text) != offlineHint {
			t.Errorf("no hint under %q", text)
		}
		if got := Offline("rules", text); got != "" {
			t.Errorf("with a network: %q", got)
		}
	}
	for _, text := range []string{
		"", "no such file or directory", "undefined: lookup", "FAIL: TestOffline", "connect: Connection refused",
		"error: package `x` is not in the index", "unknown hostname option",
	} {
		if got := Offline(NoNetwork, text); got != "" {
			t.Errorf("%q has %q under it", text, got)
		}
	}
}
