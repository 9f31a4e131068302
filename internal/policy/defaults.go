package policy

import "github.com/toold/toold/internal/tool"

// permissions are the names that tools of this and of later versions ask for. A
// rule for another name is probably a mistake (see lint.go); tools of MCP servers
// have names of their own.
var permissions = []string{
	tool.PermissionBash, tool.PermissionEdit, tool.PermissionRead, tool.PermissionGlob, tool.PermissionGrep, tool.PermissionList,
	tool.PermissionTodoWrite, tool.PermissionTodoRead, tool.PermissionBatch, tool.PermissionSkill,
	"webfetch", "websearch", "codesearch", "question", "task", "lsp",
	"plan_enter", "plan_exit", PermissionDoomLoop, PermissionExternal, PermissionNetwork, PermissionHTTP,
}

// defaults are the rules that stand above all others.
func defaults() []*rule {
	const reason = "the file may hold secrets"
	rules := []Rule{
		{Permission: "*", Pattern: "*", Action: Allow},
		{Permission: PermissionDoomLoop, Pattern: "*", Action: Ask},
		{Permission: PermissionExternal, Pattern: "*", Action: Ask},
		{Permission: PermissionNetwork, Pattern: "*", Action: Deny},
		{Permission: PermissionHTTP, Pattern: "*", Action: Allow},
	}
	for _, p := range []string{tool.PermissionRead, tool.PermissionGrep} {
		rules = append(rules,
			Rule{Permission: p, Pattern: "**/.env", Action: Ask, Reason: reason},
			Rule{Permission: p, Pattern: "**/.env.*", Action: Ask, Reason: reason},
			Rule{Permission: p, Pattern: "**/.env.example", Action: Allow})
	}
	// Only a client can answer these. Nothing is offered that nobody answers.
	for _, p := range []string{"question", "plan_enter", "plan_exit"} {
		rules = append(rules, Rule{Permission: p, Pattern: "*", Action: Deny, Reason: "no client answers it"})
	}
	for i := range rules {
		rules[i].Source = SourceDefault
	}
	return compileAll(rules)
}
