package tool

import (
	_ "embed"

	"github.com/toold/toold/internal/tool/run/globpath"
)

//go:embed glob.md
var globDescription string

func globTool() *Definition {
	return &Definition{
		Name:        "glob",
		Description: globDescription,
		alike:       []string{"find"},
		also: aliases{
			tools:  []string{"findfiles", "filesearch", "globfiles"},
			fields: map[string]string{"query": "pattern", "glob_pattern": "pattern", "dir_path": "path", "explanation": ""},
		},
		Traits:   looks,
		Shows:    ShowsNames,
		Truncate: truncateHead,
		decode:   aSearch(PermissionGlob, globpath.Split),
		paths:    []string{"path", "pattern"},
		input: object(
			required("pattern", text(1, maxPath, "The glob that file names must match, such as **/*.go or src/**/*.{ts,tsx}.")),
			optional("path", text(0, maxPath, "The directory to search in, absolute or relative to the worktree. The default is the worktree.")),
		),
	}
}
