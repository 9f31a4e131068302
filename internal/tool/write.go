package tool

import _ "embed"

//go:embed write.md
var writeDescription string

func writeTool() *Definition {
	return &Definition{
		Name:        "write",
		Description: writeDescription,
		alike:       []string{"create"},
		also: aliases{
			tools:  []string{"writefile", "writetofile", "createfile", "strreplacebasededittool command=create", "strreplaceeditor command=create", "developertexteditor command=write"},
			fields: map[string]string{"path": "file_path", "absolute_path": "file_path", "file_text": "content", "contents": "content", "command": "", "line_count": ""},
			ways: map[string]string{
				"overwrite": "a file that is there is replaced: leave the key out, and look with read first whether it is",
				"create":    "a file that is not there is made: leave the key out, and look with read first whether it is",
				"append":    "the whole content is written: leave the key out, and add to a file with edit, or with cat >> in bash",
			},
			rewrite: func(v values) []string { return asIs(v, "overwrite", "create") }, rewrites: []string{"overwrite", "create"},
		},
		Traits:   Traits{Destructive: true, Idempotent: true},
		Truncate: truncateHead,
		decode:   aFile(PermissionEdit, "file_path", true),
		paths:    []string{"file_path"},
		input: object(
			required("file_path", text(1, maxPath, "The file to write, absolute or relative to the worktree.")),
			required("content", text(0, 0, "The whole new content of the file.")),
		),
	}
}
