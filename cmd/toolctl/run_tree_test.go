package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
)

// runTree has the routes of run in a session whose changes are kept beside its source.
func runTree() map[string]http.HandlerFunc {
	h := treeHandlers()
	maps.Copy(h, runHandlers(stream(bashDone("", exited(3)))))
	s := session()
	s.Worktree.Mode = client.WorktreeOverlay
	s.Worktree.Sensitive = &client.SensitiveChanges{Changed: []string{".envrc"}}
	h["POST /v1/sessions"], h["DELETE /v1/sessions/{id}"] = answerWith(s), answerWith(s)
	return h
}

// did are the requests about the changes, in their order.
func (d *fakeDaemon) did() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, r := range d.requests {
		_, what, _ := strings.Cut(r.path, fakeSession+"/")
		switch {
		case what == "diff" && r.header.Get("Accept") == "application/json", what == "calls":
		case what != "":
			all = append(all, strings.TrimSuffix(what+" "+string(r.body), " "))
		case r.method == "DELETE":
			all = append(all, "end")
		}
	}
	return strings.Join(all, ", ")
}

const runStat = "toolctl: changes of the worktree, beside the source:\n \"a\\033\" | 4 +++-\n 2 files changed, 3 insertions(+), 1 deletion(-)\n"

// What becomes of the changes is said beforehand, and done before the session ends; the
// command's own exit code is that of toolctl.
func TestRunTree(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		args, did, stderr string
	}{
		{"", "end", "the changes are kept with the session: toolctl diff ses_0123, toolctl apply ses_0123, toolctl discard ses_0123\n"},
		{"--apply", "apply {}, end", "1 path written to the source\n"},
		{"--discard", "discard {}, end", ""},
		{"--patch p1", "diff, end", "the changes are saved in p1"},
		{"--patch p2 --apply", "diff, apply {}, end", "1 path written"},
		{"--patch . --discard", "diff, discard {}, end", "saved in ses_0123.patch"},
		{"--keep", "", "the changes are kept"},
		{"--keep --apply", "apply {}", "1 path written"},
		{"-q", "end", ""},
		{"-q --apply", "apply {}, end", ""},
	} {
		d := startFake(t, runTree())
		r := d.ctl(strings.Fields("run --worktree . --mode overlay " + tt.args + " -- false")...)
		stat := runStat
		if strings.Contains(tt.args, "-q") {
			if stat = ""; r.stderr != "" {
				t.Errorf("%s: said %q", tt.args, r.stderr)
			}
		}
		r.want(t, 3, "", stat)
		r.want(t, 3, "", tt.stderr)
		if did := d.did(); did != tt.did {
			t.Errorf("%s: %s, want %s", tt.args, did, tt.did)
		}
		if strings.Contains(r.stderr, ".envrc") {
			t.Errorf("%s: it warns of what is not in the source: %s", tt.args, r.stderr)
		}
	}
	for _, name := range []string{"p1", "p2", "ses_0123.patch"} {
		if b, err := os.ReadFile(name); err != nil || string(b) != hostilePatch {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	var report struct {
		ExitCode int             `json:"exit_code"`
		Diff     *client.Changes `json:"diff"`
		Applied  *client.Applied `json:"applied"`
	}
	decode(t, []byte(startFake(t, runTree()).ctl("run", "-o", "json", "--worktree", ".", "--mode", "overlay", "--apply", "--", "false").stdout), &report)
	if report.ExitCode != 3 || report.Diff == nil || report.Diff.Files != 2 || report.Applied == nil || report.Applied.WrittenCount != 1 {
		t.Errorf("report %+v", report)
	}
}

// What cannot be meant is refused; what the session turns out not to be too.
func TestRunTreeRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	d := startFake(t, runTree())
	d.ctl("run", "--worktree", ".", "--apply", "--discard", "--", "x").want(t, 2, "", "leave one of them out")
	d.ctl("run", "--worktree", ".", "--mode", "ro", "--apply", "--", "x").want(t, 2, "", "in the mode ro")
	if did := d.did(); did != "" {
		t.Errorf("did %s", did)
	}
	d = startFake(t, runHandlers(stream(bashDone("", exited(0)))))
	d.ctl("run", "--worktree", ".", "--apply", "--", "x").want(t, 2, "", "in the mode bind")
	if did := d.did(); did != "end" || len(d.asked("POST", "/calls")) > 0 {
		t.Errorf("did %s", did)
	}
}

