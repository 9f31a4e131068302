package server

import (
	"context"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// fakeApproval is the one approval that is pending, once per tenant's session;
// fakeSaved the one rule that was saved. Neither ends, so that all tests find
// them.
const (
	fakeApproval = "apr_1"
	fakeSaved    = "apr_0.1"
)

func anApproval() client.Approval {
	return client.Approval{
		ID: fakeApproval, Tenant: auth.DefaultTenant, SessionID: "ses_1", CallID: "call_1", Profile: "build", Tool: "bash",
		Requests: []client.ApprovalRequest{{Permission: "bash", Pattern: "git push", Rule: "config.toml:3", Save: "git push *"}},
		Metadata: map[string]any{"command": "git push"}, SHA256: "ab", Created: time.Now().UTC(), Expires: time.Now().UTC(),
	}
}

func noApproval(id string) error {
	return &client.Error{Code: client.CodeNotFound, Message: fmt.Sprintf("there is no approval %q", id)}
}

func (f *fakeAPI) note(p auth.Principal, filter any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.filter = p, filter
}

func (f *fakeAPI) Approvals(_ context.Context, p auth.Principal, q client.ApprovalQuery) (client.List[client.Approval], error) {
	f.note(p, q)
	l := client.List[client.Approval]{Next: "apr_9"}
	if p.Tenant == auth.DefaultTenant {
		l.Items = append(l.Items, anApproval())
	}
	return l, nil
}

func (f *fakeAPI) Answer(_ context.Context, p auth.Principal, id string, a client.ApprovalAnswer) (*client.Approval, error) {
	f.note(p, a)
	if id != fakeApproval || p.Tenant != auth.DefaultTenant {
		return nil, noApproval(id)
	}
	answered := anApproval()
	return &answered, nil
}

func (f *fakeAPI) SavedApprovals(_ context.Context, p auth.Principal, q client.ApprovalQuery) (client.List[client.SavedApproval], error) {
	f.note(p, q)
	var l client.List[client.SavedApproval]
	if p.Tenant == auth.DefaultTenant {
		l.Items = append(l.Items, client.SavedApproval{
			ID: fakeSaved, Tenant: auth.DefaultTenant, Scope: client.ScopeTenant, Permission: "bash", Pattern: "git *", By: "uid 0",
			Rule: "config.toml:3", Created: time.Now().UTC(),
		})
	}
	return l, nil
}

func (f *fakeAPI) Revoke(_ context.Context, p auth.Principal, id string) error {
	f.note(p, id)
	if id != fakeSaved || p.Tenant != auth.DefaultTenant {
		return noApproval(id)
	}
	return nil
}

func (f *fakeAPI) Explain(_ context.Context, p auth.Principal, r client.PolicyExplain) (*client.PolicyVerdict, error) {
	f.note(p, r)
	return &client.PolicyVerdict{Tool: r.Tool, Profile: "build", Tenant: r.Tenant, Action: "allow", Rule: "default"}, nil
}

func (f *fakeAPI) Replay(_ context.Context, p auth.Principal, r client.PolicyReplay) (*client.PolicyReplayed, error) {
	f.note(p, r)
	return &client.PolicyReplayed{Calls: 3}, nil
}

func (f *fakeAPI) Usage(context.Context) ([]client.TenantUsage, error) {
	return []client.TenantUsage{{Tenant: auth.DefaultTenant, Sessions: 1}}, nil
}
