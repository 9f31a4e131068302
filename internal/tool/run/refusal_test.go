package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/run/root"
)

// refused is the text that a model gets of a call that does not do what was asked.
func refused(t *testing.T, env *Env, tool Tool, in object) string {
	t.Helper()
	r, err := call(t, env, tool, in)
	if e, ok := errors.AsType[*Error](err); ok {
		return (&client.Error{Code: client.Code(e.Code), Message: e.Message, Hint: e.Hint}).Text()
	}
	must(t, err)
	if !r.IsError && !strings.Contains(r.Output, "\n(") {
		t.Fatalf("%s %v is not refused: %s", tool.Name(), in, r.Output)
	}
	return r.Output + r.Quote
}

// Each refusal ends with what to do next, which is of the very tool, and says it once.
func TestRefusalsSayWhatIsNext(t *testing.T) { withRipgreps(t, testRefusals) }

func testRefusals(t *testing.T, env *Env) {
	w := env.Worktree
	tree(t, w, map[string]string{"src/a.go": "x\n", "file": "x\n"})
	must(t, os.Symlink("nowhere", w+"/dangling"))
	must(t, os.Symlink("loop", w+"/loop"))
	must(t, syscall.Mkfifo(w+"/fifo", 0o600))
	update := func(path string) object {
		return object{"patch": "*** Begin Patch\n*** Update File: " + path + "\n@@\n-x\n+y\n*** End Patch\n"}
	}
	again := regexp.MustCompile(`\b(again|repeat|retry)\b`)
	for _, tt := range []struct {
		tool Tool
		in   object
		want string // at the end
	}{
		{Glob{}, object{"pattern": "*", "path": "src/a.go"}, "read shows the file and grep searches it; to see what is beside it, set path to " + w + "/src"},
		{List{}, object{"path": "src/a.go"}, "read shows the file and grep searches it; to see what is beside it, set path to " + w + "/src"},
		{Glob{}, object{"pattern": "*", "path": "fifo"}, "set path to a directory: " + w + " has it"},
		{Grep{}, object{"pattern": "x", "path": "fifo"}, "set path to a directory: " + w + " has it"},
		{List{}, object{"path": "srd"}, "Did you mean one of these?\n" + w + "/src"},
		{Grep{}, object{"pattern": "x", "path": "a.go"}, "a.go does not exist. There is " + w + "/src/a.go"},
		{Read{}, object{"file_path": "a.go"}, "a.go does not exist. There is " + w + "/src/a.go"},
		{Read{}, object{"file_path": "file/x"}, "give the path of that file alone, or of another directory; list shows which there are"},
		{Read{}, object{"file_path": "loop"}, "give the path of the file itself; ls -l in bash shows where a link leads"},
		{Read{}, object{"file_path": "none/../x"}, "give it without the . and .. behind that directory, or make the directory first"},
		{Read{}, object{"file_path": strings.Repeat("x", 300)}, "use shorter names, or bash and cd there in steps"},
		{Write{}, object{"file_path": "src", "content": "x"}, "is a directory\nname a file in it"},
		{Write{}, object{"file_path": "dangling", "content": "x"}, "make what the link leads to first, remove the link with bash, or give the path of the file that is meant"},
		{Edit{}, object{"file_path": "src", "old_string": "a", "new_string": "b"}, "is a directory\nname a file in it"},
		{ApplyPatch{}, update("src"), "is a directory\nname a file in it"},
		{ApplyPatch{}, update("a.go"), "the patch cannot update it. There is " + w + "/src/a.go"},
	} {
		got := refused(t, env, tt.tool, tt.in)
		if !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s %v: %s", tt.tool.Name(), tt.in, got)
		}
		if len(again.FindAllString(got, -1)) > 1 {
			t.Errorf("%s %v says twice what is next: %s", tt.tool.Name(), tt.in, got)
		}
	}
	for _, e := range []*root.Error{{Code: root.Stale, Msg: "it has changed"}, {Code: root.InvalidPath, Msg: "no", Hint: "yes"}} {
		_, err := failure("", e)
		if known, ok := errors.AsType[*Error](err); !ok || known.Hint != e.Hint || again.MatchString(known.Message) {
			t.Errorf("%v: %v", e, err)
		}
	}
}

// A path of another machine is not there; every tool that is given one says which file of the
// worktree may be meant.
func TestPathsOfElsewhere(t *testing.T) { withRipgreps(t, testPathsOfElsewhere) }

