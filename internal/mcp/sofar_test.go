package mcp

import (
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestApprovalTextIsShort: what a call waits for is named once, and no more of it than an agent shows.
func TestApprovalTextIsShort(t *testing.T) {
	t.Parallel()
	a := &client.Approval{ID: "apr_1", Requests: []client.ApprovalRequest{{Permission: "bash", Pattern: "cp " + strings.Repeat("x", 10_000)}}}
	for range 99 {
		a.Requests = append(a.Requests, client.ApprovalRequest{Permission: "external_directory", Pattern: "/cache/" + strings.Repeat("y", 10_000)})
	}
	text := approvalText(a, "toolctl approvals watch")
	if strings.Count(text, "bash cp") != 1 || strings.Count(text, "external_directory") != maxWants-1 || !strings.Contains(text, "95 more things (apr_1)") || len(text) > 2*maxWants*maxNote {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
