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

// Tree is a directory of a session's sandbox, which moves as a tar. Dir is absolute or
// relative to the worktree.
type Tree struct {
	Client       *Client
	Session, Dir string
}

// Put unpacks a tar from r into the directory, as the tool user. It is made where it is
// missing; files that are there are replaced, and nothing is written through a link. Names
// are relative to the directory. It is recorded as a call; one that could not write
// everything has is_error, and its output says what it wrote.
func (t Tree) Put(ctx context.Context, r io.Reader) (*Call, error) {
	q := t.request("PUT")
	q.raw = io.NopCloser(r)
	return await[Call](ctx, t.Client, q)
}

// Get reads the directory as a tar of what is below it. Names are relative to it, and
// hostile, as the links are. The reader ends with an error where the tar does not arrive
// whole. call is the id of the call that packs: its output says what was left out when the
// reader has ended. The caller closes the reader.
func (t Tree) Get(ctx context.Context) (r io.ReadCloser, call string, err error) {
	resp, err := t.Client.do(ctx, t.request("GET"))
	if err != nil {
		return nil, "", err
	}
	return resp.Body, resp.Header.Get("Toold-Call"), nil
}

func (t Tree) request(method string) request {
	return request{method: method, path: sessionPath(t.Session, "files"), query: url.Values{"path": {t.Dir}, "archive": {"tar"}}}
}
