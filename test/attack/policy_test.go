package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// narrow allows five commands and nothing else.
const narrow = `
[approvals]
approver = "none"
[profile.narrow.permission]
"*" = "deny"
read = "allow"
[profile.narrow.permission.bash]
"*" = "deny"
"echo *" = "allow"
"ls *" = "allow"
"git status" = "allow"
"find *" = "allow"
"cat *" = "allow"
"touch *" = { action = "deny", reason = "control of the test" }
`

// bypassLines are the lines that try to run more than a narrow rule allows.
func bypassLines(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("../../internal/tool/shell/testdata/bash_bypass.txt")
	must(t, err)
	var lines []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// R1: no line that hides a command behind an allowed one is run.
func TestR1Bypass(t *testing.T) {
	s := newScene(t, narrow)
	x := s.open(t, client.SessionCreate{Profile: "narrow", Worktree: client.Worktree{Source: s.tree}})
	flag := filepath.Join(s.tree, "flag")
	worked := 0
	for _, line := range bypassLines(t) {
		cmd := strings.ReplaceAll(line, "FLAG", "flag")
		c := bash(t, s.a, x.ID, cmd)
		if c.Error == nil || c.Error.Code != client.CodeDenied {
			t.Errorf("%q: not denied: %+v %q", line, c.Error, c.Output)
		}
		if _, err := os.Stat(flag); err == nil {
			t.Errorf("%q: ran", line)
			must(t, os.Remove(flag))
		}
		// Control: without the rules the line does what it says.
		bash(t, s.a, s.attacker.ID, cmd)
		if _, err := os.Stat(flag); err == nil {
			worked++
			must(t, os.Remove(flag))
		}
	}
	if worked < 40 {
		t.Errorf("control: only %d lines do anything in bash", worked)
	}
	for _, fine := range []string{"echo hi", "ls", "ls -l", "cat probe | cat", "find . -name x", "git status"} {
		if c := bash(t, s.a, x.ID, fine); c.Error != nil && c.Error.Code == client.CodeDenied {
			t.Errorf("control: %q is denied: %v", fine, c.Error)
		}
	}
}

// R2: what is too large or cannot be parsed is never allowed by a narrow rule.
func TestR2Oversize(t *testing.T) {
	s := newScene(t, narrow)
	x := s.open(t, client.SessionCreate{Profile: "narrow", Worktree: client.Worktree{Source: s.tree}})
	for name, cmd := range map[string]string{
		"10,000 commands":   "echo a" + strings.Repeat("; echo a", 10_000) + "; touch flag",
		"a megabyte":        "echo " + strings.Repeat("a", 1<<20) + "; touch flag",
		"not shell":         "echo hi; (touch flag",
		"heredoc, no end":   "cat <<X\n$(touch flag)\n",
		"carriage return":   "echo hi\r\ntouch flag",
		"no-break space":    "echo\u00a0hi; touch flag",
		"zero width":        "ec\u200bho hi",
		"right to left":     "echo \u202e; touch flag",
		"homoglyph":         "l\u0455 -l",
		"nested too deep":   "echo " + strings.Repeat("$(echo ", 2000) + "x" + strings.Repeat(")", 2000),
		"brackets too deep": "echo $((" + strings.Repeat("(", 5000) + "x" + strings.Repeat(")", 5000) + "))",
	} {
		c, err := tryCall(s.a, x.ID, "bash", map[string]any{"command": cmd})
		if err == nil && (c.Error == nil || c.Error.Code != client.CodeDenied) {
			t.Errorf("%s: not denied: %+v %.100q", name, c.Error, c.Output)
		}
		if _, err := os.Stat(filepath.Join(s.tree, "flag")); err == nil {
			t.Errorf("%s: ran", name)
		}
	}
}

// R3, R4: edges of prefixes, wrappers, and builtins that change what later words
// mean.
func TestR3R4EdgesAndBuiltins(t *testing.T) {
	s := newScene(t, `
[approvals]
approver = "none"
[profile.log.permission.bash]
"*" = "deny"
"git log *" = "allow"
"echo *" = "allow"
`)
	x := s.open(t, client.SessionCreate{Profile: "log", Worktree: client.Worktree{Source: s.tree}})
	for _, cmd := range []string{
		"git logout", "gitx log", "git  push", "/usr/bin/git push", "env git push", "timeout 1 git push", "nice git push", "echo a | xargs touch flag",
		"nohup touch flag", "setsid touch flag", "stdbuf -o0 touch flag", "command touch flag", "builtin eval 'touch flag'", "exec touch flag",
		"eval 'touch flag'", "sh -c 'touch flag'", "bash -c 'touch flag'", "time touch flag", "sudo touch flag",
		"export PATH=.; echo a", "PATH=. echo a", "alias echo=touch; echo flag", "hash -p /usr/bin/touch echo; echo flag", "enable -n echo; echo flag",
		"trap 'touch flag' EXIT; echo a", "set -x; PS4='$(touch flag)' echo a", "shopt -s expand_aliases; echo a", "BASH_ENV=./x bash -c 'echo a'",
		"declare -f; echo a", "echo() { touch flag; }; echo a",
	} {
		if c := bash(t, s.a, x.ID, cmd); c.Error == nil || c.Error.Code != client.CodeDenied {
			t.Errorf("%q: not denied: %+v %q", cmd, c.Error, c.Output)
		}
	}
	for _, cmd := range []string{"git log", "git log --oneline", "echo a"} {
		if c := bash(t, s.a, x.ID, cmd); c.Error != nil && c.Error.Code == client.CodeDenied {
			t.Errorf("control: %q is denied: %v", cmd, c.Error)
		}
	}
	// What a call sets does not reach the next one.
	bash(t, s.a, s.attacker.ID, "export EVIL=1; alias ls=false; echo() { :; }; export -f echo; cd /tmp")
	if c := bash(t, s.a, s.attacker.ID, `echo "evil=${EVIL-no} $(type -t echo) $PWD"`); strings.TrimSpace(c.Output) != "evil=no builtin /workspace" {
		t.Errorf("state of an earlier call: %q", c.Output)
	}
}

// R5: the bytes that are judged are the bytes that run.
func TestR5AmbiguousJSON(t *testing.T) {
	s := newScene(t, narrow)
	x := s.open(t, client.SessionCreate{Profile: "narrow", Worktree: client.Worktree{Source: s.tree}})
	const refused = " 200 " // with a call that did not run, see below
	for in, want := range map[string]string{
		`{"command":"echo a","COMMAND":"touch flag"}`:      refused,
		`{"command":"echo a","command":"touch flag"}`:      refused,
		`{"command":"echo a","extra":1}`:                   refused,
		`{"command":"echo a"}{"command":"touch flag"}`:     " 400 ",
		`{"Command":"touch flag"}`:                         refused,
		`{"command":"echo a","\u0063ommand":"touch flag"}`: refused,
	} {
		body := `{"tool":"bash","input":` + in + `}`
		got := s.raw(t, fmt.Sprintf("POST /v1/sessions/%s/calls HTTP/1.1\r\nHost: x\r\nToold-Tenant: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", x.ID, len(body), body))
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", in, got)
		}
	}
	calls, err := s.a.ListCalls(t.Context(), x.ID, client.CallQuery{})
	must(t, err)
	for _, c := range calls.Items {
		if c.Error == nil || c.Error.Code != client.CodeInvalidInput || c.Time.Started != nil {
			t.Errorf("%s: %+v, want one that did not run", c.Input, c)
		}
	}
	if len(calls.Items) != 5 {
		t.Errorf("%d calls are on record, want 5", len(calls.Items))
	}
	if _, err := os.Stat(filepath.Join(s.tree, "flag")); err == nil {
		t.Error("one of them ran")
	}
}

