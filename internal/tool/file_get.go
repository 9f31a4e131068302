package tool

// fileGetTool is the inner half of a download: it streams one file's bytes as
// they are.
func fileGetTool() *Definition {
	return &Definition{
		Name:        "file_get",
		Description: "Sends a file as it is.",
		Hidden:      true,
		Traits:      looks,
		Streams:     true,
		Truncate:    truncateHead,
		decode:      aFile(PermissionRead, "path", false),
		input: object(
			required("path", text(1, maxPath, "The file to send, absolute or relative to the worktree.")),
		),
	}
}
