package session

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
)

// program writes a shell script and gives its path.
func program(t testing.TB, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook.sh")
	if err := testrig.WriteProgram(path, []byte("#!/bin/sh\n"+script+"\n")); err != nil {
		t.Fatal(err)
	}
	return path
}

// scripted is a hook with a script as its program.
func scripted(t testing.TB, on, script string) hook.Hook {
	return hook.Hook{On: on, Command: []string{program(t, script)}, Timeout: time.Minute}
}

// told is an auditor and an observer of hooks.
type told struct {
	Observer
	mu        sync.Mutex // guards the fields below
	decisions []judge.Decision
	finished  []client.Call
	by        []auth.Principal
	hashes    [][32]byte
	hooks     []string
	caches    []record.Cache
	worktrees []record.Worktree
	admins    []string
	fail      error
}

func (o *told) Decided(d *judge.Decision) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return o.fail
	}
	o.decisions = append(o.decisions, *d)
	return nil
}

func (o *told) Worktree(p auth.Principal, s *client.Session, w record.Worktree) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return o.fail
	}
	o.worktrees, o.by = append(o.worktrees, w), append(o.by, p)
	return nil
}

func (o *told) Cache(p auth.Principal, s *client.Session, c record.Cache) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return o.fail
	}
	o.caches, o.by = append(o.caches, c), append(o.by, p)
	return nil
}

func (o *told) Admin(p auth.Principal, a record.Admin) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return o.fail
	}
	o.admins, o.by = append(o.admins, a.Operation), append(o.by, p)
	return nil
}

func (o *told) Ready() error { return nil }

func (o *told) Noticed() string { return "" }

func (o *told) Finished(p auth.Principal, c *client.Call, h [32]byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished, o.by, o.hashes = append(o.finished, *c), append(o.by, p), append(o.hashes, h)
	return o.fail
}

func (o *told) of(hooks ...string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Equal(o.hooks, hooks)
}

// hookObserver is told of hooks alone.
type hookObserver struct{ *told }

func (hookObserver) SessionState(*client.Session, client.SessionState)       {}
func (hookObserver) SandboxCreated(string, bool, time.Duration)              {}
func (hookObserver) CallFinished(*client.Call, time.Duration, time.Duration) {}
func (hookObserver) Connection(string, int64, int64, time.Duration)          {}
func (hookObserver) OutputSpilled(int64)                                     {}
func (hookObserver) LenientConversion(string)                                {}
func (hookObserver) Alias(string, string)                                    {}
func (hookObserver) Decided(*judge.Decision)                                 {}
func (hookObserver) DoomLoop(string, int, policy.Action)                     {}
func (hookObserver) ApprovalAsked(*client.Approval)                          {}
func (hookObserver) ApprovalReplied(*client.Approval, string, time.Duration) {}
func (o hookObserver) Hooked(on, outcome string, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hooks = append(o.hooks, on+" "+outcome)
}

func sha(p []byte) [32]byte { return sha256.Sum256(p) }

// hooked is a house with hooks and an audit log, and a session in it.
func hooked(t *testing.T, hooks ...hook.Hook) (*house, *told, string) {
	t.Helper()
	h := newHouse(t)
	h.set.Hooks = hooks
	o := &told{}
	h.obs = []Observer{hookObserver{o}}
	h.openAudited(o)
	return h, o, h.create(alice, client.SessionCreate{Labels: map[string]string{"team": "x"}}).ID
}

// A call is in the store before a hook hears of it.
func TestHookAfterTheRecord(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	h, _, s := hooked(t, scripted(t, hook.CallBefore, "touch "+ran+`; echo '{"action":"allow"}'`))
	pending := 0
	h.m.store.OnEvents(func(events []client.Event) {
		for _, e := range events {
			if e.Type != client.EventCallPending {
				continue
			}
			pending++
			if _, err := os.Stat(ran); err == nil {
				t.Error("the hook ran first")
			}
		}
		h.m.hub.Publish(events)
	})
	if c := h.call(s, bashCall("echo x")); c.Error != nil {
		t.Fatal(c.Error)
	}
	if _, err := os.Stat(ran); err != nil || pending != 1 {
		t.Errorf("%v; %d events", err, pending)
	}
}

