package tool

// filePutTool is the inner half of an upload: the daemon lays the bytes down
// where the sandbox can read them, and this moves them to their place as the
// tool user.
func filePutTool() *Definition {
	return &Definition{
		Name:        "file_put",
		Description: "Puts an uploaded file into its place.",
		Hidden:      true,
		Traits:      changes,
		Truncate:    truncateHead,
		decode:      aFile(PermissionEdit, "path", true),
		input: object(
			required("from", text(1, maxPath, "Where the uploaded bytes lie in the sandbox.")),
			required("path", text(1, maxPath, "Where the file is to be, absolute or relative to the worktree.")),
			optional("mode", integer(0, 0o777, "Permission bits of a new file.")),
		),
	}
}
