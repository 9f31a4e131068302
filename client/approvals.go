package client

import (
	"context"
	"net/url"
)

// ApprovalQuery selects approvals.
type ApprovalQuery struct {
	Session string // id or name; "" = all of the tenant
	After   string // List.Next of the page before
	Limit   int    // 0 = the daemon's default
	// AllTenants asks for those of all tenants, for admins.
	AllTenants bool
}

func (q ApprovalQuery) values() url.Values {
	v := url.Values{}
	setNonEmpty(v, "session", q.Session)
	setPage(v, q.After, q.Limit)
	setAllTenants(v, q.AllTenants)
	return v
}

// ApprovalReply is how an approval ended: the data of the event
// approval.replied. Besides the answers there are timeout, stale and gone (with
// its call or its session).
type ApprovalReply struct {
	ID      string `json:"id"`
	Answer  string `json:"answer"`
	By      string `json:"by,omitempty"` // who, e.g. "uid 0"
	Message string `json:"message,omitempty"`
	// Saved are the rules that an answer of always has saved.
	Saved []SavedApproval `json:"saved,omitempty"`
}

// ListApprovals gives one page of the approvals that are pending, oldest first.
func (c *Client) ListApprovals(ctx context.Context, q ApprovalQuery) (*List[Approval], error) {
	return fetch[List[Approval]](ctx, c, request{method: "GET", path: "/v1/approvals", query: q.values()})
}

// AnswerApproval answers a pending approval, and gives it with its reply. Whoever made
// the call is refused (CodeForbidden); one that has been answered meanwhile, or
// is not the one of a.SHA256, is a CodeConflict or CodeNotFound.
func (c *Client) AnswerApproval(ctx context.Context, id string, a ApprovalAnswer) (*Approval, error) {
	return fetch[Approval](ctx, c, request{method: "POST", path: "/v1/approvals/" + url.PathEscape(id), body: a})
}

// ListSavedApprovals gives one page of what was approved for always.
func (c *Client) ListSavedApprovals(ctx context.Context, q ApprovalQuery) (*List[SavedApproval], error) {
	return fetch[List[SavedApproval]](ctx, c, request{method: "GET", path: "/v1/approvals/saved", query: q.values()})
}

// RevokeApproval takes back what was approved for always.
func (c *Client) RevokeApproval(ctx context.Context, id string) error {
	return c.call(ctx, request{method: "DELETE", path: "/v1/approvals/saved/" + url.PathEscape(id)}, nil)
}
