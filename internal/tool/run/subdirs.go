package run

// ListingJob is a job that lists up to most entries of a directory, a line each, sorted; those
// that are directories end with a slash.
func ListingJob(dir string, most int) Job {
	return jobOf(Read{}, map[string]any{"file_path": dir, "limit": most})
}
