package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

var policyTools = []client.ToolDefinition{
	{Name: "bash", InputSchema: json.RawMessage(`{"properties":{"command":{"type":"string"},"timeout":{"type":"integer"}},"required":["command"]}`)},
	{Name: "edit", InputSchema: json.RawMessage(`{"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]}`)},
}

func TestPolicyExplain(t *testing.T) {
	v := client.PolicyVerdict{
		Tool: "bash", Profile: "build", Tenant: "default", Action: "deny", Rule: "config.toml:17", Reason: "use the queue\x1b",
		Requests: []client.PolicyRequest{
			{
				Permission: "bash", Pattern: "FOO=1 git push --force \"$X\" > /etc/motd", Action: "deny", Rule: "config.toml:17", Save: "git push *",
				Matches: []client.PolicyMatch{
					{Layer: "rules", Permission: "bash", Pattern: "*", Action: "ask", Source: "config.toml:12"},
					{Layer: "rules", Permission: "bash", Pattern: "git push *", Action: "deny", Source: "config.toml:17", Reason: "use the queue", Winner: true},
					{Layer: "session", Permission: "bash", Pattern: "*", Action: "ask", Source: "session rule 1", Winner: true},
				},
			},
			{Permission: "edit", Pattern: "/etc/motd", Path: "/etc/motd", Action: "allow", Rule: "default", Matches: []client.PolicyMatch{
				{Layer: "rules", Permission: "*", Pattern: "*", Action: "allow", Source: "default", Winner: true},
			}},
			{Permission: "bash", Pattern: "eval x", Opaque: true, Why: "eval runs what is not written here", Action: "ask", Rule: "no rule"},
		},
		Notes: []string{"paths were not resolved"},
	}
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions":        answerWith(client.List[client.Session]{}),
		"GET /v1/tools":           answerWith(client.List[client.ToolDefinition]{Items: policyTools}),
		"POST /v1/policy/explain": answerWith(v),
	})
	r := d.ctl("policy", "explain", "bash", "cd /tmp && x", "--profile", "plan", "--session", "review")
	want := `bash: deny, for profile build of tenant default
  because of config.toml:17: use the queue\x1b

1. bash FOO=1 git push --force "$X" > /etc/motd  → deny
   config.toml:12  bash "*"           ask
   config.toml:17  bash "git push *"  deny  decides: use the queue
   session rule 1  bash "*"           ask   the last that matches of session
   an approval for always would allow bash "git push *"

2. edit /etc/motd  → allow
   default  * "*"  allow  decides

3. bash eval x  → ask
   cannot be judged by its parts, only as a whole: eval runs what is not written here
   no rule matches: no rule

note: paths were not resolved
`
	if r.stdout != want || r.code != 3 {
		t.Errorf("exit %d\ngot\n%s\nwant\n%s", r.code, r.stdout, want)
	}
	if got := string(d.asked("POST", "/explain")[0].body); got != `{"tool":"bash","input":{"command":"cd /tmp \u0026\u0026 x"},"profile":"plan","session":"review"}` {
		t.Errorf("asked %s", got)
	}
	d.ctl("policy", "explain", "edit", `{"a": "x"}`, "-o", "json").want(t, 3, `"rule": "config.toml:17"`, "")
	d.ctl("policy", "explain", "bash", `{ ls; }`, "-o", "name").want(t, 3, "deny\n", "")
	all := d.asked("POST", "/explain")
	if got := string(all[1].body) + string(all[2].body); got != `{"tool":"edit","input":{"a":"x"}}{"tool":"bash","input":{"command":"{ ls; }"}}` {
		t.Errorf("asked %s", got)
	}
	d.ctl("policy", "explain", "edit", "x").want(t, 2, "", "write its input as a JSON object with a, b")
	d.ctl("policy", "explain", "bsh", "x").want(t, 4, "", `did you mean "bash"`)
	d.ctl("policy", "explain", "bash").want(t, 2, "", "no INPUT, as in")
}