// Without changes there is nothing to say or to do, but a patch that was asked for.
func TestRunTreeUnchanged(t *testing.T) {
	t.Chdir(t.TempDir())
	h := runTree()
	h["GET /v1/sessions/{id}/diff"] = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "application/json" {
			answer(w, 200, client.Changes{})
		}
	}
	d := startFake(t, h)
	if r := d.ctl("run", "--worktree", ".", "--mode", "overlay", "--", "x"); r.code != 3 || r.stderr != "" || d.did() != "end" {
		t.Errorf("%+v, did %s", r, d.did())
	}
	d.ctl("run", "--worktree", ".", "--mode", "overlay", "--patch", "empty", "--", "x").want(t, 3, "", "has changed nothing in the worktree: empty is empty")
	if b, err := os.ReadFile("empty"); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
}

// Where the changes cannot be applied, toolctl has failed, and says how; the session ends.
func TestRunTreeFails(t *testing.T) {
	t.Chdir(t.TempDir())
	h := runTree()
	h["POST /v1/sessions/{id}/apply"] = problemWith(409, client.CodeConflict)
	d := startFake(t, h)
	d.ctl("run", "--worktree", ".", "--mode", "overlay", "--apply", "--", "x").want(t, 125, "", "the changes of session ses_0123: it is so\ntoolctl:   try otherwise\n")
	if did := d.did(); did != "apply {}, end" {
		t.Errorf("did %s", did)
	}
	h["GET /v1/sessions/{id}/diff"] = problemWith(500, client.CodeInternal)
	startFake(t, h).ctl("run", "--worktree", ".", "--mode", "overlay", "--discard", "--", "x").want(t, 125, "", "it is so")
	for _, cmd := range []string{"run --worktree . --mode overlay --patch no/such/p -- x", "mcp --worktree . --mode overlay --patch no/such/p"} {
		d := startFake(t, runTree())
		d.ctl(strings.Fields(cmd)...).want(t, 2, "", "--patch: ")
		if len(d.asked("POST", "/sessions")) > 0 {
			t.Errorf("%s: a session was made before the path was looked at", cmd)
		}
	}
}

// TestRunTreeOver: of a session that its budget has ended and that has changed nothing, nothing
// changed is the answer of patch and report too.
func TestRunTreeOver(t *testing.T) {
	t.Chdir(t.TempDir())
	h := runTree()
	ended := session()
	ended.Worktree.Mode, ended.State = client.WorktreeOverlay, client.SessionEnded
	h["GET /v1/sessions/{id}"] = answerWith(ended)
	h["GET /v1/sessions/{id}/calls"] = answerWith(client.List[client.Call]{})
	h["GET /v1/sessions/{id}/diff"] = problemWith(404, client.CodeNotFound)
	report := t.TempDir()
	r := startFake(t, h).ctl("run", "--worktree", ".", "--mode", "overlay", "--patch", "p", "--report", report, "--", "x")
	r.want(t, 3, "", nothingChanged)
	if b, err := os.ReadFile("p"); err != nil || len(b) > 0 {
		t.Errorf("the patch: %q, %v", b, err)
	}
	if got := readResult(t, report); got.Missing != nil || got.Changes.Files != 0 || got.Patch.File == "" || strings.Contains(r.stderr, "not whole") {
		t.Errorf("%+v, said %s", got, r.stderr)
	}
}

// questions are those that a run asks at its terminal, one after the other.
type questions struct {
	opened chan fakeTerminal
	out    *screenText
	code   chan int
}

// answer presses keys at the next question.
func (q *questions) answer(t *testing.T, keys ...string) {
	t.Helper()
	select {
	case term := <-q.opened:
		for _, key := range keys {
			if _, err := io.WriteString(term.keys, key); err != nil {
				t.Fatal(err)
			}
		}
	case code := <-q.code:
		t.Fatalf("it ended with %d and did not ask; said\n%s", code, q.out)
	}
}

