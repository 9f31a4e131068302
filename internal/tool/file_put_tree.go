package tool

// filePutTreeTool is the inner half of the upload of a directory: it unpacks a tar as it
// arrives, without the files that the rules for "edit" do not let it write.
func filePutTreeTool() *Definition {
	return &Definition{
		Name:        "file_put_tree",
		Description: "Unpacks a tar into a directory.",
		Hidden:      true,
		Traits:      changes,
		Changes:     true,
		Streams:     true,
		Piped:       true,
		Shows:       ShowsContent,
		Truncate:    truncateHead,
		decode:      aFile(PermissionEdit, "path", true),
		input: object(
			required("path", text(1, maxPath, "The directory to unpack into, absolute or relative to the worktree.")),
			required("max_bytes", integer(1, 1<<50, "How long the tar, and all its files together, may be.")),
		),
	}
}
