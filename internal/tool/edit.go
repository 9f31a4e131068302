package tool

import (
	_ "embed"
	"regexp"
	"strings"
)

//go:embed edit.md
var editDescription string

func editTool() *Definition {
	return &Definition{
		Name:        "edit",
		Description: editDescription,
		alike:       []string{"strreplaceeditor", "strreplacebasededittool", "editfile", "notebookedit"},
		also: aliases{
			tools: []string{
				"replace", "strreplace", "searchreplace", "replaceinfile",
				"strreplacebasededittool command=str_replace", "strreplaceeditor command=str_replace",
				"strreplacebasededittool command=insert", "strreplaceeditor command=insert",
				"replacestringinfile", "developertexteditor command=str_replace", "developertexteditor command=insert",
			},
			fields: map[string]string{
				"path": "file_path", "absolute_path": "file_path", "old_str": "old_string", "new_str": "new_string",
				"instruction": "", "command": "", "allow_multiple": "replace_all",
				"oldText": "old_string", "newText": "new_string",
			},
			ways: map[string]string{
				"insert_line": insertWay, "insert_text": insertWay,
				"edits": "give several edits of one file to multiedit, with this input as it is",
				"diff":  "give the one text between SEARCH and ======= as old_string and that below as new_string, or all of them to multiedit; a patch goes to apply_patch",
			},
			rewrite: editAliases, rewrites: []string{"diff", "edits"},
		},
		Traits:   changes,
		Shows:    ShowsNames,
		Truncate: truncateHead,
		decode:   anEdit,
		paths:    []string{"file_path"},
		input: object(append([]field{
			required("file_path", text(1, maxPath, "The file to change, absolute or relative to the worktree.")),
		}, editFields()...)...),
	}
}

// editFields are those of one edit.
func editFields() []field {
	return []field{
		required("old_string", text(0, 0, "The text to replace, exactly as it stands in the file. Empty only to create a file that does not exist.")),
		required("new_string", text(0, 0, "The text to put in its place. It must differ from old_string.")),
		optional("replace_all", boolean("Replace every place where old_string stands. The default is false: there must be exactly one.")),
		optional("occurrence", integer(1, maxCount, "Which of several places to replace, counted from 1. Give this or line where old_string is not unique.")),
		optional("expected_replacements", integer(1, maxCount, "How many places are to be replaced. Where there are more or fewer, nothing is changed. More than 1 means replace_all.")),
		optional("line", integer(1, maxCount, "The number of a line: of several places, the one nearest to it is replaced.")),
	}
}

const insertWay = "give the line before the place as old_string, and that line with the new ones below it as new_string; at the top the first line, with the new ones above it; write fills an empty file"

// blocks are what one change looks like of those that search for a text.
var blocks = regexp.MustCompile(`(?s)^\s*[-<]{5,} ?SEARCH>?\r?\n(.*?)\r?\n?={5,}\r?\n(.*?)\r?\n?[+>]{5,} ?REPLACE>?\s*$`)

// editAliases takes a replacement that is left out, and one edit in a list or in a block of text to
// search for.
func editAliases(v values) (used []string) {
	if all, _ := v["edits"].([]any); len(all) == 1 {
		if one, ok := all[0].(map[string]any); ok {
			used = append(used, "edits")
			delete(v, "edits")
			for name, value := range one {
				if _, there := v[name]; !there {
					v[name] = value
				}
			}
		}
	}
	if m := blocks.FindStringSubmatch(v.text("diff")); m != nil && !strings.Contains(m[1]+m[2], "\n=======\n") {
		used = append(used, "diff")
		delete(v, "diff")
		v["old_string"], v["new_string"] = m[1], m[2]
	}
	if v.text("command") == "str_replace" {
		_, new := v["new_str"]
		if !new {
			v["new_str"] = ""
		}
	}
	return used
}
