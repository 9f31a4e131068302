package tool

import (
	"cmp"
	_ "embed"
)

//go:embed list.md
var listDescription string

func listTool() *Definition {
	return &Definition{
		Name:        "list",
		Description: listDescription,
		alike:       []string{"tree"},
		also: aliases{
			tools:  []string{"ls", "listdir", "listdirectory", "listfiles"},
			fields: map[string]string{"dir_path": "path", "directory": "path", "relative_workspace_path": "path", "target_directory": "path", "explanation": ""},
			ways: map[string]string{
				"depth":     "the whole tree is listed, as far as an answer has room: leave the key out; read shows one directory alone",
				"recursive": "the whole tree is listed, as far as an answer has room: leave the key out; read shows one directory alone",
			},
			rewrite: func(v values) []string { return asIs(v, "recursive") }, rewrites: []string{"recursive"},
		},
		Traits:   looks,
		Shows:    ShowsNames,
		Truncate: truncateHead,
		decode:   aListing,
		paths:    []string{"path"},
		input: object(
			optional("path", text(0, maxPath, "The directory to list, absolute or relative to the worktree. The default is the worktree.")),
			optional("ignore", listOf(text(1, maxPath, "A glob such as *.log or docs/**."), 1000, "Globs of further files and directories to leave out.")),
		),
	}
}

// aListing decodes the input of list. It names the worktree where no path is given: a
// tree is of something.
func aListing(v values) Input { return &listInput{v.text("path")} }

type listInput struct{ path string }

// Access implements Input.
func (in *listInput) Access(*Reader) Access {
	path := cmp.Or(in.path, ".")
	return Access{
		Requests: []Request{{Permission: PermissionList, Pattern: path, Path: path}},
		Prepare:  true,
	}
}

// Shown implements Visible.
func (in *listInput) Shown() (map[string]string, bool) {
	return map[string]string{"path": in.path}, false
}
