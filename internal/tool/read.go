package tool

import _ "embed"

//go:embed read.md
var readDescription string

func readTool() *Definition {
	return &Definition{
		Name:        "read",
		Description: readDescription,
		alike: []string{
			"readfile", "readmanyfiles", "viewfile", "view", "cat", "openfile", "viewimage", "notebookread",
		},
		ReadOnly: true,
		Shows:    ShowsNames,
		Truncate: truncateHead,
		Looks:    true,
		Paged:    true,
		decode:   aFile(PermissionRead, "file_path", false),
		paths:    []string{"file_path"},
		input: object(
			required("file_path", text(1, maxPath, "The file or directory to read, absolute or relative to the worktree.")),
			optional("offset", integer(1, maxCount, "The first line to show, counted from 1. The default is 1.")),
			optional("limit", integer(1, maxCount, "How many lines to show at most. The default is 2000.")),
		),
	}
}
