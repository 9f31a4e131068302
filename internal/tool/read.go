package tool

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strconv"
)

//go:embed read.md
var readDescription string

func readTool() *Definition {
	return &Definition{
		Name:        "read",
		Description: readDescription,
		alike:       []string{"readmanyfiles", "notebookread"},
		also: aliases{
			tools: []string{
				"readfile", "view", "viewfile", "viewimage", "openfile", "cat",
				"strreplacebasededittool command=view", "strreplaceeditor command=view", "developertexteditor command=view",
			},
			fields: map[string]string{
				"absolute_path": "file_path", "path": "file_path", "target_file": "file_path", "command": "",
				"should_read_entire_file": "", "explanation": "",
			},
			ways:    map[string]string{"pages": "pages cannot be chosen: leave the key out, or have a program read them, such as pdftotext in bash"},
			rewrite: readAliases, rewrites: append([]string{"view_range"}, slices.Concat(firstLines, lastLines)...),
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

// firstLines and lastLines are what others call the first and the last line to show.
var (
	firstLines = []string{"start_line", "start_line_one_indexed"}
	lastLines  = []string{"end_line", "end_line_one_indexed_inclusive", "end_line_one_indexed"}
)

// readAliases takes a range of lines, whose end may be -1. The lines of all such names are counted
// from 1; the line 0 is the first too.
func readAliases(v values) (used []string) {
	from, to := int64(1), int64(-1)
	if lines, ok := v["view_range"].([]any); ok && len(lines) == 2 {
		used = []string{"view_range"}
		from, to = values{"n": lines[0]}.number("n"), values{"n": lines[1]}.number("n")
	}
	for _, of := range []struct {
		names []string
		n     *int64
	}{{firstLines, &from}, {lastLines, &to}} {
		for _, name := range of.names {
			if _, ok := v[name].(json.Number); ok {
				if slices.ContainsFunc(used, func(u string) bool { return u == "view_range" || slices.Contains(of.names, u) }) {
					return nil // it is there twice
				}
				*of.n = v.number(name)
				used = append(used, name)
			}
		}
	}
	_, limit := v["limit"]
	if _, offset := v["offset"]; offset {
		if slices.ContainsFunc(used, func(u string) bool { return !slices.Contains(lastLines, u) }) {
			return nil
		}
		from = v.number("offset")
	}
	if from = max(from, 1); len(used) == 0 || limit && to != -1 || to != -1 && to < from {
		return nil
	}
	for _, name := range used {
		delete(v, name)
	}
	v["offset"] = json.Number(strconv.FormatInt(from, 10))
	if to >= from {
		v["limit"] = json.Number(strconv.FormatInt(to-from+1, 10))
	}
	return used
}
