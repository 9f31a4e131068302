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
			ways: map[string]string{
				"case_sensitive":     "upper and lower case differ: leave the key out, and write both, such as *.[gG][oO]",
				"respect_git_ignore": "ignored files are left out: leave the key out, and name the ignored directory in path",
			},
			rewrite: func(v values) []string { return asIs(v, "case_sensitive", "respect_git_ignore") }, rewrites: []string{"case_sensitive", "respect_git_ignore"},
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