func TestPolicyExplainAllowed(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/tools":           answerWith(client.List[client.ToolDefinition]{Items: policyTools}),
		"POST /v1/policy/explain": answerWith(client.PolicyVerdict{Tool: "bash", Profile: "build", Tenant: "a", Action: "allow", Rule: "default", Requests: []client.PolicyRequest{}}),
	})
	d.ctl("policy", "explain", "bash", "true").want(t, 0, "asks for nothing", "")
}

func TestPolicyReplay(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "new.toml")
	if err := os.WriteFile(rules, []byte("[permission]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	change := client.PolicyChange{
		CallID: "call_1", SessionID: fakeSession, Tool: "bash", Input: json.RawMessage(`{"command":"git push\u001b"}`), Time: time.Unix(0, 0),
		Was: "allow", WasRule: "default", Now: "deny", NowRule: "new.toml:4",
	}
	other := change
	other.CallID, other.Input = "call_2", json.RawMessage(`{"pattern":"x"}`)
	d := startFake(t, map[string]http.HandlerFunc{"POST /v1/policy/replay": answerWith(client.PolicyReplayed{
		Calls: 812, Changes: []client.PolicyChange{change, other}, Notes: []string{"3 calls are not on record"},
	})})
	r := d.ctl("policy", "replay", rules, "--since", "24h", "--session", "ses_1", "--limit", "5")
	r.want(t, 0, `call_1  bash  git push\x1b     allow  default  deny  new.toml:4`, "note: 3 calls are not on record\ntoolctl: 812 calls judged, 2 changed verdicts\n")
	r.want(t, 0, `{"pattern":"x"}`, "")
	want := `{"rules":"[permission]\n","name":"` + rules + `","session":"ses_1","since":"24h","limit":5}`
	if got := string(d.asked("POST", "/replay")[0].body); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	d.ctl("policy", "replay", rules, "--fail").want(t, 1, "call_1", "")
	d.ctl("policy", "replay", rules, "-o", "name").want(t, 0, "call_1\ncall_2\n", "")
	d.ctl("policy", "replay", "/nonexistent/x").want(t, 2, "", "no such file")
	d.ctl("policy", "replay", rules, "--since", "soon").want(t, 2, "", "not a duration")
	same := startFake(t, map[string]http.HandlerFunc{"POST /v1/policy/replay": answerWith(client.PolicyReplayed{Calls: 1})})
	same.ctl("policy", "replay", rules, "--fail").want(t, 0, "", "1 call judged, 0 changed verdicts")
	big := filepath.Join(t.TempDir(), "big.toml")
	if err := os.WriteFile(big, make([]byte, maxRules+1), 0o600); err != nil {
		t.Fatal(err)
	}
	d.ctl("policy", "replay", big).want(t, 2, "", "larger than 1048576 bytes")
}

func TestUsageCommand(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/usage": answerWith(client.List[client.TenantUsage]{Items: []client.TenantUsage{
		{
			Tenant: "ci\x1b", Sessions: 2, Queued: 3, Calls: 1, CPUMillis: 1500, MemoryBytes: 3 << 20, DiskBytes: 10, LayerBytes: 4, WorktreeBytes: 7, RecordBytes: 20,
			IOBytes: 2048, MaxSessions: 5, MaxRecordBytes: 1 << 30,
		},
	}})})
	d.ctl("usage").want(t, 0, `ci\x1b  2/5       3       1      1.5s      3.0MiB  10B      4B      7B         20B/1.0GiB  2.0KiB`, "")
	d.ctl("usage", "-o", "json").want(t, 0, `"cpu_ms": 1500`, "")
}

