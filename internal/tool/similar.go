package tool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/toold/toold/internal/tool/run/spelling"
)

// similar are at most three of names that name may have been meant to be, the
// nearest first: those that differ in at most a third of name's characters.
func similar(name string, names []string) []string {
	const longest = 64 // nothing of ours is longer; bounds the comparison
	if len(name) > longest {
		return nil
	}
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, n := range names {
		if d, ok := spelling.Alike(plainName(name), plainName(n)); ok {
			near = append(near, candidate{n, d})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, c := range near[:min(len(near), 3)] {
		out = append(out, c.name)
	}
	return out
}

// similarField is similar for the keys of an input, whose names are made of words: one
// that has a word of theirs may be meant too ("path" for "file_path").
func similarField(name string, fields []string) []string {
	if near := similar(name, fields); len(near) > 0 {
		return near
	}
	words := strings.FieldsFunc(snakeCase(name), isSeparator)
	var near []string
	for _, f := range fields {
		if slices.ContainsFunc(strings.FieldsFunc(f, isSeparator), func(w string) bool { return slices.Contains(words, w) }) {
			near = append(near, f)
		}
	}
	return near[:min(len(near), 3)]
}

func isSeparator(r rune) bool { return r == '_' || r == '-' }

// snakeCase is filePath as file_path.
func snakeCase(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// plainName takes away what spellings of one name differ in.
func plainName(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}

// foreign are names that other systems have trained models on, in plain form, and what
// does the same here; "" = nothing does.
var foreign = map[string]string{
	"shell": "bash", "localshell": "bash", "containerexec": "bash", "execcommand": "bash", "executecommand": "bash",
	"runcommand": "bash", "runshellcommand": "bash", "runterminalcmd": "bash", "runinterminal": "bash", "terminal": "bash", "sh": "bash",
	"readfile": "read", "readmanyfiles": "read", "viewfile": "read", "view": "read", "cat": "read", "openfile": "read",
	"viewimage": "read", "notebookread": "read",
	"writefile": "write", "writetofile": "write", "createfile": "write", "create": "write",
	"strreplaceeditor": "edit", "strreplacebasededittool": "edit", "strreplace": "edit", "replace": "edit", "multiedit": "edit",
	"editfile": "edit", "replaceinfile": "edit", "searchreplace": "edit", "applypatch": "edit", "patch": "edit", "notebookedit": "edit",
	"ls": "list", "listdir": "list", "listdirectory": "list", "listfiles": "list", "tree": "list",
	"searchfilecontent": "grep", "searchfiles": "grep", "grepsearch": "grep", "codebasesearch": "grep", "ripgrep": "grep", "rg": "grep",
	"search": "grep", "codesearch": "grep",
	"find": "glob", "findfiles": "glob", "filesearch": "glob", "globfiles": "glob",
	"task": "", "agent": "", "todowrite": "", "todoread": "", "writetodos": "", "updateplan": "", "webfetch": "", "websearch": "",
	"googlewebsearch": "", "savememory": "", "memory": "", "skill": "", "exitplanmode": "", "askuserquestion": "", "question": "",
	"bashoutput": "", "killshell": "", "killbash": "", "taskoutput": "", "lsp": "", "computer": "", "browser": "",
}

// insteadOf is the hint for a name that is none of names, those of the tools.
func insteadOf(name string, names []string) string {
	all := "the tools are " + strings.Join(names, ", ")
	switch ours, known := foreign[plainName(name)]; {
	case known && slices.Contains(names, ours):
		return fmt.Sprintf("use %s, which does that here; %s", ours, all)
	case known:
		return "no tool does that here; " + all
	}
	if near := similar(name, names); len(near) > 0 {
		return fmt.Sprintf("did you mean %s? %s", strings.Join(near, " or "), "T"+all[1:])
	}
	return all
}
