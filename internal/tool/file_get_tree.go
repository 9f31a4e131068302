package tool

// fileGetTreeTool is the inner half of the download of a directory: it streams a tar of
// what is below it, without the files that the rules for "read" hide.
func fileGetTreeTool() *Definition {
	return &Definition{
		Name:        "file_get_tree",
		Description: "Sends a directory as a tar.",
		Hidden:      true,
		Traits:      looks,
		Streams:     true,
		Piped:       true,
		Shows:       ShowsContent,
		Truncate:    truncateHead,
		decode:      aFile(PermissionRead, "path", false),
		input: object(
			required("path", text(1, maxPath, "The directory to send, absolute or relative to the worktree.")),
			required("max_bytes", integer(1, 1<<50, "How long the tar may be.")),
		),
	}
}
