package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/toold/toold/client"
)

// run and session rm name the files that the host would run on sight, and what to do.
func TestSensitiveWarning(t *testing.T) {
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf(".git/hooks/%02d", i)
	}
	many[0] = "a\x1b[2Jb/.envrc" // a daemon that does not quote
	tests := []struct {
		name    string
		changes *client.SensitiveChanges
		want    []string // on standard error, each
	}{
		{name: "none"},
		{
			"some", &client.SensitiveChanges{Changed: []string{".git/config", `"a\nb/.envrc"`}},
			[]string{
				"changed files that programs of the host run or obey on sight:\n  .git/config\n  \"a\\nb/.envrc\"\nlook at them before git, an editor, direnv or CI works in /src;",
				"toolctl run --worktree /src --mode ro -- cat FILE\n",
			},
		},
		{"many", &client.SensitiveChanges{Changed: many, More: 7}, []string{`a\x1b[2Jb/.envrc`, "  … and 17 more; toolctl session show names up to 30"}},
		{"build files", &client.SensitiveChanges{Build: []string{"Makefile", "b", "c", "d", "e", "f", "g"}}, []string{"build files, whose commands run when you build: Makefile, b, c, d, e and 2 more"}},
		{"unknown", &client.SensitiveChanges{Unchecked: "the session is lost"}, []string{"(the session is lost): treat /src as if"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			over := session()
			over.Worktree.Sensitive = tt.changes
			h := runHandlers(stream(bashDone("", exited(0))))
			h["DELETE /v1/sessions/{id}"] = answerWith(over)
			d := startFake(t, h)
			for _, r := range []result{d.ctl("run", "--", "true"), d.ctl("session", "rm", fakeSession)} {
				for _, want := range tt.want {
					r.want(t, 0, "", want)
				}
				if tt.changes == nil && r.stderr != "" {
					t.Errorf("stderr %q", r.stderr)
				}
			}
			shown := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions/{id}": answerWith(over)})
			r := shown.ctl("session", "show", fakeSession)
			if tt.changes != nil && len(tt.changes.Changed) > 1 {
				r.want(t, 0, tt.changes.Changed[1]+" (programs of the host run or obey it)", "")
			}
		})
	}
}
