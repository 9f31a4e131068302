package client

import "time"

// Modes of Network.
const (
	NetworkNone  = "none"
	NetworkRules = "rules"
)

// NetworkRecord is a connection that a session wanted, or a request that was seen on one: the
// data of the events network.allowed, network.denied, network.asked and network.lost.
type NetworkRecord struct {
	Permission string `json:"permission"` // network or http
	To         string `json:"to"`         // host:port, or METHOD URL; "" of network.lost, and of one that failed before it was seen where it goes
	Verdict    string `json:"verdict"`    // allow, deny or ask
	Rule       string `json:"rule,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Error says why one that was allowed failed.
	Error string `json:"error,omitempty"`
	// Address is what was dialled.
	Address string `json:"address,omitempty"`
	// Calls may have opened it, the likeliest first; Exact says that the first did.
	Calls []string `json:"calls,omitempty"`
	Exact bool     `json:"exact,omitempty"`
	Up    int64    `json:"up_bytes"` // to the far side
	Down  int64    `json:"down_bytes"`
	// DurationMillis is how long it was open.
	DurationMillis int64 `json:"duration_ms"`
	// LeftOut counts records that were not stored since the last one, for their number.
	LeftOut int64 `json:"left_out,omitempty"`
}

// NetworkHost is what a session had to do with one host and port, or with one host by
// requests, and one verdict.
type NetworkHost struct {
	Permission string    `json:"permission"`
	To         string    `json:"to"` // host:port; of http METHOD SCHEME://HOST
	Verdict    string    `json:"verdict"`
	Rule       string    `json:"rule,omitempty"`
	Count      int64     `json:"count"`
	Failed     int64     `json:"failed,omitempty"`
	Up         int64     `json:"up_bytes"`
	Down       int64     `json:"down_bytes"`
	Last       time.Time `json:"last"`
}

// SessionNetwork is what a session reached, or wanted to.
type SessionNetwork struct {
	Mode  string        `json:"mode"`
	Learn bool          `json:"learn"` // what no line is about is allowed
	Hosts []NetworkHost `json:"hosts"`
	// LeftOut counts connections that are not in Hosts, for their number.
	LeftOut int64 `json:"left_out,omitempty"`
}