func testPathsOfElsewhere(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{"a.txt": "x\n", "deep/er/b.txt": "x\n", ".git/b.txt": "x\n"})
	env.Shell = []string{"sh"}
	env.Exec = func(ctx context.Context, c Command) (*Exit, error) {
		if _, err := os.Stat(c.Dir); err != nil {
			return nil, fmt.Errorf("working directory %s: %w", c.Dir, fs.ErrNotExist)
		}
		return hostExec(ctx, c)
	}
	inputs := []struct {
		tool Tool
		of   func(path string) object
	}{
		{Read{}, func(p string) object { return object{"file_path": p} }},
		{Edit{}, func(p string) object { return object{"file_path": p, "old_string": "x", "new_string": "y"} }},
		{MultiEdit{}, func(p string) object {
			return object{"file_path": p, "edits": []object{{"old_string": "x", "new_string": "y"}}}
		}},
		{ApplyPatch{}, func(p string) object {
			return object{"patch": "*** Begin Patch\n*** Update File: " + p + "\n@@\n-x\n+y\n*** End Patch\n"}
		}},
		{Grep{}, func(p string) object { return object{"pattern": "x", "path": p} }},
		{Glob{}, func(p string) object { return object{"pattern": "*", "path": p} }},
		{Glob{}, func(p string) object { return object{"pattern": p + "/*"} }},
		{List{}, func(p string) object { return object{"path": p} }},
		{Bash{}, func(p string) object { return object{"command": "true", "workdir": p} }},
	}
	for path, found := range map[string]string{
		"/no-such-repo/a.txt":                  "a.txt",
		"/no-such-app/deep/er/b.txt":           "deep/er/b.txt",
		"/home/no-such-user/proj/deep/er":      "deep/er",
		"/no-such-repo/sub/b.txt":              "deep/er/b.txt",
		"/no-such-repo":                        "",
		"/no-such-repo/nothing-of-that-name.x": "",
	} {
		for _, in := range inputs {
			got := strings.ReplaceAll(refused(t, env, in.tool, in.of(path)), env.Worktree, "W")
			want := "The worktree is W"
			if found != "" {
				want += ", and has W/" + found
			}
			if !strings.Contains(got, want) || found == "" && strings.Contains(got, "has W/") {
				t.Errorf("%s %s: %s", in.tool.Name(), path, got)
			}
		}
	}
}

func TestUnicodeForms(t *testing.T) { withRipgreps(t, testUnicodeForms) }

func testUnicodeForms(t *testing.T, env *Env) {
	const nfc, nfd = "caf\u00e9.txt", "cafe\u0301.txt"
	tree(t, env.Worktree, map[string]string{"two/" + nfc: "cr\u00e8me\n", "two/" + nfd: "cr\u00e8me\n", "one/" + nfd: "cr\u00e8me\n"})
	both := func(dir string) string { return `"` + dir + `/cafe\u0301.txt" (NFD)` }
	for _, tt := range []struct {
		tool Tool
		in   object
		want []string
	}{
		{List{}, object{"path": "two"}, []string{both("W/two"), `"W/two/caf\u00e9.txt" (NFC)`}},
		{Glob{}, object{"pattern": "*.txt", "path": "two"}, []string{both("W/two"), `"W/two/caf\u00e9.txt" (NFC)`}},
		{Grep{}, object{"pattern": "cr", "path": "two"}, []string{both("W/two"), `"W/two/caf\u00e9.txt" (NFC)`}},
		{Read{}, object{"file_path": "two"}, []string{both("W/two"), `"W/two/caf\u00e9.txt" (NFC)`}},
		{Glob{}, object{"pattern": nfc, "path": "one"}, []string{`for example "W/one/cafe\u0301.txt": give the pattern as "cafe\u0301.txt".`}},
		{Grep{}, object{"pattern": "cre\u0300me", "path": "one"}, []string{`With the same letters in another Unicode form ("cr\u00e8me") 1 file matches`}},
	} {
		got, _ := answer(t, env, tt.tool, tt.in)
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s %v: no %s in %s", tt.tool.Name(), tt.in, want, got)
			}
		}
	}
	if got, _ := answer(t, env, List{}, object{"path": "one"}); strings.Contains(got, "Unicode") {
		t.Errorf("a single name: %s", got)
	}
	// The form in which an answer writes a name is taken back.
	if text, _ := answer(t, env, Read{}, object{"file_path": `"` + env.Worktree + `/one/cafe\u0301.txt"`}); !strings.Contains(text, "cr\u00e8me") {
		t.Errorf("read: %s", text)
	}
}