func TestSessionCreatePermission(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{"POST /v1/sessions": answerWith(session())})
	d.ctl("session", "create", "--permission", "bash:git push *:deny", "--permission", "webfetch:https://x/*:ask", "--profile", "plan").want(t, 0, fakeSession, "")
	got := string(d.asked("POST", "/sessions")[0].body)
	want := `{"profile":"plan","permission":[{"permission":"bash","pattern":"git push *","action":"deny"},{"permission":"webfetch","pattern":"https://x/*","action":"ask"}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, rule := range []string{"bash", "bash:deny", ":x:deny", "bash:x:", "bash:x:refuse"} {
		d.ctl("session", "create", "--permission", rule).want(t, 2, "", "--permission")
	}
}

// writeRules writes a rules file and gives its path.
func writeRules(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const someRules = `[permission.bash]
"*"          = "ask"
"git *"      = "allow"
"git push *" = { action = "deny", reason = "pushes go through the merge queue" }
"ls"         = "allow"

[[test]]
tool = "bash"
input = { command = "git push origin" }
expect = "deny"
`

// TestPolicyOffline: rules are explained and tested without a daemon.
func TestPolicyOffline(t *testing.T) {
	rules := writeRules(t, someRules)
	none := []string{"--socket", filepath.Join(t.TempDir(), "none"), "policy"}
	offline := func(args ...string) result { return ctl(t, t.Context(), "", append(none, args...)...) }

	r := offline("explain", "bash", `cd /tmp && FOO=1 git push --force "$X" > /etc/motd`, "--config", rules)
	for _, want := range []string{
		"bash: deny, for profile build of tenant default\n  because of " + rules + ":4: pushes go through the merge queue\n",
		"bash cd /tmp  → ask\n", `git push --force "$X" > /etc/motd  → deny`, "edit /etc/motd  → allow\n", "external_directory /etc/motd  → ask\n",
		rules + `:4  bash "git push *"  deny   decides: pushes go through the merge queue`, "note: judged by the file alone",
	} {
		r.want(t, 3, want, "")
	}
	offline("explain", "bash", "eval $x", "--config", rules).want(t, 0, "cannot be judged by its parts, only as a whole: eval runs", "")
	offline("explain", "read", ".env", "--config", rules, "-o", "name").want(t, 0, "ask\n", "")
	offline("explain", "edit", `{"file_path":"a","old_string":"b","new_string":"c"}`, "--config", rules, "--profile", "plan").want(t, 3, "edit: deny, for profile plan", "")
	offline("explain", "read", `{"file_pth":"a"}`, "--config", rules).want(t, 2, "", "file_pth")
	offline("explain", "bash", "ls", "--config", rules, "--profile", "biuld").want(t, 1, "", "build")
	offline("explain", "bash", "ls", "--config", rules, "--session", "review").want(t, 2, "", "leave --session out")
	offline("explain", "bash", "ls", "--config", "/nonexistent/x").want(t, 2, "", "no such file")

	offline("test", rules).want(t, 0, rules+": 1 test passed\n", "warning: "+rules+":5: ")
	offline("test", rules, "-o", "json").want(t, 0, `"passed": 1`, "")
	bad := writeRules(t, someRules+"[[test]]\ntool = \"bash\"\ninput = { command = \"ls -l\" }\nexpect = \"allow\"\n")
	offline("test", bad).want(t, 1, "", bad+":11: test: bash")
	ctl(t, t.Context(), "", "config", "check", bad).want(t, 1, "", bad+":11: test: bash")
	offline("explain", "bash", "ls", "--config", bad).want(t, 1, "", "1 problem")
}

func TestConfigCheckWarns(t *testing.T) {
	rules := writeRules(t, someRules)
	ctl(t, t.Context(), "", "config", "check", rules).want(t, 0, rules+" is valid, with 1 warning\n", "warning: "+rules+":5: ")
	unread := writeRules(t, "[permission.http]\n\"GET https://api.example.com/secret*\" = \"deny\"\n")
	r := ctl(t, t.Context(), "", "config", "check", unread)
	r.want(t, 0, unread+" is valid, with 1 warning\n", "warning: "+unread+":2: ")
	r.want(t, 0, "", "whose requests cannot be read")
	bad := writeRules(t, "[permission]\nbash = \"alow\"\n[doom_loop]\nthreshold = 0\n")
	r = ctl(t, t.Context(), "", "config", "check", bad)
	r.want(t, 1, "", bad+":2: ")
	r.want(t, 1, "", bad+":4: ")
}
