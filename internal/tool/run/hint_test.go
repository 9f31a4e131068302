package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// Advice about a pattern is about grep's own parameters, not about ripgrep's flags.
func TestGrepAdvice(t *testing.T) { withRipgreps(t, testGrepAdvice) }

func testGrepAdvice(t *testing.T, env *Env) {
	for pattern, want := range map[string]string{
		`a\nb`:   "Set multiline to search across lines.",
		"a\nb":   "Set multiline to search across lines.",
		"(?<=a)": "There are no look-arounds and no back-references",
		"a(?!b)": "There are no look-arounds and no back-references",
		`(a)\1`:  "There are no look-arounds and no back-references",
		"a(b":    "Set literal to search for plain text.",
	} {
		r, err := call(t, env, Grep{}, object{"pattern": pattern})
		if err != nil || !r.IsError || !strings.Contains(r.Output, want) || strings.Contains(r.Output, "--") || strings.Contains(r.Output, "Consider") {
			t.Errorf("%q: %+v, %v", pattern, r, err)
		}
	}
}

func TestListOfGlobs(t *testing.T) {
	env := ripgrepEnv(t)
	for _, glob := range []string{"*.ts,*.js", "*.ts, *.js", "src/**,lib/**", "*.{a,b},*.c"} {
		_, err := call(t, env, Grep{}, object{"pattern": "x", "include": glob})
		wantCode(t, err, CodeInvalidInput, "write {")
		_, err = call(t, env, Glob{}, object{"pattern": glob})
		wantCode(t, err, CodeInvalidInput, "write {")
	}
	_, err := call(t, env, Glob{}, object{"pattern": "*.ts, *.js"})
	wantCode(t, err, CodeInvalidInput, "write {*.ts,*.js} for several")
	tree(t, env.Worktree, map[string]string{"a,b.ts": "", "x*,": ""})
	for _, glob := range []string{"a,b.ts", "a,*.ts", "*.{ts,js}", "[,*]*"} {
		if text, r := answer(t, env, Glob{}, object{"pattern": glob}); r.IsError {
			t.Errorf("%s: %s", glob, text)
		}
	}
}

func TestMissingInOtherForm(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/cafe\u0301/x", "text\n")
	must(t, syscall.Mkfifo(dir+"/main.g", 0o600))
	r := mustFail(t, env, Read{}, object{"file_path": "caf\u00e9/x"})
	if want := `give it as "/w/cafe\u0301"`; !strings.Contains(r.Output, want) {
		t.Errorf("no %q in %s", want, r.Output)
	}
	// What no file tool opens is not proposed.
	if r := mustFail(t, env, Read{}, object{"file_path": "main.go"}); r.Output != "/w/main.go does not exist" {
		t.Errorf("%s", r.Output)
	}
}

// TestOtherGlobs: a glob that finds nothing is looked for in the other case, and as a list or an extension.
func TestOtherGlobs(t *testing.T) {
	env := ripgrepEnv(t)
	tree(t, env.Worktree, map[string]string{"README.md": "", "src/a.ts": "", "src/b.tsx": ""})
	for glob, want := range map[string]string{
		"readme.md": "finds 1 file, for example", "*.ts;*.tsx": "(The glob {*.ts,*.tsx} finds 2 files", "ts": "(The glob *.ts finds 1 file",
		"src/*.ts;src/*.tsx": "{src/*.ts,src/*.tsx} finds 2 files", "SRC/*.{TS,tsx}": "finds 2 files", "*.ts": "", "none": "",
	} {
		r, err := call(t, env, Glob{}, object{"pattern": glob})
		if err != nil || !strings.Contains(r.Output, want) || want == "" && strings.Contains(r.Output, "The glob") {
			t.Errorf("%s: %+v, %v", glob, r, err)
		}
	}
}

// TestSearchThatEnds: where a name was looked for among a part of the worktree, that is said.
func TestSearchThatEnds(t *testing.T) {
	env, dir := fileEnv(t)
	for i := range nameLooks + 1 {
		writeFile(t, fmt.Sprintf("%s/d/%d", dir, i), "")
	}
	for path, want := range map[string]string{"zzzz/main.go": "It may be deeper in the worktree", "/zzzz/main.go": "The worktree is /w"} {
		r := mustFail(t, env, Read{}, object{"file_path": path})
		if !strings.Contains(r.Output, want+", of which the first 5000 entries were searched for the name: glob **/main.go looks at all") {
			t.Errorf("%s", r.Output)
		}
	}
}