// What is said of names that look the same is bounded, and counts what it leaves out.
func TestManyUnicodeForms(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("%d/caf\u00e9", i), fmt.Sprintf("%d/cafe\u0301", i))
	}
	for i := range 1 << 8 { // each letter in both forms
		name := "x"
		for bit := range 8 {
			name += []string{"\u00e9", "e\u0301"}[i>>bit&1]
		}
		names = append([]string{name}, names...)
	}
	var b strings.Builder
	noteForms(&b, names)
	for _, want := range []string{", and 252 more. Give a path", "several of 1996 more names above"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %s", want, b.String())
		}
	}
	if b.Len() > 4<<10 {
		t.Errorf("the note has %d bytes", b.Len())
	}
}

// Names in the very directory of a missing path come before one of the worktree that has its name.
func TestSiblingsFirst(t *testing.T) {
	t.Parallel()
	env := searchEnv(t)
	base := env.Worktree
	env.Worktree = base + "/w"
	tree(t, base, map[string]string{"w/sub/main.go": "x\n", "else/main.py": "x\n", "else/other": "x\n"})
	for path, want := range map[string]string{
		"/else/main.go": " does not exist. Did you mean one of these?\n" + base + "/else/main.py\nThe worktree is " + base + "/w, and has " + base + "/w/sub/main.go",
		"/gone/main.go": " does not exist. The worktree is " + base + "/w, and has " + base + "/w/sub/main.go",
		"/else/othe":    " does not exist. The worktree is " + base + "/w. Did you mean one of these?\n" + base + "/else/other",
		"/else/zzz":     " does not exist. The worktree is " + base + "/w",
	} {
		if got := notFound(t.Context(), env, base+path); got != base+path+want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// A file that is replaced is not one with its other names any more, which every tool says.
func TestPartedNames(t *testing.T) {
	env, dir := fileEnv(t)
	env.OutputDir = "/out"
	writeFile(t, filepath.Join(dir, "../out/put"), "new\n")
	for name, tt := range map[string]struct {
		tool Tool
		in   object
	}{
		"write": {Write{}, object{"file_path": "a", "content": "new\n"}},
		"edit":  {Edit{}, object{"file_path": "a", "old_string": "old", "new_string": "new"}},
		"multi": {MultiEdit{}, object{"file_path": "a", "edits": []object{{"old_string": "old", "new_string": "new"}}}},
		"patch": {ApplyPatch{}, object{"patch": "*** Begin Patch\n*** Update File: a\n@@\n-old\n+new\n*** End Patch\n"}},
		"put":   {FilePut{}, object{"from": "/out/put", "path": "a"}},
		"move":  {ApplyPatch{}, object{"patch": "*** Begin Patch\n*** Update File: a\n*** Move to: moved\n@@\n-old\n+new\n*** End Patch\n"}},
	} {
		for _, links := range []int{0, 1, 2} {
			must(t, os.RemoveAll(dir))
			writeFile(t, dir+"/a", "old\n")
			for i := range links {
				must(t, os.Link(dir+"/a", fmt.Sprintf("%s/link%d", dir, i)))
			}
			got := mustCall(t, env, tt.tool, tt.in).Output
			want := map[int]string{0: "", 1: "had 2 names (hard links): the other one keeps the old content.", 2: "had 3 names (hard links): the others keep the old content."}[links]
			if !strings.Contains(got, want) || links == 0 && strings.Contains(got, "hard links") {
				t.Errorf("%s with %d links: %s", name, links, got)
			}
			for i := range links {
				if content := contentOf(t, fmt.Sprintf("%s/link%d", dir, i)); content != "old\n" {
					t.Errorf("%s: a link has %q", name, content)
				}
			}
		}
	}
}

// A tree that is unpacked replaces files as other tools do, and says which had other names. In a tree that is
// packed each name is a file of its own, with all of the content.
func TestPartedTrees(t *testing.T) {
	t.Parallel()
	env, dir := fileEnv(t)
	writeFile(t, dir+"/from/a", "new\n")
	must(t, os.Link(dir+"/from/a", dir+"/from/b"))
	var packed bytes.Buffer
	env.Stream = &packed
	if r := runTree(t, env, FileGetTree{}, PackJob("from", 1<<20)); r.IsError || r.Metadata["files"] != 2 {
		t.Fatalf("%+v", r)
	}
	writeFile(t, dir+"/into/a", "old\n")
	writeFile(t, dir+"/into/b", "alone\n")
	must(t, os.Link(dir+"/into/a", dir+"/into/other"))
	env.Input = &packed
	r := runTree(t, env, FilePutTree{}, UnpackJob("into", 1<<20))
	if r.IsError || !strings.Contains(r.Output, "1 file had other names (hard links), which keep the old content: ") {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{"a": "new\n", "b": "new\n", "other": "old\n"} {
		if got := contentOf(t, dir+"/into/"+name); got != want {
			t.Errorf("%s has %q", name, got)
		}
	}
}
