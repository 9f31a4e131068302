package tool

import (
	_ "embed"
	"encoding/json"
	"strconv"
)

//go:embed read.md
var readDescription string

func readTool() *Definition {
	return &Definition{
		Name:        "read",
		Description: readDescription,
		alike:       []string{"readmanyfiles", "viewimage", "notebookread"},
		also: aliases{
			tools: []string{"readfile", "view", "viewfile", "openfile", "cat", "strreplacebasededittool command=view", "strreplaceeditor command=view"},
			fields: map[string]string{
				"absolute_path": "file_path", "path": "file_path", "target_file": "file_path", "command": "",
				"start_line_one_indexed": "offset", "should_read_entire_file": "", "explanation": "",
			},
			rewrite: readAliases, rewrites: []string{"view_range"},
		},
		Traits:   looks,
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

// readAliases takes a range of lines, whose end may be -1.
func readAliases(v values) []string {
	lines, ok := v["view_range"].([]any)
	if !ok || len(lines) != 2 {
		return nil
	}
	from, to := values{"n": lines[0]}.number("n"), values{"n": lines[1]}.number("n")
	if from < 1 || to != -1 && to < from {
		return nil
	}
	delete(v, "view_range")
	v["offset"] = json.Number(strconv.FormatInt(from, 10))
	if to >= from {
		v["limit"] = json.Number(strconv.FormatInt(to-from+1, 10))
	}
	return []string{"view_range"}
}
