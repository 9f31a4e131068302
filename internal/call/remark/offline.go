package remark

import (
	"regexp"
	"slices"
)

// NoNetwork is client.Network.Mode of a session without a network.
const NoNetwork = "none"

// lookup finds what programs print that could not look a name up, reach a host, or
// were told by their environment not to try.
var lookup = regexp.MustCompile(`(?i)temporary failure (in name resolution|resolving)|name or service not known|` +
	`could not resolve (host|proxy)|couldn't resolve host|unable to resolve host|unknown ?host(exception)?\b|no such host|` +
	`nodename nor servname|no address associated with hostname|failed to lookup address|lookup \S+ on \S+:53|` +
	`\bEAI_AGAIN\b|\bENOTFOUND\b|\bENETUNREACH\b|network is unreachable|` +
	`\bENOTCACHED\b|disabled by GOPROXY=off|--offline was specified|network connectivity is disabled|` +
	`\(from versions: none\)`)

// offlineHint is the line under a failed result that speaks of names.
const offlineHint = "no network in this session: no name can be looked up and no host but this one reached, so trying again does not help. " +
	"Use what is installed or in the worktree, or ask for a session with the packages mounted"

// Offline is what to say where mode is that of a session without a network, and text, what a failed
// program has printed, may be about that; else "".
func Offline(mode string, text ...string) string {
	if mode != NoNetwork {
		return ""
	}
	if slices.ContainsFunc(text, lookup.MatchString) {
		return offlineHint
	}
	return ""
}
