package main

import (
	"context"

	"github.com/toold/toold/client"
)

// allPages reads a list to its end. page gives the part that begins after the
// cursor, the first part for "".
func allPages[T any](page func(after string) (*client.List[T], error)) ([]T, error) {
	all, after := []T{}, ""
	for {
		p, err := page(after)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Items...)
		if p.Next == "" || len(p.Items) == 0 {
			return all, nil
		}
		after = p.Next
	}
}

// listSessions reads all pages.
func listSessions(ctx context.Context, c *client.Client, q client.SessionQuery) ([]client.Session, error) {
	return allPages(func(after string) (*client.List[client.Session], error) {
		q.After = after
		return c.ListSessions(ctx, q)
	})
}

// listCalls reads all pages.
func listCalls(ctx context.Context, c *client.Client, session string, q client.CallQuery) ([]client.Call, error) {
	return allPages(func(after string) (*client.List[client.Call], error) {
		q.After = after
		return c.ListCalls(ctx, session, q)
	})
}

// pendingApprovals reads all pages.
func pendingApprovals(ctx context.Context, c *client.Client, q client.ApprovalQuery) ([]client.Approval, error) {
	return allPages(func(after string) (*client.List[client.Approval], error) {
		q.After = after
		return c.ListApprovals(ctx, q)
	})
}

func savedApprovals(ctx context.Context, c *client.Client, q client.ApprovalQuery) ([]client.SavedApproval, error) {
	return allPages(func(after string) (*client.List[client.SavedApproval], error) {
		q.After = after
		return c.ListSavedApprovals(ctx, q)
	})
}
