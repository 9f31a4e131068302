package server

import "testing"

// contentTable says of every route what it moves, shows or hints at of the files of a worktree or of
// a home directory, and which rules guard that. An agent holds a session's token (roleToken): what such
// a route shows is bound by the rules of the session, whoever asks. The tenant's users and admins may
// see what they may read or have approved anyway; tenant routes are not for agents. TestTokenShowsNoCanary makes
// requests of every route with a token.
//
// shows is "": nothing of any file; "names": paths, or whether something is there; "content": also what is
// in files. guard names what keeps from an agent what its session may not read, and the test that shows it;
// a route of roleTenant or roleAdmin that shows something has its role for a guard.
var contentTable = map[string]struct{ shows, guard string }{
	"Version": {}, "Health": {}, "Ready": {}, "OpenAPI": {},
	"Metrics": {},
	"Tools":   {"content", "skill NAME, and read of SKILL.md, for names and descriptions of the worktree's skills: TestRealSkillsOfTree, TestTokenShowsNoCanary"},
	"Brief":   {"names", "whether there is a .git, which programs there are; skills as in Tools: TestTokenShowsNoCanary"},

	"CreateSession": {"names", "role"}, // notes of what a host runs on sight
	"ListSessions":  {"names", "role"}, // worktree.sensitive
	"GetSession":    {"names", "the session itself refuses a token (auth.Principal.Whole): TestTokenShowsNoCanary"},
	"PatchSession":  {"names", "role"},
	"EndSession":    {"names", "role"},
	"PutFile":       {"content", "role; file_put, file_put_tree: edit, and for what is unpacked each path"},
	"GetFile":       {"content", "file_get: read of where the path leads; archive=tar is the tenant's alone: TestRealCallsOfPeople, TestRoles"},

	"Diff":           {"content", "role"},
	"Apply":          {"names", "role"},
	"Discard":        {"names", "role"},
	"Checkpoints":    {"names", "role"},
	"Checkpoint":     {"names", "role"},
	"DropCheckpoint": {},
	"Restore":        {"names", "role"},
	"Fork":           {"content", "role"},

	"SessionNetwork": {}, // hosts

	"CreateCall": {"content", "each tool's own, in contentTable of package tool; approvals without a diff: TestAgentsSeeNoDiff; a call of a person by its key: TestRealCallsOfPeople"},
	"ListCalls":  {"content", "call.Service.Unseen: TestRealCallsOfPeople"},
	"GetCall":    {"content", "call.Service.Unseen: TestRealCallsOfPeople"},
	"CallOutput": {"content", "call.Service.Unseen: TestRealCallsOfPeople"},
	"AbortCall":  {"content", "call.Service.Unseen: TestRealCallsOfPeople"},
	"MCP":        {"content", "requests to Tools, Brief and the routes of calls, with the same credential: TestTokenShowsNoCanary"},
	"Events":     {"content", "role"}, // approval.asked has the diff

	"ListApprovals":      {"content", "role"}, // diffs, for those who answer
	"AnswerApproval":     {"content", "role"},
	"ListSavedApprovals": {"names", "role"},
	"RevokeApproval":     {},
	"ExplainPolicy":      {"names", "role"}, // of the caller's own input, and of links that it is over
	"ReplayPolicy":       {"content", "role"},

	"ListImages": {}, "PullImage": {}, "ImportImage": {}, "RemoveImage": {},
	"ListCaches": {}, "RemoveCache": {}, "PromoteCache": {"content", "role"},

	"Usage": {}, "Doctor": {}, "Config": {}, "Drain": {}, "Reload": {},
	"GC":     {"names", "role"},
	"Backup": {"content", "role"}, // records of calls
}

// TestContent: every route says what it shows of files, and what agents can use and shows something has
// a guard other than its role.
func TestContent(t *testing.T) {
	t.Parallel()
	rows := make(map[string]bool)
	for i := range routes {
		rt := &routes[i]
		rows[rt.op] = true
		row, ok := contentTable[rt.op]
		switch {
		case !ok:
			t.Errorf("%s %s (%s) has no row in contentTable: what does it show of files, to whom, and which rules guard that?", rt.method, rt.pattern, rt.op)
		case row.shows != "" && row.shows != "names" && row.shows != "content", (row.shows == "") != (row.guard == ""):
			t.Errorf("%s: shows %q, guard %q", rt.op, row.shows, row.guard)
		case rt.role <= roleToken && row.guard == "role":
			t.Errorf("%s is for agents too: its role guards nothing", rt.op)
		}
	}
	for op := range contentTable {
		if !rows[op] {
			t.Errorf("%s is no route", op)
		}
	}
}
