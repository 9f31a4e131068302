package tool

import _ "embed"

//go:embed multiedit.md
var multiEditDescription string

// maxEdits bounds the edits of one call.
const maxEdits = 200

func multiEditTool() *Definition {
	edits := listOf(object(editFields()...), maxEdits, "The edits, in the order in which they are made. Each sees the file as those before it leave it.")
	least := 1
	edits.MinItems = &least
	return &Definition{
		Name:        "multiedit",
		Description: multiEditDescription,
		alike:       []string{"multieditfile", "editmultiple", "batchedit"},
		also: aliases{fields: map[string]string{
			"path": "file_path", "absolute_path": "file_path", "edits/old_str": "old_string", "edits/new_str": "new_string",
			"edits/oldText": "old_string", "edits/newText": "new_string", "edits/allow_multiple": "replace_all",
		}},
		Traits:   changes,
		Shows:    ShowsNames,
		Truncate: truncateHead,
		decode:   anEdit,
		paths:    []string{"file_path"},
		input: object(
			required("file_path", text(1, maxPath, "The file to change, absolute or relative to the worktree.")),
			required("edits", edits),
		),
	}
}
