package run

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// envelope is a patch of these lines.
func envelope(lines ...string) object {
	return object{"patch": "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch\n"}
}

func TestApplyPatch(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/a", "one\ntwo\nthree\n")
	writeFile(t, dir+"/gone", "x\n")
	writeFile(t, dir+"/src", "moved\n")
	if err := os.Chmod(dir+"/src", 0o711); err != nil {
		t.Fatal(err)
	}
	r := mustCall(t, env, ApplyPatch{}, envelope("*** Update File: a", "@@", " one", "-two", "+2", "*** Delete File: gone",
		"*** Update File: src", "*** Move to: d/dst", "*** Add File: d/new", "+n"))
	if contentOf(t, dir+"/a") != "one\n2\nthree\n" || contentOf(t, dir+"/d/dst") != "moved\n" || contentOf(t, dir+"/d/new") != "n\n" {
		t.Errorf("%+v", r)
	}
	if info, err := os.Stat(dir + "/d/dst"); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("mode of what was moved: %v, %v", info, err)
	}
	for _, name := range []string{"gone", "src"} {
		if _, err := os.Lstat(dir + "/" + name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	want := "Applied the patch to 5 files:\nupdated a: 1 line added, 1 removed\ndeleted gone: 0 lines added, 1 removed\nmoved d/dst from src: 0 lines added, 0 removed\ncreated d/new: 1 line added, 0 removed\nThe lines are now:\n/w/a:\n1\tone\n2\t2\n3\tthree"
	if r.Output != want || r.Title != "a and 4 more" {
		t.Errorf("title %q, output\n%s", r.Title, r.Output)
	}
	diff, _ := r.Metadata["diff"].(string)
	for _, part := range []string{"-two\n+2", "deleted: /w/gone", "moved: /w/src to /w/d/dst", "created: /w/d/new", "+n"} {
		if !strings.Contains(diff, part) {
			t.Errorf("the diff lacks %q:\n%s", part, diff)
		}
	}
	r = mustCall(t, env, ApplyPatch{}, envelope("*** Update File: a", "@@", "   one  ", "-2", "+zwei"))
	if r.Title != "a" || !strings.Contains(r.Output, "found by trimmed matching") || !strings.Contains(r.Output+r.Quote, "+zwei") {
		t.Errorf("%+v", r)
	}
}

// A hunk that fits at two places is a conflict, which names both, and changes nothing.
func TestApplyPatchTwoPlaces(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		hunk  int
	}{
		"one hunk":   {[]string{"*** Update File: a", "@@", "-    return 1", "+    return 2"}, 1},
		"the second": {[]string{"*** Update File: a", "@@", "-def a():", "+def c():", "@@", "-    return 1", "+    return 2"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			env, dir := fileEnv(t)
			const old = "def a():\n    return 1\n\ndef b():\n    return 1\n"
			writeFile(t, dir+"/a", old)
			writeFile(t, dir+"/other", "x\n")
			lines := append([]string{"*** Update File: other", "@@", "-x", "+y"}, tt.lines...)
			r, err := call(t, env, ApplyPatch{}, envelope(lines...))
			if err != nil || !r.IsError || r.Metadata["reason"] != "conflict" || r.Metadata["path"] != "/w/a" || r.Metadata["hunk"] != tt.hunk {
				t.Fatalf("%+v, %v", r, err)
			}
			if !strings.Contains(r.Output, "its lines stand at line 2 and at line 5") || !strings.Contains(r.Output, "nothing was changed") || r.Quote != "" {
				t.Errorf("it says %q%q", r.Output, r.Quote)
			}
			if got := contentOf(t, dir+"/a") + contentOf(t, dir+"/other"); got != old+"x\n" {
				t.Errorf("the files have %q", got)
			}
		})
	}
}

