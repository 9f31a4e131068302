package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// Diff gives what differs as a patch that `git apply` takes. Its bytes are a sandbox's
// and may be hostile. One that ends in an error is not whole. The caller closes it; After
// and Limit of q must be empty.
func (c *Client) Diff(ctx context.Context, session string, q DiffQuery) (*Patch, error) {
	resp, err := c.do(ctx, request{method: "GET", path: sessionPath(session, "diff"), query: q.values()}) //nolint:bodyclose // the caller of Diff does
	if err != nil {
		return nil, err
	}
	return &Patch{ReadCloser: resp.Body, trailer: &resp.Trailer}, nil
}

// Patch is a patch that is read as it comes. One that is made of a ReadCloser alone counts nothing.
type Patch struct {
	io.ReadCloser
	trailer *http.Header
}

// Read implements io.Reader.
func (p *Patch) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if err != nil && err != io.EOF { //nolint:errorlint // an io.Reader's end is io.EOF itself
		err = fmt.Errorf("the patch is not whole: %w", err)
	}
	return n, err
}

// The trailers of a patch have the counts of Patch.Missing, Omitted, Converted, Stale, SourceChanged and
// Incomplete, and SourceAstray and Earlier.
const (
	HeaderLeftOut       = "Toold-Left-Out"
	HeaderUnreadable    = "Toold-Unreadable"
	HeaderExcluded      = "Toold-Excluded"
	HeaderIgnored       = "Toold-Ignored"
	HeaderConverted     = "Toold-Converted"
	HeaderStale         = "Toold-Stale"
	HeaderSourceChanged = "Toold-Source-Changed"
	HeaderIncomplete    = "Toold-Incomplete"
	HeaderSourceAstray  = "Toold-Source-Astray"
	HeaderEarlier       = "Toold-Earlier"
)

// MaxPatched is how many bytes a file of a patch has at most: git keeps all of it in memory.
const MaxPatched = 512 << 20

// Missing says, once the patch was read to its end, how many changes are not in it: those
// that a patch cannot say (git takes nothing of .git, no FIFOs, no files of more than MaxPatched,
// and no permissions but the executable bit), and those that could not be compared. Directories are not counted.
func (p *Patch) Missing() (leftOut, unreadable int) {
	return p.count(HeaderLeftOut), p.count(HeaderUnreadable)
}

// Omitted says, once the patch was read to its end, how many changes Exclude and NoIgnored of
// the query left out.
func (p *Patch) Omitted() (excluded, ignored int) {
	return p.count(HeaderExcluded), p.count(HeaderIgnored)
}

// Converted says, once the patch was read to its end, how many files it changes that git stores otherwise than
// they lie in the worktree, by a .gitattributes file of the source: a filter, a working-tree-encoding or
// ident. git apply refuses a patch with one, where a filter is set up.
func (p *Patch) Converted() int { return p.count(HeaderConverted) }

// Stale says, once the patch was read to its end, how many changes are not in it because
// somebody has changed the source there, and what the session began with is not known.
// Changes names them. Where the source is changed while the patch is made, those are counted
// that it takes back.
func (p *Patch) Stale() int { return p.count(HeaderStale) }

// Incomplete says, once the patch was read to its end, how many directories that the session has
// moved lack files in it, because the source does not have them any more. Changes names them.
func (p *Patch) Incomplete() int { return p.count(HeaderIncomplete) }

// SourceChanged says, once the patch was read to its end, for how many files it goes from
// what the session began with, while the source has something else there by now.
func (p *Patch) SourceChanged() int { return p.count(HeaderSourceChanged) }

// SourceAstray says, once the patch was read to its end, what is at the path of the source where that is
// not the directory that the session began with.
func (p *Patch) SourceAstray() string { return p.said(HeaderSourceAstray) }

// Earlier is Applied.Earlier, once the patch was read to its end.
func (p *Patch) Earlier() string { return p.said(HeaderEarlier) }

func (p *Patch) count(name string) int {
	n, _ := strconv.Atoi(p.said(name)) // 0 where there is none
	return max(n, 0)
}

func (p *Patch) said(name string) string {
	if p.trailer == nil {
		return ""
	}
	return p.trailer.Get(name)
}

// Changes lists what differs, one page.
func (c *Client) Changes(ctx context.Context, session string, q DiffQuery) (*Changes, error) {
	r := request{method: "GET", path: sessionPath(session, "diff"), query: q.values(), accept: "application/json"}
	return await[Changes](ctx, c, r)
}

func (q DiffQuery) values() url.Values {
	v := url.Values{}
	if len(q.Paths) > 0 {
		v["path"] = slices.Clone(q.Paths)
	}
	if len(q.Exclude) > 0 {
		v["exclude"] = slices.Clone(q.Exclude)
	}
	if q.NoIgnored {
		v.Set("no_ignored", "true")
	}
	setNonEmpty(v, "against", q.Against)
	setPage(v, q.After, q.Limit)
	return v
}

// Apply writes the changes of a session to its source. Where the source has changed too,
// nothing is written: the error has CodeConflict and the paths as its Violations.
func (c *Client) Apply(ctx context.Context, session string, r ApplyRequest) (*Applied, error) {
	return await[Applied](ctx, c, request{method: "POST", path: sessionPath(session, "apply"), body: r})
}

// Discard drops the changes of a session.
func (c *Client) Discard(ctx context.Context, session string, r DiscardRequest) (*Discarded, error) {
	return await[Discarded](ctx, c, request{method: "POST", path: sessionPath(session, "discard"), body: r})
}

// Checkpoint makes a state to which the session can come back.
func (c *Client) Checkpoint(ctx context.Context, session string, r CheckpointCreate) (*Checkpoint, error) {
	return await[Checkpoint](ctx, c, request{method: "POST", path: sessionPath(session, "checkpoints"), body: r})
}

// Checkpoints lists the checkpoints of a session, oldest first.
func (c *Client) Checkpoints(ctx context.Context, session string) (*List[Checkpoint], error) {
	return fetch[List[Checkpoint]](ctx, c, request{method: "GET", path: sessionPath(session, "checkpoints")})
}

// DropCheckpoint removes a checkpoint, by its name or id.
func (c *Client) DropCheckpoint(ctx context.Context, session, checkpoint string) error {
	return c.wait(ctx, request{method: "DELETE", path: sessionPath(session, "checkpoints", url.PathEscape(checkpoint))}, nil)
}

// Restore brings all files of a session back to a checkpoint.
func (c *Client) Restore(ctx context.Context, session string, r RestoreRequest) (*Restored, error) {
	return await[Restored](ctx, c, request{method: "POST", path: sessionPath(session, "restore"), body: r})
}

// Fork makes a second session that begins where this one is, or was at a checkpoint.
func (c *Client) Fork(ctx context.Context, session string, r ForkRequest) (*Session, error) {
	return await[Session](ctx, c, request{method: "POST", path: sessionPath(session, "fork"), body: r})
}
