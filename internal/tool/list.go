package tool

import (
	_ "embed"
	"encoding/json"
)

//go:embed list.md
var listDescription string

func listTool() *Definition {
	return &Definition{
		Name:        "list",
		Description: listDescription,
		ReadOnly:    true,
		Shows:       ShowsNames,
		Truncate:    truncateHead,
		Access:      listAccess,
		paths:       []string{"path"},
		input: object(
			optional("path", text(0, maxPath, "The directory to list, absolute or relative to the worktree. The default is the worktree.")),
			optional("ignore", listOf(text(1, maxPath, "A glob such as *.log or docs/**."), 1000, "Globs of further files and directories to leave out.")),
		),
	}
}

// listAccess names the worktree where no path is given: a tree is of something.
func listAccess(input json.RawMessage, _ []string) Access {
	path := named(input, "path")["path"]
	if path == "" {
		path = "."
	}
	return Access{
		Requests: []Request{{Permission: "list", Pattern: path, Path: path}},
		Prepare:  true,
	}
}
