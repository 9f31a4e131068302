package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestNotesAreSaidOnce: what this user has been shown is not said again by any command, what
// another session alone was told is, and what is said is bounded; one of common
// length is whole, as it ends with what to do.
func TestNotesAreSaidOnce(t *testing.T) {
	long := "git is broken: " + strings.Repeat("x", 200)
	created, other := session(), session()
	whole := "the worktree belongs to root: what a session leaves there is root's, on the host a program with all rights; give it to another user"
	created.Notes = []string{long, whole}
	other.ID, other.Notes = "ses_before", created.Notes
	h := callHandlers(bashDone("", exited(0)))
	h["POST /v1/sessions"], h["DELETE /v1/sessions/{id}"] = answerWith(created), answerWith(created)
	h["GET /v1/sessions"] = answerWith(client.List[client.Session]{Items: []client.Session{other}})
	h["GET /v1/sessions/{id}"] = answerWith(created)
	d, another := startFake(t, h), startFake(t, h)
	kernels := bootID
	t.Cleanup(func() { bootID = kernels })
	for _, first := range []string{"session create", "run -- x", "exec review -- x"} {
		home := t.TempDir()
		socket := d.socket
		said := func(args string) string {
			var errs strings.Builder
			a := &app{stdin: strings.NewReader(""), stdout: new(strings.Builder), stderr: &errs, getenv: func(k string) string {
				return map[string]string{"HOME": home}[k]
			}}
			if code := run(context.WithoutCancel(t.Context()), append([]string{"--socket", socket}, strings.Fields(args)...), a); code != 0 {
				t.Errorf("%s: exit %d", args, code)
			}
			return errs.String()
		}
		if text := said("run -q -- x"); text != "" {
			t.Errorf("with -q: %q", text)
		}
		if text := said(first); !strings.Contains(text, "note: git is broken: x") || !strings.Contains(text, whole+"\n") || strings.Contains(text, long) || !strings.Contains(text, "session show "+fakeSession) {
			t.Errorf("%s printed %q", first, text)
		}
		for _, args := range []string{"session create", "run -- x", "exec review -- x"} {
			if text := said(args); text != "" {
				t.Errorf("%s after %s: %q", args, first, text)
			}
		}
		if socket = another.socket; !strings.Contains(said("session create"), "git is broken") || said("session create") != "" {
			t.Error("of another daemon it is not said, or twice")
		}
		bootID = func() string { return "after " + first }
		if !strings.Contains(said("session create"), "git is broken") || said("session create") != "" {
			t.Error("after a start of the host it is not said, or twice")
		}
		if err := os.RemoveAll(home); err != nil {
			t.Fatal(err)
		}
		if text := said("session create"); !strings.Contains(text, "git is broken") {
			t.Errorf("without a home: %q", text)
		}
		if _, err := os.Stat(home); err == nil {
			t.Error("a home was made")
		}
	}
}