// Whatever does not fit, nothing of the patch happens.
func TestApplyPatchAllOrNothing(t *testing.T) {
	ok := []string{"*** Update File: a", "@@", "-two", "+2", "*** Add File: new/b", "+x"}
	for _, tt := range []struct {
		name, want string
		lines      []string
		settings   string
		code       Code
	}{
		{"no such lines", "c: the hunk (line 9 of the patch): its lines are not in the file.", []string{"*** Update File: c", "@@", "-anothr lin", "+x"}, "", ""},
		{"add over", "c exists: a file that is added", []string{"*** Add File: c", "+x"}, "", ""},
		{"move onto", "a exists: c may not be moved onto it", []string{"*** Update File: c", "*** Move to: a"}, "", ""},
		{"missing", "no does not exist: the patch cannot delete it", []string{"*** Delete File: no"}, "", ""},
		{"a directory", "", []string{"*** Delete File: dir"}, "", CodeNotRegularFile},
		{"below a file", "", []string{"*** Add File: c/d", "+x"}, "", CodeInvalidPath},
		{"binary", "cannot edit bin: it is", []string{"*** Update File: bin", "@@", "-a", "+b"}, "", ""},
		{"a link removed", "link is a symbolic link to /w/c", []string{"*** Delete File: link"}, "", ""},
		{"unread", "has not been read in its present state", []string{"*** Update File: c", "@@", "-another line", "+x"}, `{"require_read":true}`, ""},
		{"no patch", "", []string{"*** Update File: c", "nothing"}, "", CodeInvalidInput},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			env.Settings = json.RawMessage(tt.settings)
			writeFile(t, dir+"/a", "one\ntwo\n")
			writeFile(t, dir+"/c", "another line\n")
			writeFile(t, dir+"/bin", "a\x00\x01\n")
			if err := os.Mkdir(dir+"/dir", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("c", dir+"/link"); err != nil {
				t.Fatal(err)
			}
			r, err := callTool(t, env, ApplyPatch{}, envelope(append(slices.Clone(ok), tt.lines...)...))
			if tt.code != "" {
				expectCode(t, err, tt.code)
			} else if err != nil || !r.IsError || !strings.Contains(r.Output, tt.want) {
				t.Errorf("%+v, %v; want %q", r, err, tt.want)
			}
			if names, _ := os.ReadDir(dir); contentOf(t, dir+"/a") != "one\ntwo\n" || len(names) != 5 {
				t.Errorf("changed: %v", names)
			}
		})
	}
	env, dir := fileEnv(t)
	writeFile(t, dir+"/c", "another line\n")
	r, err := callTool(t, env, ApplyPatch{}, envelope("*** Update File: c", "@@", "-anothr line", "+x"))
	if err != nil || r.Metadata["reason"] != "not_found" || r.Metadata["path"] != "/w/c" || !strings.Contains(r.Output+r.Quote, "lines 1-1") || !strings.Contains(r.Output+r.Quote, "+another line") {
		t.Errorf("no nearest text: %+v, %v", r, err)
	}
}

// What an approver was shown is what is written, or nothing is.
func TestApplyPatchAfterApproval(t *testing.T) {
	env, dir := fileEnv(t)
	restore := func() {
		writeFile(t, dir+"/a", "one\ntwo\n")
		writeFile(t, dir+"/b", "x\n")
		_ = os.Remove(dir + "/c")
	}
	input, err := json.Marshal(envelope("*** Update File: a", "@@", "-two", "+2", "*** Delete File: b", "*** Add File: c", "+c"))
	if err != nil {
		t.Fatal(err)
	}
	restore()
	prep, err := ApplyPatch{}.Prepare(t.Context(), env, input)
	if err != nil || prep.Result != nil || len(prep.Targets) != 3 {
		t.Fatalf("%+v, %v", prep, err)
	}
	for name, disturb := range map[string]func() error{
		"changed": func() error { return os.WriteFile(dir+"/a", []byte("zero\none\ntwo\n"), 0o644) },
		"removed": func() error { return os.Remove(dir + "/b") },
		"created": func() error { return os.WriteFile(dir+"/c", nil, 0o644) },
	} {
		restore()
		if err := disturb(); err != nil {
			t.Fatal(err)
		}
		if _, err := (ApplyPatch{}).Run(t.Context(), env, input, prep); err == nil {
			t.Errorf("%s: it was applied", name)
		} else {
			expectCode(t, err, CodeStale)
		}
	}
	restore()
	r, err := ApplyPatch{}.Run(t.Context(), env, input, prep)
	if err != nil || r.IsError || r.Metadata["diff"] != prep.Diff || contentOf(t, dir+"/a") != "one\n2\n" || contentOf(t, dir+"/c") != "c\n" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A patch of many large files shows what it can, and how many it does not.
func TestApplyPatchLongDiff(t *testing.T) {
	env, _ := fileEnv(t)
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprint("*** Add File: f", i))
		for range 2000 {
			lines = append(lines, "+a line of some length")
		}
	}
	input, err := json.Marshal(envelope(lines...))
	if err != nil {
		t.Fatal(err)
	}
	prep, err := ApplyPatch{}.Prepare(t.Context(), env, input)
	if err != nil || len(prep.Diff) > MaxDiff || !strings.Contains(prep.Diff, "more files, which are too long to be shown") {
		t.Errorf("%d bytes, %v", len(prep.Diff), err)
	}
}

