package tool

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/toold/toold/internal/plain"
)

// similarField is plain.Near for the keys of an input, whose names are made of words: one
// that has a word of theirs may be meant too ("path" for "file_path").
func similarField(name string, fields []string) []string {
	if near := plain.Near(name, fields); len(near) > 0 {
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

// foreign are names that other systems have trained models on, folded, and what
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
	switch ours, known := foreign[plain.Folded(name)]; {
	case known && slices.Contains(names, ours):
		return fmt.Sprintf("use %s, which does that here; %s", ours, all)
	case known:
		return "no tool does that here; " + all
	}
	if near := plain.Near(name, names); len(near) > 0 {
		return fmt.Sprintf("did you mean %s? %s", strings.Join(near, " or "), "T"+all[1:])
	}
	return all
}
