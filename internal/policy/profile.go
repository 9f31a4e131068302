package policy

import "github.com/toold/toold/internal/tool"

// DefaultProfile is the profile of sessions that ask for none.
const DefaultProfile = "build"

// profile is what one kind of agent may do.
type profile struct {
	description string
	// builtin are the rules of a profile of this package, own those of the file.
	builtin, own []*rule
	// headless: nobody answers, so that an ask is a denial.
	headless bool
}

// builtinProfiles makes the profiles that every configuration has.
//
// They only take away. A plain list could not say so, because its last match
// would allow again what an operator's rules deny: the "allow" for bash that
// explore needs would undo a deny of "git push *". So where a built-in profile
// has no objection, the rules above it decide.
func builtinProfiles() map[string]*profile {
	return map[string]*profile{
		"build": {description: "does what the rules allow"},
		"plan": {
			description: "reads and plans; edits nothing but its plans",
			builtin: builtin("plan",
				Rule{Permission: tool.PermissionEdit, Pattern: "*", Action: Deny, Reason: "the profile plan changes no files"},
				Rule{Permission: tool.PermissionEdit, Pattern: ".toold/plans/*.md"},
				Rule{Permission: "task", Pattern: "general", Action: Deny, Reason: "the profile plan starts no agent that changes files"},
			),
		},
		"explore": {
			description: "looks around and changes nothing by itself",
			builtin: builtin("explore", append(
				[]Rule{{Permission: "*", Pattern: "*", Action: Deny, Reason: "the profile explore only looks around"}},
				unobjected(tool.PermissionRead, tool.PermissionGrep, tool.PermissionGlob, tool.PermissionList, tool.PermissionBash,
					tool.PermissionBatch,
					"webfetch", "websearch", "codesearch")...)...),
		},
		"general": {
			description: "does parts of the work of another agent",
			builtin: builtin("general",
				Rule{Permission: tool.PermissionTodoWrite, Pattern: "*", Action: Deny, Reason: "the list of tasks is the other agent's"},
				Rule{Permission: tool.PermissionTodoRead, Pattern: "*", Action: Deny, Reason: "the list of tasks is the other agent's"},
			),
		},
		"ci": {description: "as build, but nobody is there to be asked", headless: true},
	}
}

// builtin compiles the rules of a built-in profile; one without an action leaves
// the decision to the rules above.
func builtin(name string, rules ...Rule) []*rule {
	all := make([]*rule, len(rules))
	for i, r := range rules {
		r.Source = "profile " + name + " (built in)"
		all[i] = compile(r)
		all[i].above = r.Action == ""
	}
	return all
}

func unobjected(permissions ...string) []Rule {
	rules := make([]Rule, len(permissions))
	for i, p := range permissions {
		rules[i] = Rule{Permission: p, Pattern: "*"}
	}
	return rules
}
