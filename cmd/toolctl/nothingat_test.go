package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// Names that lists show quoted can be given back as they are shown, to every command that takes paths of
// a worktree; a raw one goes the same way.
func TestQuotedPaths(t *testing.T) {
	d := startFake(t, treeHandlers())
	for arg, want := range map[string]string{
		"a\nb": `"a\nb"`, `"a\nb"`: `"a\nb"`, `"a\012b"`: `"a\nb"`, "a\xff": `"a\xff"`, `"a\377"`: `"a\xff"`, `"\303\251"`: "é", `"a b"`: "a b", `"a`: `"\"a"`, "a\\b": "a\\b",
	} {
		paths, err := treePaths([]string{arg})
		if err != nil || !slices.Equal(paths, []string{want}) {
			t.Errorf("%q: got %q, %v, want %q", arg, paths, err, want)
		}
	}
	for _, command := range []string{"diff", "apply", "discard"} {
		if r := d.ctl(command, "review", `"a\nb"`); r.code != 0 {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

// A path at which nothing differs is told, with the next step; one that is not there is a failure.
func TestNothingAt(t *testing.T) {
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "there"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := session()
	s.Worktree.Source, s.Worktree.Mode = source, client.WorktreeOverlay
	h := treeHandlers()
	maps.Copy(h, map[string]http.HandlerFunc{
		"GET /v1/sessions/{id}": answerWith(s),
		"GET /v1/sessions/{id}/diff": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept") == "application/json" {
				answer(w, 200, client.Changes{Items: []client.Change{}})
			}
		},
		"POST /v1/sessions/{id}/apply":   answerWith(client.Applied{}),
		"POST /v1/sessions/{id}/discard": answerWith(client.Discarded{}),
	})
	d := startFake(t, h)
	for _, argv := range [][]string{{"diff", fakeSession}, {"diff", fakeSession, "--stat"}, {"diff", fakeSession, "-o", "json"}, {"apply", fakeSession}, {"apply", fakeSession, "--dry-run"}, {"discard", fakeSession}} {
		if r := d.ctl(append(argv, "there")...); r.code != 0 || !strings.Contains(r.stderr, "nothing differs there; toolctl diff "+fakeSession+" --name-status lists what differs") {
			t.Errorf("%q: %+v", argv, r)
		}
		if r := d.ctl(append(argv, "there", "nosuch")...); r.code != 1 || !strings.Contains(r.stderr, "no such path: nosuch; toolctl diff "+fakeSession+" --name-status") {
			t.Errorf("%q: %+v", argv, r)
		}
	}
	if r := d.ctl("diff", fakeSession); r.code != 0 || !strings.Contains(r.stderr, "nothing differs: the session has changed nothing") {
		t.Errorf("without a path: %+v", r)
	}
}
