package tool

import _ "embed"

//go:embed grep.md
var grepDescription string

// maxSearchPattern keeps a pattern below the 128 KiB that Linux allows for one
// argument of a program, with characters of four bytes.
const maxSearchPattern = 32000

func grepTool() *Definition {
	return &Definition{
		Name:        "grep",
		Description: grepDescription,
		alike: []string{
			"searchfilecontent", "searchfiles", "grepsearch", "codebasesearch", "ripgrep", "rg", "search", "codesearch",
		},
		ReadOnly: true,
		Shows:    ShowsContent,
		Truncate: truncateHead,
		Looks:    true,
		decode:   aSearch(PermissionGrep, asGiven),
		paths:    []string{"path", "include"},
		input: object(
			required("pattern", text(1, maxSearchPattern, "The regular expression to search for, in the syntax of ripgrep.")),
			optional("path", text(0, maxPath, "The directory or the one file to search, absolute or relative to the worktree. The default is the worktree.")),
			optional("include", text(0, maxPath, "A glob that the names of searched files must match, such as *.go or *.{ts,tsx}.")),
			optional("literal", boolean("Take the pattern as plain text, not as a regular expression.")),
			optional("ignore_case", boolean("Let upper and lower case match each other.")),
			optional("multiline", boolean("Let a match span lines; the dot then matches line breaks too.")),
			optional("context", integer(0, 50, "How many lines to show before and after each match. The default is 0.")),
			optional("output_mode", choice("What to answer with: content (matching lines, the default), files (only their paths) or count (matching lines of each file).",
				"content", "files", "count")),
			optional("limit", integer(1, 1000, "How many matches, or files in the modes files and count, to answer at most. The default is 100.")),
		),
	}
}
