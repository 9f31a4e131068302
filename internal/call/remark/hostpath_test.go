package remark

import (
	"testing"

	"github.com/toold/toold/client"
)

func TestMentions(t *testing.T) {
	for input, want := range map[string]bool{
		`{"a":"/home/x/src"}`:                 true,
		`{"a":"cat /home/x/src/b.go"}`:        true,
		`{"a":"/home/x/src2"}`:                false,
		`{"a":"/home/x/src-old /home/x/src"}`: true,
		`{"a":"/home/x"}`:                     false,
	} {
		if got := Mentions([]byte(input), "/home/x/src"); got != want {
			t.Errorf("%s: %t", input, got)
		}
	}
}

func TestForeign(t *testing.T) {
	row := &client.Session{Worktree: client.Worktree{Target: "/workspace"}, Mounts: []client.Mount{{Target: "/data/in"}}}
	for source, want := range map[string]bool{
		"/home/x/src": true, "/srv": true, "/workspaces": true, "/data/out": true,
		"/workspace": false, "/workspace/a": false, "/data": false, "/data/in/x": false, "/tmp/w": false, "/usr": false,
	} {
		if got := Foreign(row, source); got != want {
			t.Errorf("%s: %t", source, got)
		}
	}
}

func TestHostWorktree(t *testing.T) {
	for _, w := range []client.Worktree{{}, {Source: "/", Target: "/w"}, {Source: "/w", Target: "/w"}} {
		if source, target := HostWorktree(w); source != "" || target != "" {
			t.Errorf("%+v: %q, %q", w, source, target)
		}
	}
	if source, target := HostWorktree(client.Worktree{Source: "/a/", Target: "/w"}); source != "/a" || target != "/w" {
		t.Errorf("%q, %q", source, target)
	}
}