// settle ends a run whose command exited with 3.
func (d *fakeDaemon) settle(ctx context.Context, private bool) *questions {
	q := &questions{make(chan fakeTerminal, 1), &screenText{}, make(chan int, 1)}
	a := &app{
		stdin: strings.NewReader(""), stdout: io.Discard, stderr: q.out, errTTY: true, socket: d.socket, format: formatTable,
		getenv: func(string) string { return "" },
		openTerminal: func() (terminal, error) {
			term := newFakeTerminal()
			q.opened <- term
			return term, nil
		},
	}
	a.private = private
	r := &runCommand{app: a}
	s := session()
	s.Worktree.Mode = client.WorktreeOverlay
	go func() {
		err := r.settle(ctx, a.client(), &s, exit(3))
		a.complain(err)
		q.code <- exitCode(err)
	}()
	return q
}

// At a terminal one key decides; what shows or saves the changes asks again.
func TestRunTreeAsks(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		keys, did, said string
	}{
		{"a", "apply {}", "1 path written"},
		{"d", "discard {}", "a applies the changes, s shows them, p saves them as a patch, d drops them, k"},
		{"k", "", "the changes are kept"},
		{"spk", "diff, diff", `\x1b]0;title\x07`},
	} {
		d := startFake(t, runTree())
		q := d.settle(t.Context(), false)
		q.answer(t, "x", "ad", tt.keys[:1]) // what is none of the keys is no answer
		for _, key := range tt.keys[1:] {
			q.answer(t, string(key))
		}
		if code := <-q.code; code != 3 || d.did() != tt.did || !strings.Contains(q.out.String(), tt.said) {
			t.Errorf("%s: exit %d, did %s, want %s; said\n%s", tt.keys, code, d.did(), tt.did, q.out)
		}
	}
}

// What cannot be applied is said, and asked again. What is left out needs another key.
func TestRunTreeAsksAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	h, n := runTree(), 0
	h["POST /v1/sessions/{id}/apply"] = func(w http.ResponseWriter, r *http.Request) {
		var req client.ApplyRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		switch n++; {
		case n == 1:
			answerProblem(w, 409, client.CodeConflict, "it has changed")
		case req.IncludeSensitive:
			answer(w, 200, client.Applied{Written: []string{".envrc"}, WrittenCount: 1})
		default:
			answer(w, 200, client.Applied{WrittenCount: 7, Sensitive: []string{".envrc"}, SensitiveCount: 1})
		}
	}
	d := startFake(t, h)
	q := d.settle(t.Context(), false)
	q.answer(t, "a")
	q.answer(t, "a")
	q.answer(t, "a", "i")
	if code := <-q.code; code != 3 || d.did() != `apply {}, apply {}, apply {"include_sensitive":true}` {
		t.Errorf("exit %d, did %s; said\n%s", code, d.did(), q.out)
	}
	for _, want := range []string{"it has changed", "7 paths written", ".envrc", "i applies what was left out too, s shows"} {
		if !strings.Contains(q.out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, q.out)
		}
	}
}

// After a conflict the files can be merged; a daemon that ends with the command has its advice left
// out, which needs the session.
func TestRunTreeAsksMerge(t *testing.T) {
	t.Chdir(t.TempDir())
	h := runTree()
	h["POST /v1/sessions/{id}/apply"] = func(w http.ResponseWriter, r *http.Request) {
		var req client.ApplyRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		if req.Merge {
			answer(w, 200, client.Applied{WrittenCount: 7, Merged: []string{"f"}})
			return
		}
		answerProblem(w, 409, client.CodeConflict, "it has changed")
	}
	d := startFake(t, h)
	q := d.settle(t.Context(), true)
	q.answer(t, "m", "a") // without a conflict there is nothing to merge
	q.answer(t, "m")
	if code := <-q.code; code != 3 || d.did() != `apply {}, apply {"merge":true}` {
		t.Errorf("exit %d, did %s; said\n%s", code, d.did(), q.out)
	}
	if said := q.out.String(); !strings.Contains(said, "m merges them") || strings.Contains(said, "try otherwise") {
		t.Errorf("said\n%s", said)
	}
}