func (h *house) openAudited(o *told) {
	h.t.Helper()
	m := h.build()
	m.cfg.Auditor, m.calls.Auditor = o, o
	if err := m.Start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

func TestHookBefore(t *testing.T) {
	tests := []struct {
		name, script string
		open         bool
		timeout      time.Duration
		code         client.Code
		message      string // of the error, or of the output
		outcome      string
	}{
		{name: "allows", script: `echo '{"action":"allow"}'`, message: "x\n", outcome: "ok"},
		{name: "denies", script: `echo '{"action":"deny","reason":"not on a Friday"}'`, code: client.CodeDenied, message: "denied: bash by hook hook.sh: not on a Friday", outcome: "denied"},
		{name: "denies without a word", script: `echo '{"action":"deny"}'`, code: client.CodeDenied, message: "denied: bash by hook hook.sh", outcome: "denied"},
		{name: "denies, open", script: `echo '{"action":"deny"}'`, open: true, code: client.CodeDenied, message: "denied: bash", outcome: "denied"},
		{name: "says nothing", script: `true`, code: client.CodeDenied, message: "it is empty", outcome: "failed"},
		{name: "fails", script: `echo '{"action":"allow"}'; echo s3cret >&2; exit 3`, code: client.CodeDenied, message: "failed: exit status 3", outcome: "failed"},
		{name: "fails, open", script: `exit 3`, open: true, message: "[hook hook.sh failed: exit status 3; the call went on without it]", outcome: "failed"},
		{name: "dies", script: `kill -9 $$`, code: client.CodeDenied, message: "signal: killed", outcome: "failed"},
		{name: "hangs", script: `sleep 100`, timeout: 50 * time.Millisecond, code: client.CodeDenied, message: "did not answer within 50ms and was killed", outcome: "failed"},
		{name: "hangs, open", script: `sleep 100`, timeout: 50 * time.Millisecond, open: true, message: "did not answer within 50ms", outcome: "failed"},
		{name: "no JSON", script: `echo allow`, code: client.CodeDenied, message: "not a JSON object", outcome: "failed"},
		{name: "half an object", script: `echo '{"action":"allow"'`, code: client.CodeDenied, message: "not JSON", outcome: "failed"},
		{name: "half a value", script: `echo '{"action":"all'`, code: client.CodeDenied, message: "not JSON", outcome: "failed"},
		{name: "two objects", script: `echo '{"action":"allow"}{}'`, code: client.CodeDenied, message: "something follows", outcome: "failed"},
		{name: "unknown key", script: `echo '{"action":"allow","resaon":"x"}'`, code: client.CodeDenied, message: `key "resaon" does not belong`, outcome: "failed"},
		{name: "key in another case", script: `echo '{"Action":"allow"}'`, code: client.CodeDenied, message: `key "Action" does not belong`, outcome: "failed"},
		{name: "key twice", script: `echo '{"action":"deny","action":"allow"}'`, code: client.CodeDenied, message: `stands twice`, outcome: "failed"},
		{name: "no action", script: `echo '{"reason":"x"}'`, code: client.CodeDenied, message: `"action" is missing`, outcome: "failed"},
		{name: "another action", script: `echo '{"action":"ask"}'`, code: client.CodeDenied, message: `"action" is "ask"`, outcome: "failed"},
		{name: "action is no string", script: `echo '{"action":true}'`, code: client.CodeDenied, message: `"action" is not a string`, outcome: "failed"},
		{name: "null", script: `echo '{"action":null}'`, code: client.CodeDenied, message: `"action" is not a string`, outcome: "failed"},
		{name: "deny with an input", script: `echo '{"action":"deny","input":{}}'`, code: client.CodeDenied, message: "in no way", outcome: "failed"},
		{name: "too much", script: `head -c 9000000 /dev/zero`, code: client.CodeDenied, message: "answered more than", outcome: "failed"},
		{name: "reads nothing", script: `exec 0<&-; echo '{"action":"allow"}'`, message: "x\n", outcome: "ok"},
		{name: "closes everything", script: `exec 0<&- 1>&- 2>&-`, code: client.CodeDenied, message: "it is empty", outcome: "failed"},
		{name: "replaces", script: `grep -q '"command":"echo y"' || true; echo '{"action":"allow","input":{"command":"echo y"}}'`, message: "y\n"},
		{name: "the same input in other words", script: `echo '{"action":"allow","input":{  "command":"\u0065cho x"}}'`, message: "x\n", outcome: "replaced"},
		{name: "replaces by what is no input", script: `echo '{"action":"allow","input":{"comand":"x"}}'`, code: client.CodeDenied, message: "an input that bash does not take", outcome: "replaced"},
		{name: "replaces by what is no input, open", script: `echo '{"action":"allow","input":7}'`, open: true, message: "an input that bash does not take", outcome: "replaced"},
		{name: "replaces for ever", script: `n=$(date +%s%N); echo "{\"action\":\"allow\",\"input\":{\"command\":\"echo $n\"}}"`, code: client.CodeDenied, message: "replaced the input more than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hk := scripted(t, hook.CallBefore, tt.script)
			hk.FailOpen = tt.open
			if tt.timeout > 0 {
				hk.Timeout = tt.timeout
			}
			h, o, id := hooked(t, hk)
			c := h.call(id, bashCall("echo x"))
			text := c.Output
			if c.Error != nil {
				text = c.Error.Message
				if c.Error.Code != tt.code {
					t.Errorf("code %q, want %q", c.Error.Code, tt.code)
				}
				if c.Permission == nil || c.Permission.Verdict != "deny" && tt.name != "replaces for ever" {
					t.Errorf("permission is %+v", c.Permission)
				}
			} else if tt.code != "" {
				t.Fatalf("it ran: %q", text)
			}
			if !strings.Contains(text, tt.message) || strings.Contains(text, "s3cret") {
				t.Errorf("got %q, want %q", text, tt.message)
			}
			if tt.outcome != "" && !o.of(hook.CallBefore+" "+tt.outcome) {
				t.Errorf("observers were told %q, want %s", o.hooks, tt.outcome)
			}
			ran := slices.ContainsFunc(h.host.box(id).runs, func(r string) bool { return r == c.ID })
			if ran != (tt.code == "") {
				t.Errorf("ran = %t", ran)
			}
			if last := o.decisions[len(o.decisions)-1]; tt.code == client.CodeDenied && c.Permission.Verdict == "deny" &&
				(last.Verdict.Action != policy.Deny || last.Approver != "hook hook.sh" || last.Call != c.ID || last.InputHash == [32]byte{}) {
				t.Errorf("the last decision is %+v", last)
			}
		})
	}
}

