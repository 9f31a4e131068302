package tool

import _ "embed"

//go:embed edit.md
var editDescription string

func editTool() *Definition {
	return &Definition{
		Name:        "edit",
		Description: editDescription,
		alike: []string{
			"strreplaceeditor", "strreplacebasededittool", "strreplace", "replace", "multiedit", "editfile", "replaceinfile",
			"searchreplace", "applypatch", "patch", "notebookedit",
		},
		Truncate: truncateHead,
		decode:   aFile(PermissionEdit, "file_path", true),
		paths:    []string{"file_path"},
		input: object(
			required("file_path", text(1, maxPath, "The file to change, absolute or relative to the worktree.")),
			required("old_string", text(0, 0, "The text to replace, exactly as it stands in the file. Empty only to create a file that does not exist.")),
			required("new_string", text(0, 0, "The text to put in its place. It must differ from old_string.")),
			optional("replace_all", boolean("Replace every place where old_string stands. The default is false: there must be exactly one.")),
		),
	}
}