func mustFail(t *testing.T, env *Env, tool Tool, in object) *Result {
	t.Helper()
	r, err := callTool(t, env, tool, in)
	if err != nil || !r.IsError {
		t.Fatalf("%s %v: %+v, %v", tool.Name(), in, r, err)
	}
	return r
}

// A write that fails for its place says which places there are.
func TestPlacesThatCanBeWritten(t *testing.T) {
	env, _ := fileEnv(t)
	env.Home, env.Tmp = "/home/agent", "/tmp"
	readOnly := &root.Error{Code: root.Failed, Msg: "cannot create: the file system is read-only", Err: unix.EROFS}
	denied := &root.Error{Code: root.Denied, Msg: "cannot create: permission denied", Err: unix.EACCES}
	for _, tt := range []struct {
		path string
		err  error
		says string
	}{
		{"/etc/x", readOnly, "; files can be written below /w, /home/agent, /tmp"},
		{"/etc/x", denied, "; files can be written below /w, /home/agent, /tmp"},
		{"/w/x", readOnly, "; files can be written below /home/agent, /tmp"},
		{"/w/x", denied, "permission denied"},
		{"/w/x", &root.Error{Code: root.Failed, Msg: "no space", Err: unix.ENOSPC}, "no space"},
	} {
		r, err := changeFailure(t.Context(), env, tt.path, tt.err)
		if err != nil || !strings.HasSuffix(r.Output, tt.says) {
			t.Errorf("%s, %v: %+v, %v", tt.path, tt.err, r, err)
		}
	}
}

// A glob that names a directory of its own is searched there, and one that finds
// nothing says why.
func TestGlobElsewhere(t *testing.T) { withRipgreps(t, testGlobElsewhere) }

func testGlobElsewhere(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{
		"w/.gitignore": "dist/\n*.log\n", "w/src/a.go": "", "w/dist/a.js": "", "w/dist/sub/b.js": "", "w/x.log": "", "w/.git/config": "",
		"other/o.conf": "", "other/deep/p.conf": "",
	})
	must(t, os.Symlink("../other", env.Worktree+"/w/link"))
	top := env.Worktree
	env.Worktree += "/w"
	for _, tt := range []struct {
		in          object
		found, says string
	}{
		{object{"pattern": top + "/other/*.conf"}, top + "/other/o.conf\n", ""},
		{object{"pattern": top + "/other/**/p.conf"}, top + "/other/deep/p.conf\n", ""},
		{object{"pattern": "../other/*.conf"}, top + "/other/o.conf\n", ""},
		{object{"pattern": "../*/*.conf", "path": "src"}, "", ""},
		{object{"pattern": "/*.go"}, "", ""},
		{object{"pattern": "/src/*.go"}, "", "/w/src. A pattern that begins with / is a path from the root; for files below the worktree leave the / out"},
		{object{"pattern": "/src/*.go", "path": "."}, env.Worktree + "/src/a.go\n", ""},
		{object{"pattern": top + "/other/*.conf", "path": "."}, "", "To search another directory set path.)"},
		{object{"pattern": "srcc/*.go"}, "", "/w/srcc does not exist. Did you mean one of these?\n" + env.Worktree + "/src"},
		{object{"pattern": "link/*.conf"}, "", env.Worktree + "/link leads to " + top + "/other, and links are not followed: set path to that.)"},
		{object{"pattern": "link/*.conf", "path": "."}, "", "set path to that.)"},
		{object{"pattern": "dist/**/*.js"}, "", "(2 files match that ignore files such as .gitignore exclude, for example " + env.Worktree + "/dist/a.js: set path to " + env.Worktree + "/dist to find what is there.)"},
		{object{"pattern": "**/b.js"}, "", "(1 file matches that ignore files such as .gitignore exclude, for example " + env.Worktree + "/dist/sub/b.js: set path to " + env.Worktree + "/dist/sub to"},
		{object{"pattern": "*.js", "path": "dist"}, env.Worktree + "/dist/sub/b.js\n", ""},
		{object{"pattern": "*.log"}, "", "(1 file matches that ignore files such as .gitignore exclude, for example " + env.Worktree + "/x.log: read and edit open it by its name"},
		{object{"pattern": ".git/config"}, "", "set path to " + env.Worktree + "/.git to"},
		{object{"pattern": "src"}, "", env.Worktree + "/src is a directory, and files are found: give the pattern as src/** to find what is in it.)"},
		{object{"pattern": "*.nothing"}, "No files found.\n", ""},
	} {
		r, err := call(t, env, Glob{}, tt.in)
		must(t, err)
		if !strings.Contains(r.Output, tt.found) || !strings.Contains(r.Output, tt.says) || tt.says == "" && strings.Contains(r.Output, "\n(") {
			t.Errorf("%v: %s", tt.in, r.Output)
		}
	}
	_, err := call(t, env, Glob{}, object{"pattern": "*/../x"})
	wantCode(t, err, CodeInvalidInput, "goes up with ..")
	_, err = call(t, env, Grep{}, object{"pattern": "x", "include": "../other/*"})
	wantCode(t, err, CodeInvalidInput, "set path to the directory")
	if text, _ := answer(t, env, Grep{}, object{"pattern": "x", "include": "/etc/*.conf"}); !strings.Contains(text, "To search another directory set path.)") {
		t.Errorf("include: %s", text)
	}
}

