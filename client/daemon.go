package client

import (
	"context"
	"encoding/json"
	"net/url"
)

// Version says what daemon answers.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	return fetch[Version](ctx, c, request{method: "GET", path: "/v1/version"})
}

// Health says whether the daemon is alive, also while it takes nothing yet: wait for Ready.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	return fetch[Health](ctx, c, request{method: "GET", path: "/v1/health", anyStatus: true})
}

// Ready says whether the daemon takes sessions and calls. A daemon that does not
// is no error: its Health has the reasons.
func (c *Client) Ready(ctx context.Context) (*Health, error) {
	return fetch[Health](ctx, c, request{method: "GET", path: "/v1/ready", anyStatus: true})
}

// Metrics gives the metrics in the Prometheus text format. For admins.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	return c.text(ctx, "/metrics")
}

// OpenAPI gives the API's OpenAPI 3.1 document as the daemon serves it.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return c.text(ctx, "/v1/openapi.json")
}

// text gives an answer as it is.
func (c *Client) text(ctx context.Context, path string) (b []byte, err error) {
	err = c.wait(ctx, request{method: "GET", path: path}, &b)
	return b, err
}

// Doctor reports what holds on the daemon's host; with probe it also looks from
// inside a throw-away session, which takes seconds. For admins.
func (c *Client) Doctor(ctx context.Context, probe bool) (*Doctor, error) {
	v := url.Values{}
	setFlag(v, "probe", probe)
	return await[Doctor](ctx, c, request{method: "GET", path: "/v1/doctor", query: v})
}

// GCRequest asks for a sweep.
type GCRequest struct {
	// DryRun finds and removes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Records includes the inputs and results of calls of sessions that are over,
	// as one Garbage of the kind GarbageRecords for each tenant. Their first 4 KiB
	// stay, and hashes of the inputs.
	Records bool `json:"records,omitempty"`
	// Unknown includes what belongs to sessions that are not on record, which is
	// kept until Garbage.KeptUntil otherwise. It may be all that is left of somebody's work.
	Unknown bool `json:"unknown,omitempty"`
}

// GC finds what sessions have left behind without an owner, and removes it
// unless r.DryRun. For admins.
func (c *Client) GC(ctx context.Context, r GCRequest) ([]Garbage, error) {
	return items(await[List[Garbage]](ctx, c, request{method: "POST", path: "/v1/gc", body: r}))
}

// Usage tells what each tenant uses. Who is no admin is told of their own.
func (c *Client) Usage(ctx context.Context) ([]TenantUsage, error) {
	return items(fetch[List[TenantUsage]](ctx, c, request{method: "GET", path: "/v1/usage"}))
}

// Config gives the settings that the daemon works with, in TOML: its configuration as
// it was read last, with variables and flags over it. For admins.
func (c *Client) Config(ctx context.Context) ([]byte, error) {
	return c.text(ctx, "/v1/config")
}

// DrainRequest is the body of Client.Drain.
type DrainRequest struct {
	Off bool `json:"off,omitempty"` // sessions begin again
}

// Drain has the daemon begin no new sessions, until it is called with off, or the daemon is
// stopped when none is left: requests are refused with 503, those that wait in a queue too. Sessions
// that are there go on, with their calls. It answers as Ready does then. For admins.
func (c *Client) Drain(ctx context.Context, off bool) (*Health, error) {
	return fetch[Health](ctx, c, request{method: "POST", path: "/v1/drain", body: DrainRequest{Off: off}})
}

// Reloaded is what a daemon says of the configuration that it has read again.
type Reloaded struct {
	// Warnings are settings and rules that may not do what they are meant to, each as
	// "FILE:LINE: text".
	Warnings []string `json:"warnings"`
	// AtStart are keys (section.name) of settings that were changed and that the next start
	// takes over.
	AtStart []string `json:"at_start"`
}

// Reload makes the daemon read its configuration again. A configuration with
// errors is refused with all of them and the old one stays. With dryRun it stays in any case.
// Daemons older than this method's result answer with an empty one, and know no dry run: to
// them it is an error. For admins.
func (c *Client) Reload(ctx context.Context, dryRun bool) (*Reloaded, error) {
	v := url.Values{}
	setFlag(v, "dry_run", dryRun)
	return fetch[Reloaded](ctx, c, request{method: "POST", path: "/v1/reload", query: v})
}

// fetch sends r and decodes its JSON answer, within HTTPTimeout.
func fetch[T any](ctx context.Context, c *Client, r request) (*T, error) {
	v := new(T)
	if err := c.call(ctx, r, v); err != nil {
		return nil, err
	}
	return v, nil
}

// await is fetch without a bound other than ctx.
func await[T any](ctx context.Context, c *Client, r request) (*T, error) {
	v := new(T)
	if err := c.wait(ctx, r, v); err != nil {
		return nil, err
	}
	return v, nil
}

// items are those of a list that has no pages.
func items[T any](l *List[T], err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return l.Items, nil
}

func setNonEmpty(v url.Values, key, value string) {
	if value != "" {
		v.Set(key, value)
	}
}

func setFlag(v url.Values, key string, on bool) {
	if on {
		v.Set(key, "1")
	}
}
