package session

import (
	"regexp"
	"slices"

	"github.com/toold/toold/client"
)

// noNetwork is client.Network.Mode of a session without a network.
const noNetwork = "none"

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
	if n.Mode != noNetwork {
		return nil
	}
	return offline
}

// lookup finds what programs print that could not look a name up, reach a host, or
// were told by offlineVariables not to try.
var lookup = regexp.MustCompile(`(?i)temporary failure (in name resolution|resolving)|name or service not known|` +
	`could not resolve (host|proxy)|couldn't resolve host|unable to resolve host|unknown ?host(exception)?\b|no such host|` +
	`nodename nor servname|no address associated with hostname|failed to lookup address|lookup \S+ on \S+:53|` +
	`\bEAI_AGAIN\b|\bENOTFOUND\b|\bENETUNREACH\b|network is unreachable|` +
	`\bENOTCACHED\b|disabled by GOPROXY=off|--offline was specified|network connectivity is disabled|` +
	`\(from versions: none\)`)

// offlineHint is the line under a failed result that speaks of names.
const offlineHint = "no network in this session: no name can be looked up and no host but this one reached, so trying again does not help. " +
	"Use what is installed or in the worktree, or ask for a session with the packages mounted"

// networkHint is offlineHint where the session has no network and text, what a failed
// program has printed, may be about that.
func (s *Session) networkHint(text ...string) string {
	s.mu.Lock()
	mode := s.row.Network.Mode
	s.mu.Unlock()
	if mode != noNetwork {
		return ""
	}
	if slices.ContainsFunc(text, lookup.MatchString) {
		return offlineHint
	}
	return ""
}