// A grep that finds nothing says what ignore files keep from it, but not of files that
// rules hide, nor of what version control keeps for itself.
func TestGrepElsewhere(t *testing.T) { withRipgreps(t, testGrepElsewhere) }

func testGrepElsewhere(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{
		".gitignore": "dist/\n*.log\n*.key\n", "src/a.go": "one\n", "dist/a.js": "two three\n", "dist/sub/b.js": "two\n", "x.log": "four\n", ".git/config": "five\n",
		"secret.key": "six\n", "dist/.env": "six\n",
	})
	env = guarded(t, env)
	top := env.Worktree
	for _, tt := range []struct {
		in   object
		says string
	}{
		{object{"pattern": "one"}, ""},
		{object{"pattern": "two"}, "(2 files match that ignore files such as .gitignore exclude, for example " + top + "/dist/a.js: set path to " + top + "/dist to search what is there.)"},
		{object{"pattern": "three", "include": "*.js"}, "(1 file matches that"},
		{object{"pattern": "three", "include": "*.go"}, ""},
		{object{"pattern": "two", "path": "dist"}, ""},
		{object{"pattern": "four"}, "for example " + top + "/x.log: set path to the file to search it"},
		{object{"pattern": "four", "path": "x.log"}, ""},
		{object{"pattern": "five"}, ""},
		{object{"pattern": "six"}, ""},
		{object{"pattern": "seven"}, ""},
	} {
		r := mustCall(t, env, Grep{}, tt.in)
		if !strings.Contains(r.Output, tt.says) || tt.says == "" && strings.Contains(r.Output, "ignore files") {
			t.Errorf("%v: %s", tt.in, r.Output)
		}
	}
	many := map[string]string{}
	for i := range grepWhyFiles + 20 {
		many[fmt.Sprintf("dist/many/%d", i)] = "eight\n"
	}
	tree(t, env.Worktree, many)
	if r := mustCall(t, env, Grep{}, object{"pattern": "eight"}); !strings.Contains(r.Output, fmt.Sprintf("(at least %d files match", grepWhyFiles)) {
		t.Error(r.Output)
	}
}

// A name that is not plain text can be given as answers show it, with escapes.
func TestQuotedNames(t *testing.T) {
	env, dir := fileEnv(t)
	for _, name := range []string{"line\nbreak", `"q"`, "plain", "d\x1b/in\t", " x", "zero\u200b"} {
		writeFile(t, dir+"/"+name, "one\n")
		var shown string
		r := mustCall(t, env, Read{}, object{"file_path": filepath.Dir("/w/" + name)})
		if shown, _, _ = strings.Cut(r.Output, "\n"); filepath.Dir(name) == "." {
			shown = plain.Name(name)
			if !strings.Contains(r.Output, shown+"\n") {
				t.Fatalf("%q is not shown: %s", name, r.Output)
			}
		} else {
			shown = plain.Name(filepath.Dir(name)) + "/" + shown
		}
		for _, asked := range []string{shown, "/w/" + shown, plain.Name("/w/" + name)} {
			for _, tool := range []Tool{Read{}, Write{}, Edit{}} {
				in := object{"file_path": asked, "content": "one\n", "old_string": "one", "new_string": "one "}
				own := *env
				raw, err := json.Marshal(in)
				must(t, err)
				prep, err := tool.Prepare(t.Context(), &own, raw)
				must(t, err)
				if prep.Targets[0].Path != "/w/"+name {
					t.Errorf("%s %s: %q", tool.Name(), asked, prep.Targets[0].Path)
				}
				if r, err := tool.Run(t.Context(), &own, raw, prep); err != nil || r.IsError {
					t.Errorf("%s %s: %+v, %v", tool.Name(), asked, r, err)
				}
			}
			writeFile(t, dir+"/"+name, "one\n")
		}
	}
	// What is not UTF-8 is refused with what to do: others would read it as another name.
	writeFile(t, dir+"/bad\xff", "x")
	_, err := callTool(t, env, Read{}, object{"file_path": `"bad\xff"`})
	expectCode(t, err, CodeInvalidPath)
	if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Hint, "bash, which opens it by the escapes in $'…'") {
		t.Error(err)
	}
	// What is there by the name as it stands comes first.
	writeFile(t, dir+"/q", "two\n")
	if r := mustCall(t, env, Read{}, object{"file_path": `"q"`}); !strings.Contains(r.Output, "one") {
		t.Errorf("%s", r.Output)
	}
	if r := mustFail(t, env, Read{}, object{"file_path": `"no`}); r.Metadata[ForeignOwner] != nil {
		t.Errorf("%+v", r)
	}
}

