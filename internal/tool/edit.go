package tool

import _ "embed"

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
			},
			fields: map[string]string{
				"path": "file_path", "absolute_path": "file_path", "old_str": "old_string", "new_str": "new_string",
				"instruction": "", "command": "",
			},
			rewrite: editAliases, rewrites: []string{"expected_replacements"},
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
		optional("line", integer(1, maxCount, "The number of a line: of several places, the one nearest to it is replaced.")),
	}
}

// editAliases takes how many places are expected, and a replacement that is left out.
func editAliases(v values) (used []string) {
	if _, ok := v["expected_replacements"]; ok {
		used = append(used, "expected_replacements")
		if v.number("expected_replacements") > 1 {
			v["replace_all"] = true
		}
		delete(v, "expected_replacements")
	}
	if v.text("command") == "str_replace" {
		_, new := v["new_str"]
		if !new {
			v["new_str"] = ""
		}
	}
	return used
}