// reload writes a new configuration and asks the daemon to take it.
func (r *rig) reload(t *testing.T, from, to string) error {
	t.Helper()
	b, err := os.ReadFile(r.config)
	must(t, err)
	if !bytes.Contains(b, []byte(from)) {
		t.Fatalf("the configuration has no %q", from)
	}
	must(t, os.WriteFile(r.config, bytes.Replace(b, []byte(from), []byte(to), 1), 0o600))
	_, err = r.admin.Reload(t.Context(), false)
	return err
}

// R6: a broken file never replaces rules that hold.
func TestR6Reload(t *testing.T) {
	s := newScene(t, "[permission.bash]\n\"touch *\" = \"deny\" # the rule\n")
	n := 0
	denied := func() bool {
		n++ // not the same again and again
		c := s.bash(t, fmt.Sprintf("touch flag%d", n))
		return c.Error != nil && c.Error.Code == client.CodeDenied
	}
	if !denied() {
		t.Fatal("control: the rule does not hold")
	}
	rule := "\"touch *\" = \"deny\" # the rule\n"
	for _, broken := range []string{"\"touch *\" = \"alow\"\n", "touch = {}\n\"ls *\" = 7\n", "not toml\n", "\"touch *\" = \"allow\"\n[[test]]\ntool = \"bash\"\ninput = { command = \"touch x\" }\nexpect = \"deny\"\n"} {
		if err := s.reload(t, rule, broken); err == nil {
			t.Errorf("%q was taken", broken)
		}
		if !denied() {
			t.Errorf("after %q the old rule is gone", broken)
		}
		must(t, os.WriteFile(s.config, bytes.Replace(mustRead(t, s.config), []byte(broken), []byte(rule), 1), 0o600))
	}
	must(t, os.Chmod(s.config, 0o666))
	if _, err := s.admin.Reload(t.Context(), false); err == nil || !denied() {
		t.Errorf("a file that everybody may write was taken: %v", err)
	}
	must(t, os.Chmod(s.config, 0o600))
	if err := s.reload(t, rule, "\"touch *\" = \"allow\"\n"); err != nil || denied() {
		t.Errorf("control: a good file is not taken: %v", err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// R7: what lies in a worktree can only narrow.
func TestR7RulesInTheTree(t *testing.T) {
	s := newScene(t, "[permission.bash]\n\"touch *\" = \"deny\"\n")
	widen := "[permission]\n\"*\" = \"allow\"\n[permission.bash]\n\"touch *\" = \"allow\"\n\"ls *\" = \"deny\"\n"
	for _, name := range []string{".toold.toml", "config.toml", "AGENTS.md", "toold.toml"} {
		must(t, os.WriteFile(filepath.Join(s.tree, name), []byte(widen), 0o644))
	}
	other := s.open(t, client.SessionCreate{Worktree: client.Worktree{Source: s.tree}})
	if c := bash(t, s.a, other.ID, "ls"); c.Error != nil {
		t.Errorf("a file of no meaning had one: %v", c.Error)
	}
	must(t, os.Mkdir(filepath.Join(s.tree, ".toold"), 0o755))
	must(t, os.WriteFile(filepath.Join(s.tree, ".toold", "policy.toml"), []byte(widen), 0o644))
	x := s.open(t, client.SessionCreate{Worktree: client.Worktree{Source: s.tree}})
	if c := bash(t, s.a, x.ID, "touch flag"); c.Error == nil || c.Error.Code != client.CodeDenied {
		t.Errorf("the worktree's rules allowed what the configuration denies: %+v", c.Error)
	}
	if c := bash(t, s.a, x.ID, "ls"); c.Error == nil || c.Error.Code != client.CodeDenied {
		t.Errorf("control: the worktree's deny does not hold: %+v %q", c.Error, c.Output)
	}
	// A session that goes on is judged by what was there when it began.
	must(t, os.Remove(filepath.Join(s.tree, ".toold", "policy.toml")))
	if c := bash(t, s.a, x.ID, "ls"); c.Error == nil {
		t.Error("an agent that removes the file is rid of it")
	}
}

// asking has a profile for which every touch, echo and edit is a question.
const asking = "[profile.ask.permission]\nedit = \"ask\"\n[profile.ask.permission.bash]\n\"touch *\" = \"ask\"\n\"echo *\" = \"ask\"\n"

// asked makes a call in a goroutine, with the session's token, and waits for its
// approval.
func (s *scene) asked(t *testing.T, x *client.Session, tool string, input any) (*client.Approval, <-chan *client.Call) {
	t.Helper()
	agent := client.New(client.Options{Socket: s.socket, Token: x.Token})
	done := make(chan *client.Call, 1)
	known := map[string]bool{}
	for _, a := range s.pending(t) {
		known[a.ID] = true
	}
	go func() {
		defer agent.Close()
		c, err := tryCall(agent, x.ID, tool, input)
		if err != nil {
			c = &client.Call{Error: &client.Error{Code: client.CodeInternal, Message: err.Error()}}
		}
		done <- c
	}()
	var got *client.Approval
	testrig.Eventually(t, "the approval is pending", func() bool {
		for _, a := range s.pending(t) {
			if !known[a.ID] {
				got = &a
			}
		}
		return got != nil
	})
	return got, done
}

func (s *scene) pending(t *testing.T) []client.Approval {
	t.Helper()
	list, err := s.a.ListApprovals(t.Context(), client.ApprovalQuery{})
	must(t, err)
	return list.Items
}

// open opens another session of the attacker's, for the time of the test.
func (s *scene) open(t *testing.T, r client.SessionCreate) *client.Session {
	t.Helper()
	x := s.session(t, s.a, r)
	t.Cleanup(func() { s.a.EndSession(context.Background(), x.ID, client.EndOptions{Force: true}) })
	return x
}

func (s *scene) withToken(t *testing.T) *client.Session {
	t.Helper()
	return s.open(t, client.SessionCreate{Profile: "ask", Worktree: client.Worktree{Source: s.tree}, Token: true})
}

// R8: an approval is for one call, by somebody else, once.
func TestR8Approvals(t *testing.T) {
	s := newScene(t, asking)
	x := s.withToken(t)
	once := client.ApprovalAnswer{Answer: client.AnswerOnce}

	a, done := s.asked(t, x, "bash", map[string]any{"command": "touch one"})
	// Another tenant does not find it; nor does the one who asks answer it.
	_, unknown := s.b.AnswerApproval(t.Context(), "apr_"+strings.Repeat("0", len(a.ID)-4), once)
	if _, err := s.b.AnswerApproval(t.Context(), a.ID, once); err == nil || strings.ReplaceAll(err.Error(), a.ID, "X") != strings.ReplaceAll(unknown.Error(), "apr_"+strings.Repeat("0", len(a.ID)-4), "X") {
		t.Errorf("another tenant: %v; of an unknown one: %v", err, unknown)
	}
	agent := client.New(client.Options{Socket: s.socket, Token: x.Token})
	defer agent.Close()
	if _, err := agent.AnswerApproval(t.Context(), a.ID, once); err == nil {
		t.Error("the token that made the call approved it")
	}
	if _, err := s.a.AnswerApproval(t.Context(), a.ID, client.ApprovalAnswer{Answer: client.AnswerOnce, SHA256: strings.Repeat("0", 64)}); err == nil {
		t.Error("an answer to another input was taken")
	}
	if _, err := os.Stat(filepath.Join(s.tree, "one")); err == nil {
		t.Fatal("it ran before it was approved")
	}
	// Yes and no at once: one of them counts.
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for i := range 4 {
		wg.Go(func() {
			answer := once
			if i%2 == 1 {
				answer = client.ApprovalAnswer{Answer: client.AnswerReject}
			}
			if _, err := s.a.AnswerApproval(context.Background(), a.ID, answer); err == nil {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	c := <-done
	if taken != 1 {
		t.Errorf("%d answers were taken", taken)
	}
	_, err := os.Stat(filepath.Join(s.tree, "one"))
	if ran := c.Error == nil; ran != (err == nil) {
		t.Errorf("the call says %+v, the file %v", c.Error, err)
	}
	// Used up: the same call is asked again, and an old id answers nothing.
	if _, err := s.a.AnswerApproval(t.Context(), a.ID, once); err == nil {
		t.Error("an approval was answered twice")
	}
	b, done := s.asked(t, x, "bash", map[string]any{"command": "touch one"})
	if b.ID == a.ID {
		t.Error("an approval was used again")
	}
	if _, err := s.a.AnswerApproval(t.Context(), b.ID, once); err != nil {
		t.Error(err)
	}
	if c := <-done; c.Error != nil {
		t.Errorf("control: an approved call does not run: %v", c.Error)
	}

	// A file that changes between preview and run is not what was approved.
	file := filepath.Join(s.tree, "f")
	must(t, os.WriteFile(file, []byte("alpha\n"), 0o644))
	e, done := s.asked(t, x, "edit", map[string]any{"file_path": "f", "old_string": "alpha", "new_string": "beta"})
	if diff, _ := e.Metadata["diff"].(string); !strings.Contains(diff, "+beta") {
		t.Errorf("no preview: %v", e.Metadata)
	}
	must(t, os.WriteFile(file, []byte("alpha\nrm -rf /\n"), 0o644))
	if _, err := s.a.AnswerApproval(t.Context(), e.ID, once); err != nil {
		t.Error(err)
	}
	if c := <-done; c.Error == nil || c.Error.Code != client.CodeStaleApproval {
		t.Errorf("a changed file was edited: %+v", c.Error)
	}
	if got := read(file); got != "alpha\nrm -rf /\n" {
		t.Errorf("the file is %q", got)
	}
}

// R8: an approval that is pending when the daemon is killed is pending again, and
// answering it runs the call once.
func TestR8PendingOverACrash(t *testing.T) {
	s := newScene(t, asking)
	x := s.withToken(t)
	a, done := s.asked(t, x, "bash", map[string]any{"command": "touch ran; echo x >> count"})
	s.kill(t)
	<-done
	s.start(t)
	// The next daemon judges the call before it shows its approval.
	var list []client.Approval
	testrig.Eventually(t, "the approval is pending again", func() bool {
		list = s.pending(t)
		return len(list) > 0
	})
	if len(list) != 1 || list[0].ID != a.ID || list[0].SHA256 != a.SHA256 {
		t.Fatalf("pending after the restart: %+v, want %s", list, a.ID)
	}
	if _, err := os.Stat(filepath.Join(s.tree, "ran")); err == nil {
		t.Fatal("it ran without an answer")
	}
	if _, err := s.a.AnswerApproval(t.Context(), a.ID, client.ApprovalAnswer{Answer: client.AnswerOnce}); err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, "the call ends", func() bool {
		c, err := s.a.GetCall(t.Context(), a.CallID)
		return err == nil && c.Finished() && c.Error == nil
	})
	if got := read(filepath.Join(s.tree, "count")); got != "x\n" {
		t.Errorf("it ran %q", got)
	}
}

// R9: what is shown for approval hides nothing.
func TestR9Preview(t *testing.T) {
	s := newScene(t, asking)
	x := s.withToken(t)
	cmd := "echo '" + strings.Repeat("a", 10<<10) + "' \u202e\x1b[2K; echo \u200bpaypa\u0456; touch last"
	a, done := s.asked(t, x, "bash", map[string]any{"command": cmd})
	text, _ := json.Marshal(a)
	for _, bad := range []string{"\u202e", `\u202e`, "\x1b", `\u001b`, "\u200b", `\u200b`} {
		if meta, _ := json.Marshal(a.Metadata); bytes.Contains(meta, []byte(bad)) {
			t.Errorf("shown raw: %q in %.300s", bad, meta)
		}
	}
	if !bytes.Contains(text, []byte("touch last")) {
		t.Errorf("the end of the command is not shown")
	}
	if len(a.SHA256) != 64 {
		t.Errorf("no hash of the whole: %q", a.SHA256)
	}
	if _, err := s.a.AnswerApproval(t.Context(), a.ID, client.ApprovalAnswer{Answer: client.AnswerReject, Message: "not today"}); err != nil {
		t.Error(err)
	}
	if c := <-done; c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message+c.Error.Hint, "not today") {
		t.Errorf("a rejected call: %+v", c.Error)
	}
}

// R10: nobody answers.
func TestR10Deadline(t *testing.T) {
	s := newScene(t, asking+"[approvals]\ntimeout = \"1s\"\n")
	x := s.withToken(t)
	agent := client.New(client.Options{Socket: s.socket, Token: x.Token})
	defer agent.Close()
	if c := bash(t, agent, x.ID, "touch flag"); c.Error == nil || c.Error.Code != client.CodeApprovalTimeout {
		t.Errorf("%+v", c.Error)
	}
	if _, err := os.Stat(filepath.Join(s.tree, "flag")); err == nil {
		t.Error("it ran")
	}
}

// R11: repetitions are stopped before they run, also after a restart.
func TestR11DoomLoop(t *testing.T) {
	s := newScene(t, "[approvals]\napprover = \"none\"\n")
	loop := func(x *client.Session, cmds ...string) (stopped int) {
		for _, cmd := range cmds {
			if c := bash(t, s.a, x.ID, cmd); c.Error != nil && c.Error.Code == client.CodeDoomLoop {
				stopped++
			} else if c.Error != nil {
				t.Errorf("%q: %v", cmd, c.Error)
			}
		}
		return stopped
	}
	fresh := func() *client.Session {
		return s.open(t, client.SessionCreate{Profile: "build", Worktree: client.Worktree{Source: s.tree}})
	}
	for name, tc := range map[string]struct {
		cmds []string
		want int
	}{
		"the same":             {[]string{"ls probe", "ls probe", "ls probe"}, 1},
		"the same, dressed":    {[]string{"ls probe", "ls   probe # again", `ls "probe"`}, 1},
		"two in turns":         {[]string{"ls probe", "pwd", "ls probe", "pwd", "ls probe", "pwd"}, 1},
		"control: twice":       {[]string{"ls probe", "ls probe", "pwd"}, 0},
		"control: it polls":    {[]string{"date +%N", "date +%N", "date +%N", "date +%N"}, 0},
		"control: other calls": {[]string{"echo 1", "echo 2", "echo 3", "echo 4"}, 0},
	} {
		if got := loop(fresh(), tc.cmds...); got != tc.want {
			t.Errorf("%s: %d stopped, want %d", name, got, tc.want)
		}
	}
	x := fresh()
	loop(x, "ls probe", "ls probe")
	s.kill(t)
	s.start(t)
	if got := loop(x, "ls probe"); got != 1 {
		t.Error("a restart made it forget")
	}
}

// hidden are texts that bash reads otherwise than they look, or that say only at
// run time what they do; with a narrow rule none of them may run.
var hidden = []string{
	"( echo $(echo a)# b; touch flag\n)", "echo $( echo $((1))# b; touch flag\n)", "cat <( cat <(echo a)# b; touch flag\n)", "echo $(x=(a)#b; touch flag\n)",
	"case a in a) echo $(echo a)# b; touch flag\n;; esac",
	"export -a x='($(touch flag))'; echo a", "declare -A x='([$(touch flag)]=a)'; echo a", `y='($(touch flag))'; readonly -a x="$y"; echo a`,
	"x=(a); declare x='($(touch flag))'; echo a",
	// Shells that begin with files of the home directory, of which the text does not speak: by an option, and by their name.
	"bash -lc 'echo a'", "bash --login -c ls", "bash -ic 'echo a'", "(exec -l bash -c 'echo a')", "(exec -a -bash bash -c 'echo a'); ls", "(exec -a -sh sh -c 'echo a')",
}

// hiddenEdits write a file called in, by a name that stands for it; link leads to
// /proc/self/fd/1.
var hiddenEdits = []string{
	"echo evil 1<in >/dev/stdout", "{ echo evil >>/dev/stderr; } 2<in", "echo evil <in 1>&0 >/dev/fd/1", "echo evil 3<in >/proc/self/fd/3",
	"echo evil 1<in >/dev/../dev/stdout", "cd /dev && echo evil 1</workspace/in >stdout", "echo evil 1<in >link",
	"f=in; echo evil >$f", "for f in in; do echo evil >\"./$f\"; done", "echo evil >i[n]",
}

// R12: what a shell may read otherwise than the rules do, and what is only known
// at run time, is never allowed by a narrow rule and denied by a deny for one path.
func TestR12Readings(t *testing.T) {
	s := newScene(t, narrow+`
[profile.paths.permission]
external_directory = "allow"
[profile.paths.permission.edit]
"*" = "allow"
"in" = "deny"
`)
	for _, name := range []string{".bash_profile", ".profile", ".bashrc"} {
		must(t, os.WriteFile(filepath.Join(s.tree, name), []byte(">/workspace/flag\n"), 0o644))
	}
	s.neverRun(t, "narrow", "flag", "", hidden)
	must(t, os.Symlink("/proc/self/fd/1", filepath.Join(s.tree, "link")))
	s.neverRun(t, "paths", "in", "in\n", hiddenEdits)
}

// R12: the same where the shell is not bash.
func TestR12OtherShell(t *testing.T) {
	s := newScene(t, narrow+"[tools.bash]\nshell = [\"/bin/sh\"]\n")
	s.neverRun(t, "narrow", "flag", "", []string{
		`echo $'\'; touch flag #'`, `cat $'\' >flag #'`, "echo \"$(echo $'\\'; touch flag #'\n)\"", "builtin exit; touch flag", "( echo $(echo a)# b; touch flag\n)",
	})
}

// neverRun has the lines tried by a session with the profile: all are denied, and
// none changes the file, which begins with this text, or not at all. Without the
// rules, all of them do.
func (s *scene) neverRun(t *testing.T, profile, file, text string, lines []string) {
	t.Helper()
	home := map[string]string{"HOME": "/workspace"}
	x := s.open(t, client.SessionCreate{Profile: profile, Worktree: client.Worktree{Source: s.tree}, Env: home})
	free := s.open(t, client.SessionCreate{Profile: "build", Worktree: client.Worktree{Source: s.tree}, Env: home})
	name := filepath.Join(s.tree, file)
	for _, line := range lines {
		reset := func() {
			must(t, os.RemoveAll(name))
			if text != "" {
				must(t, os.WriteFile(name, []byte(text), 0o600))
				must(t, os.Chmod(name, 0o666))
			}
		}
		changed := func() bool {
			b, err := os.ReadFile(name)
			return string(b) != text || (err == nil) != (text != "")
		}
		reset()
		c := bash(t, s.a, x.ID, line)
		if c.Error == nil || c.Error.Code != client.CodeDenied {
			t.Errorf("%q: not denied: %+v %q", line, c.Error, c.Output)
		}
		if changed() {
			t.Errorf("%q: did it", line)
			reset()
		}
		if c := bash(t, s.a, free.ID, line); !changed() {
			t.Errorf("control: without the rules, %q does nothing: %+v %q", line, c.Error, c.Output)
		}
	}
	must(t, os.RemoveAll(name))
}

// F4: a rule on a path holds for whatever leads there.
func TestF4PathRules(t *testing.T) {
	s := newScene(t, "[approvals]\napprover = \"none\"\n[permission.read]\n\"**/.env\" = \"deny\"\n[permission.edit]\n\"**/.env\" = \"deny\"\n")
	env := filepath.Join(s.tree, "d", ".env")
	must(t, os.MkdirAll(filepath.Join(s.tree, "d", "x"), 0o755))
	must(t, os.WriteFile(env, []byte("SECRET=1\n"), 0o644))
	must(t, os.Symlink("d/.env", filepath.Join(s.tree, "link")))
	must(t, os.Symlink("d", filepath.Join(s.tree, "dir")))
	must(t, os.Link(env, filepath.Join(s.tree, "hard")))
	for _, path := range []string{"d/.env", "link", "dir/.env", "./d/x/../.env", "/workspace/d/.env", "/workspace/link", "d//.env"} {
		for _, c := range []*client.Call{
			call(t, s.a, s.attacker.ID, "read", map[string]any{"file_path": path}),
			call(t, s.a, s.attacker.ID, "edit", map[string]any{"file_path": path, "old_string": "SECRET", "new_string": "X"}),
		} {
			if c.Error == nil || c.Error.Code != client.CodeDenied || strings.Contains(c.Output, "SECRET") {
				t.Errorf("%s %s: %+v %q", c.Tool, path, c.Error, c.Output)
			}
		}
	}
	// Outside of what a rule on paths can promise, and documented as such.
	if c := call(t, s.a, s.attacker.ID, "read", map[string]any{"file_path": "hard"}); c.Error != nil {
		t.Errorf("control: a hard link is another name: %v", c.Error)
	}
	if got := read(env); got != "SECRET=1\n" {
		t.Errorf("the file is %q", got)
	}
}

// auditLines reads the audit log of the rig's daemon.
func (r *rig) auditLines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	var lines []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		lines = append(lines, sc.Text())
	}
	must(t, sc.Err())
	return lines
}

// D9: no name and no command makes two records of one, or none.
func TestD9AuditLines(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	s := newScene(t, fmt.Sprintf("[audit]\npath = %q\ninputs = true\n", log))
	for _, name := range []string{"a\n{\"seq\":1,\"verdict\":\"allow\"}", "b\x1b[2K", "c\u2028d", "e\u2029f", "g\\u000ah", "\u202egnp.exe"} {
		call(t, s.a, s.attacker.ID, "write", map[string]any{"file_path": name, "content": "x"})
		bash(t, s.a, s.attacker.ID, "echo '"+name+"'")
	}
	// The end of a call is told before it is on the log; a list of calls waits for that.
	_, err := s.a.ListCalls(t.Context(), s.attacker.ID, client.CallQuery{})
	must(t, err)
	for i, line := range s.auditLines(t, log) {
		if !json.Valid([]byte(line)) || strings.ContainsAny(line, "\x1b\u2028\u2029\u202e\x00") {
			t.Errorf("line %d: %q", i+1, line)
		}
	}
	if out, err := s.toolctl("audit", "verify", log); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
	b := mustRead(t, log)
	must(t, os.WriteFile(log, bytes.Replace(b, []byte(`"tool":"write"`), []byte(`"tool":"wrote"`), 1), 0o600))
	if out, err := s.toolctl("audit", "verify", log); err == nil {
		t.Errorf("control: a changed log is good:\n%s", out)
	}
}

// D11: no room for the audit log.
func TestD11AuditDiskFull(t *testing.T) {
	for _, mode := range []string{"strict", "lenient"} {
		t.Run(mode, func(t *testing.T) {
			// The small file system is in a mount namespace of the daemon's own, so
			// that it is gone with it whatever happens.
			dir := t.TempDir()
			s := newSceneIn(t, []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs -o size=64k,mode=700 tmpfs "$0" && exec "$@"`, dir}, fmt.Sprintf("[audit]\npath = %q\nmode = %q\n", filepath.Join(dir, "audit.jsonl"), mode))
			if c := s.bash(t, "echo control"); c.Error != nil {
				t.Fatalf("control: %v", c.Error)
			}
			inside := fmt.Sprintf("/proc/%d/root%s", s.daemon.Cmd.Process.Pid, dir)
			fill, err := os.Create(filepath.Join(inside, "fill"))
			must(t, err)
			for err == nil {
				_, err = fill.Write(make([]byte, 512))
			}
			must(t, fill.Close())
			var refused, ran int
			for i := range 60 {
				c, err := tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": fmt.Sprintf("echo x >> ran; echo %d", i)})
				if err != nil || c.Error != nil {
					refused++
				} else {
					ran++
				}
			}
			if lines := strings.Count(read(filepath.Join(s.tree, "ran")), "x"); lines != ran {
				t.Errorf("%d calls say that they ran, %d did", ran, lines)
			}
			switch {
			case mode == "strict" && refused == 0:
				t.Error("strict: calls run without a record")
			case mode == "lenient" && refused != 0:
				t.Errorf("lenient: %d calls were refused", refused)
			}
			if mode == "lenient" {
				if m := s.metric(t, "toold_audit_errors_total"); m == 0 {
					t.Error("lenient: nothing counts the records that are missing")
				}
			}
			must(t, os.Remove(filepath.Join(inside, "fill"))) // there is room again for the invariants' calls
		})
	}
}
