package tool

import (
	_ "embed"
	"encoding/json"
	"strings"
)

//go:embed grep.md
var grepDescription string

// maxSearchPattern keeps a pattern below the 128 KiB that Linux allows for one
// argument of a program, with characters of four bytes.
const maxSearchPattern = 32000

func grepTool() *Definition {
	return &Definition{
		Name:        "grep",
		Description: grepDescription,
		alike:       []string{"codebasesearch", "search", "codesearch"},
		also: aliases{
			tools: []string{"searchfilecontent", "grepsearch", "grepfiles", "ripgrep", "rg", "searchfiles"},
			fields: map[string]string{
				"glob": "include", "include_pattern": "include", "-i": "ignore_case", "case_insensitive": "ignore_case", "-n": "",
				"head_limit": "limit", "max_results": "limit", "query": "pattern", "dir_path": "path", "explanation": "",
				"file_pattern": "include", "regex": "pattern", "fixed_strings": "literal",
			},
			ways: map[string]string{
				"offset":          "there is no offset: leave the key out, and raise limit, or narrow path or include",
				"exclude_pattern": `give it as an include that begins with "!", such as "!*_test.go"`,
				"type":            `no such type of files is known here, or include says already which: leave the key out, and use include, such as "*.go"`,
				"no_ignore":       "ignored files are not searched: leave the key out, and name the ignored directory or file in path",
				"is_regexp":       "a pattern is a regular expression unless literal is true: leave the key out",
			},
			values:  map[string]map[string]string{"output_mode": {"files_with_matches": "files"}},
			rewrite: grepAliases, rewrites: []string{"-A", "-B", "-C", "before", "after", "type", "case_sensitive", "names_only", "is_regexp", "exclude_pattern"},
		},
		Traits:   looks,
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
			optional("output_mode", choice("What to answer with: content (matching lines), files (only their paths) or count (matching lines of each file). The default is content.",
				"content", "files", "count")),
			optional("limit", integer(1, 1000, "How many matches, or files in the modes files and count, to answer at most. The default is 100.")),
		),
	}
}

// fileTypes are the globs of types of files, as ripgrep names them.
var fileTypes = map[string]string{
	"c": "*.{c,h}", "cpp": "*.{cc,cpp,cxx,hh,hpp,hxx,h}", "css": "*.{css,scss}", "go": "*.go", "html": "*.{html,htm}",
	"java": "*.java", "js": "*.{js,jsx,mjs,cjs}", "json": "*.json", "kotlin": "*.{kt,kts}", "md": "*.{md,markdown}", "php": "*.php",
	"py": "*.{py,pyi}", "ruby": "*.rb", "rust": "*.rs", "sh": "*.{sh,bash}", "sql": "*.sql", "swift": "*.swift", "toml": "*.toml",
	"ts": "*.{ts,tsx,mts,cts}", "xml": "*.xml", "yaml": "*.{yaml,yml}",
}

// grepAliases takes lines of context on one side, types of files, files to leave out, that only
// names are wanted, that case matters, and what the pattern is.
func grepAliases(v values) (used []string) {
	for _, name := range []string{"-A", "-B", "-C", "before", "after"} {
		n, ok := v[name].(json.Number)
		if !ok {
			continue
		}
		used = append(used, name)
		if delete(v, name); v.number("context") < (values{"n": n}).number("n") {
			v["context"] = n
		}
	}
	_, has := v["include"]
	_, also := v["glob"]
	if glob := fileTypes[v.text("type")]; glob != "" && !has && !also {
		used = append(used, "type")
		v["include"] = glob
		delete(v, "type")
	}
	if matters, ok := v["case_sensitive"].(bool); ok {
		used = append(used, "case_sensitive")
		if delete(v, "case_sensitive"); !matters {
			v["ignore_case"] = true
		}
	}
	if no := v.text("exclude_pattern"); no != "" && !has && !also && !strings.HasPrefix(no, "!") {
		used = append(used, "exclude_pattern")
		v["include"] = "!" + no
		delete(v, "exclude_pattern")
	}
	if only, ok := v["names_only"].(bool); ok {
		used = append(used, "names_only")
		if delete(v, "names_only"); only {
			v["output_mode"] = "files"
		}
	}
	if regexp, ok := v["is_regexp"].(bool); ok {
		used = append(used, "is_regexp")
		if delete(v, "is_regexp"); !regexp {
			v["literal"] = true
		}
	}
	return used
}