// A patch that git can bring together with the source says nothing of a session that is gone.
func TestRunTreePrivateSourceChanged(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, private := range []bool{true, false} {
		h := runTree()
		list := h["GET /v1/sessions/{id}/diff"]
		h["GET /v1/sessions/{id}/diff"] = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept") == "application/json" {
				list(w, r)
				return
			}
			w.Header().Set("Trailer", client.HeaderSourceChanged)
			_, _ = io.WriteString(w, hostilePatch)
			w.Header().Set(client.HeaderSourceChanged, "1")
		}
		d := startFake(t, h)
		var errs strings.Builder
		a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, socket: d.socket, getenv: func(string) string { return "" }, private: private}
		r := &runCommand{app: a, tree: treeEnd{patch: "p"}}
		s := session()
		if err := r.settle(t.Context(), a.client(), &s, nil); err != nil {
			t.Error(err)
		}
		if said := errs.String(); !strings.Contains(said, "git apply --3way") || strings.Contains(said, "toolctl apply") == private {
			t.Errorf("private %v: said\n%s", private, said)
		}
	}
}

// A daemon that ends with the command keeps nothing: whatever happens, the changes are
// taken or saved before.
func TestRunTreePrivate(t *testing.T) {
	for _, how := range []string{"Ctrl-C in the command", "Ctrl-C at the question", "the terminal goes away", "decided"} {
		t.Run(how, func(t *testing.T) {
			t.Chdir(t.TempDir())
			d := startFake(t, runTree())
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := &interruptedError{syscall.SIGINT}
			if how == "Ctrl-C in the command" {
				cancel(stopped)
			}
			q := d.settle(ctx, true)
			switch how {
			case "Ctrl-C at the question":
				<-q.opened
				cancel(stopped)
			case "the terminal goes away":
				term := <-q.opened
				_ = term.keys.Close()
			case "decided":
				q.answer(t, "k", "d") // to keep them is not offered
			}
			code := <-q.code
			saved, err := os.ReadFile("ses_0123.patch")
			if how == "decided" {
				if code != 3 || err == nil || d.did() != "discard {}" {
					t.Errorf("exit %d, did %s; saved %q", code, d.did(), saved)
				}
			} else if code != 3 || string(saved) != hostilePatch || !strings.Contains(q.out.String(), "saved in ses_0123.patch") {
				t.Errorf("exit %d, saved %q, %v; said\n%s", code, saved, err, q.out)
			}
			cancel(nil)
		})
	}
}

// Nobody is there to decide, and nothing can be kept: it is refused before anything runs.
func TestRunTreePrivateRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}
	r := &runCommand{app: a, session: sessionFlags{mode: "overlay"}}
	if r.decides() {
		t.Error("somebody decides")
	}
	for _, e := range []treeEnd{{apply: true}, {discard: true}, {patch: "x"}} {
		if r.tree = e; !r.decides() {
			t.Errorf("%+v decides nothing", e)
		}
	}
	if _, err := os.Stat(client.DefaultSocket); errors.Is(err, fs.ErrNotExist) {
		ctl(t, t.Context(), "", "run", "--worktree", ".", "--mode", "overlay", "--", "x").want(t, 2, "", "keeps no changes: add --apply, --discard, --patch FILE or --report DIR")
	}
}

// What could not be applied is saved where it would be lost.
func TestRunTreePrivateConflict(t *testing.T) {
	for _, apply := range []http.HandlerFunc{
		problemWith(409, client.CodeConflict),
		answerWith(client.Applied{Sensitive: []string{".envrc"}, SensitiveCount: 1}),
	} {
		t.Chdir(t.TempDir())
		h := runTree()
		h["POST /v1/sessions/{id}/apply"] = apply
		d := startFake(t, h)
		var errs strings.Builder
		a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, socket: d.socket, getenv: func(string) string { return "" }, private: true}
		r := &runCommand{app: a, tree: treeEnd{apply: true}}
		s := session()
		err := r.settle(t.Context(), a.client(), &s, nil)
		if saved, rerr := os.ReadFile("ses_0123.patch"); string(saved) != hostilePatch {
			t.Errorf("%v: saved %q, %v", err, saved, rerr)
		}
		if strings.Contains(errs.String(), "toolctl apply") || strings.Contains(errs.String(), "toolctl diff") {
			t.Errorf("it names commands that cannot work: %s", &errs)
		}
	}
}
