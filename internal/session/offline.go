package session

import (
	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
)

// offline are variables that tell package managers that there is no network: they
// say so at once, where they would try for a minute. The session's own stand over
// these. pip has no such variable that leaves an index in a file or on this host
// alone; without retries it gives up at once.
var offline = map[string]string{
	"npm_config_offline": "true",
	"PIP_RETRIES":        "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
	"UV_OFFLINE":        "1",
	"CARGO_NET_OFFLINE": "true",
	"GOPROXY":           "off",
}

// offlineVariables are those of a session with this network.
func offlineVariables(n client.Network) map[string]string {
	if n.Mode != call.NoNetwork {
		return nil
	}
	return offline
}
