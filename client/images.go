package client

import (
	"context"
	"io"
	"net/url"
)

// ListImages lists the images that sessions can run.
func (c *Client) ListImages(ctx context.Context) (*List[Image], error) {
	return fetch[List[Image]](ctx, c, request{method: "GET", path: "/v1/images"})
}

// PullImage gets an image from its registry. progress, which may be nil, is told
// how far it has come, from the calling goroutine. For admins. The pull ends with
// ctx.
func (c *Client) PullImage(ctx context.Context, r ImagePull, progress func(ImageProgress)) (*Image, error) {
	return following[Image](ctx, c, request{method: "POST", path: "/v1/images", body: r}, "progress", func(p ImageProgress) {
		if progress != nil {
			progress(p)
		}
	})
}

// ImportImage makes an image of an archive: an OCI archive, what `docker save`
// writes, or a tar of a root file system, each also compressed with gzip or zstd.
// name is what sessions will ask for; it may be empty where the archive has names
// itself. For admins.
func (c *Client) ImportImage(ctx context.Context, name string, archive io.Reader) (*Image, error) {
	v := url.Values{}
	setNonEmpty(v, "name", name)
	// NopCloser keeps net/http from closing what is the caller's.
	return await[Image](ctx, c, request{method: "POST", path: "/v1/images/import", query: v, raw: io.NopCloser(archive)})
}

// RemoveImage removes a name, and with its last name or by its digest the image,
// unless a session runs it. For admins.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	return c.wait(ctx, request{method: "DELETE", path: "/v1/images/" + url.PathEscape(ref)}, nil)
}
