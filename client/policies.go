package client

import "context"

// ExplainPolicy says how a call would be judged, and by which rules. Nothing runs.
func (c *Client) ExplainPolicy(ctx context.Context, r PolicyExplain) (*PolicyVerdict, error) {
	return fetch[PolicyVerdict](ctx, c, request{method: "POST", path: "/v1/policy/explain", body: r})
}

// ReplayPolicy judges recorded calls under another ruleset and gives those whose
// verdict changes. It takes as long as there are calls. For admins.
func (c *Client) ReplayPolicy(ctx context.Context, r PolicyReplay) (*PolicyReplayed, error) {
	return await[PolicyReplayed](ctx, c, request{method: "POST", path: "/v1/policy/replay", body: r})
}

// SessionNetwork says what a session reached by network, or wanted to: a line for each host
// and verdict.
func (c *Client) SessionNetwork(ctx context.Context, session string) (*SessionNetwork, error) {
	return fetch[SessionNetwork](ctx, c, request{method: "GET", path: sessionPath(session, "network")})
}
