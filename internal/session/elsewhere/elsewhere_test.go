package elsewhere

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toold/toold/internal/worktree"
)

// TestShow: git's directory is where git looks for it from the target, or the note says
// which target would do.
func TestShow(t *testing.T) {
	refused := errors.New("nothing can be there")
	for _, tt := range []struct {
		name                    string
		path, names, back       string
		target, taken           string
		check                   error
		place, note, env, trust string
	}{
		{name: "linked", path: "/src/l", names: "/src/repo/.git", target: "/w", place: "/src/repo/.git", note: "git commit fails"},
		{name: "linked, relative", path: "/src/l", names: "../repo/.git", target: "/w/l", place: "/w/repo/.git", note: "git commit fails"},
		{name: "part", path: "/src/repo/a/b", names: "../../.git", back: "../a/b", target: "/w/a/b", place: "/w/.git", note: "git status .", env: "1", trust: "directory = \"/w\"\n"},
		{name: "part, elsewhere", path: "/src/repo/a/b", names: "../../.git", back: "../a/b", target: "/workspace", note: "target /workspace/a/b)"},
		{name: "part of all", path: "/src/repo/a", names: "../.git", back: "../a", target: "/a", note: "target /workspace/a)"},
		{name: "submodule", path: "/src/repo/m", names: "../.git/modules/m", back: "../../../m", target: "/w/m", place: "/w/.git/modules/m", note: "git commit fails"},
		{name: "submodule, elsewhere", path: "/src/repo/m", names: "../.git/modules/m", back: "../../../m", target: "/w", note: "target /workspace/m)"},
		{name: "submodule with absolute paths", path: "/src/repo/m", names: "/src/repo/.git/modules/m", back: "../../../m", target: "/w", note: "target /src/repo/m)"},
		{name: "own mount", path: "/src/l", names: "/src/repo/.git", target: "/w", taken: "/src/repo"},
		{name: "in the worktree", path: "/src/l", names: "/src/repo/.git", target: "/src", note: "it would be in the worktree"},
		{name: "no place", path: "/src/l", names: "/tmp/repo/.git", target: "/w", check: refused, note: "nothing can be there"},
		{name: "a hostile name", path: "/src/l", names: "/src/\x1b[1m\xff/.git", target: "/w", check: refused, note: "git does not work"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			e := &worktree.Elsewhere{
				Linked: !strings.HasPrefix(tt.name, "part"), Allowed: true, Path: tt.path, Names: tt.names, Back: tt.back,
				Dir: &worktree.Directory{File: dir, Path: tt.names},
			}
			var taken []string
			if tt.taken != "" {
				taken = []string{tt.taken}
			}
			v := Show(&worktree.Directory{Path: tt.path, Git: e}, tt.path, tt.target, taken, func([]string) error { return tt.check })
			place := ""
			if v.Mount != nil {
				place = v.Mount.Target
			}
			if place != tt.place || !strings.Contains(v.Note, tt.note) || (v.Note == "") != (tt.note == "") {
				t.Errorf("at %q, note %q", place, v.Note)
			}
			if got := v.Env()["GIT_DISCOVERY_ACROSS_FILESYSTEM"]; got != tt.env || !strings.HasSuffix(v.Config(), tt.trust) || (v.Config() == "") != (v.Mount == nil) || strings.Contains(v.Config(), "safe") != (tt.trust != "") {
				t.Errorf("environment %q, configuration %q", got, v.Config())
			}
			if strings.ContainsRune(v.Note, 0x1b) || !utf8.ValidString(v.Note) {
				t.Errorf("note %q", v.Note)
			}
			if _, err := dir.Stat(); (err == nil) != (v.Mount != nil) {
				t.Errorf("mount %v, and its directory: %v", v.Mount, err)
			}
		})
	}
}
