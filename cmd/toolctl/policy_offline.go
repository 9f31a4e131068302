package main

import (
	"cmp"
	"encoding/json"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/strictjson"
	"github.com/toold/toold/internal/tool"
)

// offlineNote says what a verdict without a daemon leaves out.
const offlineNote = "judged by the file alone: without a session, paths lead where their text says, nothing is mounted beside the worktree, commands are read as bash reads them, and no approval is saved"

// explainOffline judges a call by the rules of a file, as a session of that
// tenant with that profile would be, without a daemon and a sandbox.
func explainOffline(file, name, text, profile, tenant string) (*client.PolicyVerdict, error) {
	rules, err := loadRules(file)
	if err != nil {
		return nil, err
	}
	tenant, profile = cmp.Or(tenant, auth.DefaultTenant), cmp.Or(profile, policy.DefaultProfile)
	stack, err := rules.Stack(profile, tenant)
	if err != nil {
		return nil, err
	}
	requests, err := requestsOffline(name, text)
	if err != nil {
		return nil, err
	}
	judged := stack.Judge(requests)
	return &client.PolicyVerdict{
		Tool: name, Profile: profile, Tenant: tenant, Action: string(judged.Action), Rule: judged.Rule, Reason: judged.Reason,
		Requests: stack.Explain(requests), Notes: []string{offlineNote},
	}, nil
}

// requestsOffline is what a call asks for, or a connection.
func requestsOffline(name, text string) ([]policy.Request, error) {
	if input, ok := policy.OutgoingInput(name, text); ok {
		if strictjson.IsObject([]byte(text)) {
			input = json.RawMessage(text)
		}
		requests, _, err := policy.Outgoing(name, input)
		return requests, err
	}
	tools := tool.NewRegistry()
	input, err := toolInput(localTools(tools), name, text)
	if err != nil {
		return nil, err
	}
	inv, err := tools.Parse(name, input)
	if err != nil {
		return nil, err
	}
	return policy.AsWritten(inv, nil, policy.NoSession), nil
}

// localTools are the definitions of the tools that this version has.
func localTools(tools *tool.Registry) []client.ToolDefinition {
	var defs []client.ToolDefinition
	for _, d := range tools.List() {
		defs = append(defs, client.ToolDefinition{Name: d.Name, InputSchema: d.Schema})
	}
	return defs
}
