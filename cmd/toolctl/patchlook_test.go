package main

import (
	"net/http"
	"slices"
	"testing"

	"github.com/toold/toold/client"
)

// A patch is not applied before somebody has looked at what hosts run on sight: it is
// named however many changes there are before it, and with -q. A patch has nothing of .git.
func TestPatchSaysWhatToLookAt(t *testing.T) {
	t.Chdir(t.TempDir())
	h := runTree()
	h["GET /v1/sessions/{id}/diff"] = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Accept") != "application/json":
		case r.URL.Query().Get("after") == "":
			answer(w, 200, client.Changes{Items: []client.Change{{Path: ".git/hooks/x", Status: client.ChangeAdded, Kind: "file", Sensitive: true}}, Next: "n", Files: 3})
		default:
			answer(w, 200, client.Changes{Files: 3, Items: []client.Change{
				{Path: ".vscode\x1b", Status: client.ChangeAdded, Kind: "file", Sensitive: true}, {Path: "Makefile", Status: client.ChangeModified, Kind: "file", Build: true},
			}})
		}
	}
	r := startFake(t, h).ctl("run", "-q", "--worktree", ".", "--mode", "overlay", "--patch", "p", "--", "x")
	want := "toolctl: programs of the host run or obey these on sight; look at them before you apply the patch\n" +
		"toolctl:   \".vscode\\033\"\ntoolctl: look at these before you build; their commands run then\ntoolctl:   Makefile\n"
	if r.code != 3 || r.stderr != want {
		t.Errorf("exit %d, said %s", r.code, r.stderr)
	}
}

func TestInPatch(t *testing.T) {
	added := func(path string) client.Change {
		return client.Change{Path: path, Status: client.ChangeAdded, Kind: "file"}
	}
	flagged := func(path, kind string) client.Change {
		return client.Change{Path: path, Status: client.ChangeModified, Kind: kind, Sensitive: true}
	}
	onSight, build := inPatch([]client.Change{
		flagged(".git/config", "file"), flagged(".git", "dir"), flagged("lib/.git", "file"), flagged(".vscode", "dir"), flagged(".vscode/x", "file"),
		flagged(".envrc", ""), // removed
		added("a/HEAD"), added("a/objects/x"), added("a/objects"), added("a/refs"), added("b/Head"), added("b/commondir"),
		added("c/HEAD"), added("c/objects"), added("HEAD"), added("d\n/HEAD"), added("d\n/commondir"),
	})
	if want := []string{".vscode/x", ".envrc", "a", "b", `"d\n"`}; !slices.Equal(onSight, want) {
		t.Errorf("got %q, want %q", onSight, want)
	}
	if len(build) > 0 {
		t.Errorf("got %q", build)
	}
}