// randomEdits makes a tree of files, or changes one: also by names, modes and last newlines.
func randomEdits(t *testing.T, rnd *rand.Rand, dir string, first bool) {
	t.Helper()
	words := []string{"alpha", "beta", "", "  gamma", "\tdelta", "é – ü", "}", "{", "x\r", "long " + strings.Repeat("y", 50)}
	line := func() string { return words[rnd.IntN(len(words))] }
	names := []string{"a", "b.txt", "d/c", "d/e f", "n/é", "d/x/y"}
	for _, name := range names {
		file := filepath.Join(dir, name)
		old, err := os.ReadFile(file)
		switch rnd.IntN(6) {
		case 0:
			_ = os.Remove(file)
			continue
		case 1:
			if err == nil {
				to := file + "-moved" + strconv.Itoa(rnd.IntN(3))
				if _, err := os.Lstat(to); err != nil {
					_ = os.Rename(file, to)
					file = to
				}
			}
		case 2:
			if !first {
				continue
			}
		}
		lines := strings.SplitAfter(string(old), "\n")
		if err != nil {
			lines = nil
			for range rnd.IntN(40) {
				lines = append(lines, line()+"\n")
			}
		}
		for range rnd.IntN(4) {
			at := rnd.IntN(len(lines) + 1)
			lines = slices.Insert(lines, at, line()+"\n")
			if at := rnd.IntN(len(lines)); rnd.IntN(2) == 0 {
				lines = slices.Delete(lines, at, min(at+1+rnd.IntN(3), len(lines)))
			}
		}
		text := strings.Join(lines, "")
		if rnd.IntN(4) == 0 {
			text = strings.TrimSuffix(text, "\n")
		}
		writeFile(t, file, text)
		if rnd.IntN(5) == 0 {
			if err := os.Chmod(file, []os.FileMode{0o644, 0o755}[rnd.IntN(2)]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// filesIn is all files with their contents, and whether they can be executed.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() == ".git" {
			return filepath.SkipDir
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %t %q\n", path[len(dir):], info.Mode()&0o100 != 0, contentOf(t, path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Diffs of git's between random trees do here what git apply does with them.
func TestApplyPatchLikeGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	rounds := 25
	if n, err := strconv.Atoi(os.Getenv("RUN_TEST_PATCHES")); err == nil {
		rounds = n
	}
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		env, dir := fileEnv(t)
		git := func(args ...string) string {
			t.Helper()
			cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.autocrlf=false"}, args...)...)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("git %q: %v", args, err)
			}
			return string(out)
		}
		git("init", "-q")
		randomEdits(t, rnd, dir, true)
		git("add", "-A")
		git("commit", "-q", "--allow-empty", "-m", "before")
		before := filesIn(t, dir)
		randomEdits(t, rnd, dir, false)
		git("add", "-A")
		want := filesIn(t, dir)
		diff := git("diff", "--cached", "-U"+strconv.Itoa(rnd.IntN(4)))
		git("reset", "-q", "--hard")
		if filesIn(t, dir) != before {
			t.Fatal("git did not put the tree back")
		}
		if diff == "" {
			continue
		}
		r, err := callTool(t, env, ApplyPatch{}, object{"patch": diff})
		if got := filesIn(t, dir); err != nil || r.IsError || got != want {
			t.Fatalf("seed %d: %+v, %v\ngot\n%s\nwant\n%s\nof\n%s", seed, r, err, got, want, diff)
		}
	}
}
