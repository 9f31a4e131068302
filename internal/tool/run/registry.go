package run

// Builtin lists the tools that the agent can run. To add one: write its file
// here, its definition beside it in package tool, and add a line to both lists.
// Changes, Formatted, Aside, Diff, DiffTouched, DiffStrict, Revert and RevertTouched are the daemon's own and have no definition.
func Builtin() []Tool {
	return []Tool{
		Read{},
		Write{},
		Edit{},
		MultiEdit{},
		ApplyPatch{},
		Bash{},
		Glob{},
		Grep{},
		List{},
		FilePut{},
		FileGet{},
		FilePutTree{},
		FileGetTree{},
		Changes{},
		Formatted{},
		Aside{},
		Diff{},
		DiffTouched{},
		DiffStrict{},
		Revert{},
		RevertTouched{},
	}
}