func TestHookCannotBeRun(t *testing.T) {
	for _, command := range [][]string{nil, {"/no/such/program"}, {"/etc/passwd"}, {"/"}} {
		h, _, id := hooked(t, hook.Hook{On: hook.CallBefore, Command: command, Timeout: time.Minute})
		if c := h.call(id, bashCall("echo x")); c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, "could not be run") {
			t.Errorf("%q: %+v", command, c.Error)
		}
	}
}

// TestReplacedInputIsJudged: the input that a hook gives is what is judged,
// recorded and run; a hook cannot get past the rules.
func TestReplacedInputIsJudged(t *testing.T) {
	h, o, id := hooked(t, scripted(t, hook.CallBefore, `case $(cat) in *"echo x"*) echo '{"action":"allow","input":{"command":"echo y"}}';; *) echo '{"action":"allow"}';; esac`))
	c := h.call(id, bashCall("echo x"))
	if c.Output != "y\n" || !strings.Contains(string(c.Input), "echo y") {
		t.Errorf("it ran %s and printed %q", c.Input, c.Output)
	}
	if len(o.decisions) != 2 || !strings.Contains(string(o.decisions[1].Input), "echo y") || o.decisions[0].InputHash == o.decisions[1].InputHash {
		t.Errorf("decisions: %+v", o.decisions)
	}
	if !o.of("call.before replaced", "call.before ok") {
		t.Errorf("hooks: %q", o.hooks)
	}
	// The same with a rule against what the hook wants.
	set, err := policy.Parse("config.toml", []byte("[permission.bash]\n\"*\" = \"allow\"\n\"echo y\" = \"deny\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := *h.m.settings.Load()
	s.Policy = set
	h.m.Reload(s)
	if c := h.call(id, bashCall("echo x")); c.Error == nil || c.Error.Code != client.CodeDenied {
		t.Errorf("a replaced input got past the rules: %+v", c)
	}
}

// TestTimeoutOfAReplacedInput: what is said of a timeout is about the input that ran.
func TestTimeoutOfAReplacedInput(t *testing.T) {
	h, _, id := hooked(t, scripted(t, hook.CallBefore,
		`case $(cat) in *"echo x"*) echo '{"action":"allow","input":{"command":"echo y","timeout":999999999}}';; *) echo '{"action":"allow"}';; esac`))
	const cut = "(timeout 999999999 was cut to "
	if c := h.call(id, bashCall("echo x")); !strings.HasPrefix(c.Output, "y\n"+cut) {
		t.Errorf("a longer timeout by a hook: %q", c.Output)
	}
	if c := h.call(id, bashCall("echo z")); c.Output != "z\n" {
		t.Errorf("none: %q", c.Output)
	}
}

// TestHookReads is about what a hook is given: the event, and nothing of the
// daemon's.
func TestHookReads(t *testing.T) {
	t.Setenv("TOOLD_SECRET", "s3cret")
	dir := t.TempDir()
	script := fmt.Sprintf(`cat > %[1]s/$$.json; env > %[1]s/env; pwd > %[1]s/pwd; ps -o pid=,pgid= $$ > %[1]s/ids; ls -l /proc/self/fd > %[1]s/fds; echo '{"action":"allow"}'`, dir)
	h, _, id := hooked(t, scripted(t, hook.CallBefore, script))
	r := bashCall("echo x")
	r.Env, r.Agent, r.Extra = map[string]string{"TOKEN": "s3cret"}, "main", json.RawMessage(`{"a":1}`)
	if c := h.call(id, r); c.Error != nil {
		t.Fatal(c.Error)
	}
	files, _ := filepath.Glob(dir + "/*.json")
	if len(files) != 1 {
		t.Fatalf("files: %q", files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var e hook.Event
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	if e.Version != 1 || e.Event != hook.CallBefore || e.Session.ID != id || e.Session.Tenant != "a" || e.Session.Labels["team"] != "x" || e.Session.OwnerUID != alice.UID ||
		e.Call == nil || e.Call.Tool != "bash" || string(e.Call.Input) != `{"command":"echo x"}` || e.Call.Agent != "main" || string(e.Call.Extra) != `{"a":1}` ||
		e.Call.Permission == nil || e.Call.Permission.Verdict != "allow" || e.Result != nil || e.Time.IsZero() {
		t.Errorf("the event is %s", text)
	}
	env, err := os.ReadFile(dir + "/env")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text)+string(env), "s3cret") {
		t.Error("the hook was given a secret")
	}
	for l := range strings.Lines(string(env)) {
		name, _, _ := strings.Cut(l, "=")
		if !slices.Contains([]string{"PATH", "HOME", "LANG", "PWD", "SHLVL", "_", "OLDPWD"}, name) {
			t.Errorf("environment has %s", l)
		}
	}
	if pwd, _ := os.ReadFile(dir + "/pwd"); string(pwd) != "/\n" {
		t.Errorf("its directory is %q", pwd)
	}
	if ids, _ := os.ReadFile(dir + "/ids"); len(strings.Fields(string(ids))) == 2 {
		if f := strings.Fields(string(ids)); f[0] != f[1] {
			t.Errorf("pid and process group: %s", ids)
		}
	}
	fds, _ := os.ReadFile(dir + "/fds")
	if strings.Contains(string(fds), h.dir) {
		t.Errorf("it has files of the daemon's: %s", fds)
	}
}

func TestHooksThatDoNotMatchDoNotRun(t *testing.T) {
	hk := scripted(t, hook.CallBefore, `echo '{"action":"deny"}'`)
	hk.Match = map[string]string{"tool": "read"}
	h, o, id := hooked(t, hk)
	if c := h.call(id, bashCall("echo x")); c.Error != nil || !o.of() {
		t.Errorf("%v, %q", c.Error, o.hooks)
	}
	if c := h.call(id, readCall("a.txt")); c.Error == nil {
		t.Error("the hook did not run for the tool that it matches")
	}
}