// TestHintsHideNames: what a missing file may have been meant to be has no name that the rules
// of "read" deny, whichever tool says so: each tool of the registry has its row.
func TestHintsHideNames(t *testing.T) {
	t.Parallel()
	env, dir := fileEnv(t)
	tree(t, dir, map[string]string{"plan.txt": "x", "plan.key": "x", "plan.d/in": "x", "secret/plan.here": "x"})
	env = guarded(t, env)
	edits := []any{object{"old_string": "a", "new_string": "b"}}
	patch := func(path string) string {
		return "*** Begin Patch\n*** Update File: " + path + "\n@@\n-a\n+b\n*** End Patch\n"
	}
	const made = "makes what is not there"
	rows := map[string]struct {
		in   func(path string) object
		none string // why it has no hint
		mute bool   // it says no more than that there is nothing
	}{
		"read":          {in: func(p string) object { return object{"file_path": p} }},
		"edit":          {in: func(p string) object { return object{"file_path": p, "old_string": "a", "new_string": "b"} }},
		"multiedit":     {in: func(p string) object { return object{"file_path": p, "edits": edits} }},
		"apply_patch":   {in: func(p string) object { return object{"patch": patch(p)} }},
		"list":          {in: func(p string) object { return object{"path": p} }},
		"glob":          {in: func(p string) object { return object{"pattern": "*", "path": p} }},
		"grep":          {in: func(p string) object { return object{"pattern": "x", "path": p} }},
		"bash":          {},
		"file_get_tree": {in: func(p string) object { return object{"path": p, "max_bytes": 1 << 20} }},
		"file_get":      {in: func(p string) object { return object{"path": p} }, mute: true},
		"write":         {none: made}, "file_put": {none: made}, "file_put_tree": {none: made},
	}
	inner := map[string]bool{} // which the daemon alone asks for, and not with a path of a call
	for _, tool := range []Tool{Changes{}, Formatted{}, Aside{}, Diff{}, DiffTouched{}, DiffStrict{}, Revert{}, RevertTouched{}} {
		inner[tool.Name()] = true
	}
	for _, tool := range Builtin() {
		row, ok := rows[tool.Name()]
		if inner[tool.Name()] || row.none != "" {
			continue
		}
		if !ok {
			t.Errorf("%s has no row: what does it say of a path that is not there?", tool.Name())
			continue
		}
		// Beside the missing one, and elsewhere in the worktree by the same name.
		for path, shows := range map[string]string{"plan.tx": "plan.txt", "plan.ke": "", "/elsewhere/plan.here": "", "/elsewhere/plan.key": ""} {
			said := ""
			var r *Result
			var err error
			if tool.Name() == "bash" { // no shell is started here
				dir := filepath.Join("/w", path)
				if filepath.IsAbs(path) {
					dir = path
				}
				err = bashStartError(t.Context(), env, fmt.Errorf("working directory %s: %w", dir, fs.ErrNotExist), dir)
			} else {
				r, err = callTool(t, env, tool, row.in(path))
			}
			if err != nil {
				said = err.Error()
			} else if said = r.Output; !r.IsError {
				t.Errorf("%s %s: %+v", tool.Name(), path, r)
			}
			said = strings.ReplaceAll(said, "/elsewhere/plan.key", "") // as it was asked
			if strings.Contains(said, "plan.key") || strings.Contains(said, "secret") {
				t.Errorf("%s %s names what read denies: %s", tool.Name(), path, said)
			}
			if !row.mute && !strings.Contains(said, shows) {
				t.Errorf("%s %s: %s", tool.Name(), path, said)
			}
		}
	}
}
