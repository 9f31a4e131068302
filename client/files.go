package client

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
)

// PutFile writes one file of a session's sandbox from r, as the tool user. path
// is absolute or relative to the worktree; mode 0 means 0644. It is recorded as
// a call; one that could not write has status error and is not a Go error.
func (c *Client) PutFile(ctx context.Context, session, path string, mode fs.FileMode, r io.Reader) (*Call, error) {
	v := url.Values{"path": {path}}
	if mode != 0 {
		v.Set("mode", fmt.Sprintf("%04o", mode.Perm()))
	}
	// A reader of no known length is sent in chunks; NopCloser keeps net/http
	// from closing what is the caller's.
	return await[Call](ctx, c, request{method: "PUT", path: sessionPath(session, "files"), query: v, raw: io.NopCloser(r)})
}

// GetFile reads one file of a session's sandbox. size is -1 when unknown. The
// caller closes the reader.
func (c *Client) GetFile(ctx context.Context, session, path string) (r io.ReadCloser, size int64, err error) {
	resp, err := c.do(ctx, request{method: "GET", path: sessionPath(session, "files"), query: url.Values{"path": {path}}})
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}
