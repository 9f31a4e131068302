package client

import "net/http"

// MCP is for libraries that speak the Model Context Protocol over streamable HTTP: the
// address of a session's tools, and the HTTP client that leads to the daemon, with the
// rights of c.
func (c *Client) MCP(session string) (endpoint string, h *http.Client) {
	return "http://toold" + sessionPath(session, "mcp"), &http.Client{Transport: identified{c}}
}

// identified sends requests of others as a client's own.
type identified struct{ c *Client }

// RoundTrip implements http.RoundTripper.
func (i identified) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	i.c.opts.identify(r.Header)
	return i.c.http.Transport.RoundTrip(r)
}
