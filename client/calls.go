package client

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"strings"
)

// CallOptions say how an answer to CreateCall or StreamCall is wanted.
type CallOptions struct {
	// AbortOnDisconnect stops the call when this client goes away before it has
	// finished; else it goes on and stays readable by its id.
	AbortOnDisconnect bool
	// Split keeps stdout and stderr apart.
	Split bool
}

func (o CallOptions) values() url.Values {
	v := url.Values{}
	if o.AbortOnDisconnect {
		v.Set("on_disconnect", "abort")
	}
	if o.Split {
		v.Set("streams", "split")
	}
	return v
}

// CreateCall runs a tool and waits for the call to finish, at most r.WaitMillis
// when that is set: a call that has not finished by then is returned as it
// stands. A call that was denied or failed, or whose tool or input nothing takes, is
// returned too, with Status and Error; an error means that there is no call.
func (c *Client) CreateCall(ctx context.Context, session string, r CallCreate, o CallOptions) (*Call, error) {
	return await[Call](ctx, c, request{method: "POST", path: sessionPath(session, "calls"), query: o.values(), body: r})
}

// GetCall shows a call, running or finished.
func (c *Client) GetCall(ctx context.Context, id string) (*Call, error) {
	return fetch[Call](ctx, c, request{method: "GET", path: callPath(id)})
}

// CallQuery selects calls of a session.
type CallQuery struct {
	Status CallStatus
	Tool   string
	After  string // List.Next of the page before
	Limit  int    // 0 = the daemon's default
}

// ListCalls gives one page of a session's calls, oldest first.
func (c *Client) ListCalls(ctx context.Context, session string, q CallQuery) (*List[Call], error) {
	v := url.Values{}
	setNonEmpty(v, "status", string(q.Status))
	setNonEmpty(v, "tool", q.Tool)
	setPage(v, q.After, q.Limit)
	return fetch[List[Call]](ctx, c, request{method: "GET", path: sessionPath(session, "calls"), query: v})
}

// AbortCall stops a call and returns it when it has ended, with what it had printed:
// a command has some seconds to end by itself. A daemon that stops meanwhile returns it
// as it stands. The call is stopped also when ctx ends first; one that had ended before
// is returned as it ended.
func (c *Client) AbortCall(ctx context.Context, id string) (*Call, error) {
	return await[Call](ctx, c, request{method: "POST", path: callPath(id, "abort")})
}

// OutputQuery says which part of a call's whole output is wanted.
type OutputQuery struct {
	Offset int64
	// Follow goes on until the call has finished.
	Follow bool
	// Stream is "", "stdout" or "stderr"; the latter two for calls made with Split.
	Stream string
}

// CallOutput reads the whole saved output of a call, as raw bytes. The caller
// closes the reader.
func (c *Client) CallOutput(ctx context.Context, id string, q OutputQuery) (io.ReadCloser, error) {
	v := url.Values{}
	if q.Offset != 0 {
		v.Set("offset", strconv.FormatInt(q.Offset, 10))
	}
	setFlag(v, "follow", q.Follow)
	setNonEmpty(v, "stream", q.Stream)
	resp, err := c.do(ctx, request{method: "GET", path: callPath(id, "output"), query: v})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func callPath(id string, below ...string) string {
	return strings.Join(append([]string{"/v1/calls", url.PathEscape(id)}, below...), "/")
}
