package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/replay"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

const explainedRules = `
[permission.bash]
"*" = "ask"
"git *" = "allow"
"git push *" = { action = "deny", reason = "through the queue" }
[profile.quiet.permission]
bash = "deny"
[tenant.b]
uids = [1001]
`

// TestExplainLearns: in the learn mode of a tenant what no line is about is explained as it is judged.
func TestExplainLearns(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `[permission.network]
"*.example" = "deny"
"ask.example" = "ask"
[tenant.b]
uids = [1001]
`)
	h.set.Tenants = map[string]Tenant{"b": {Network: Network{Mode: client.NetworkRules}}}
	h.set.Network = Network{Mode: client.NetworkRules, Learn: true}
	h.open()
	for _, p := range []auth.Principal{alice, bob} {
		s := h.create(p, client.SessionCreate{})
		calls, err := h.m.Calls(t.Context(), p, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		learns := p.UID == alice.UID
		for at, want := range map[string]string{"other.test:443": "allow [network] learn", "a.example:443": "deny config.toml:2", "ask.example:443": "ask config.toml:3"} {
			if !learns && at == "other.test:443" {
				want = "deny default"
			}
			for _, session := range []string{s.ID, ""} {
				v, err := h.m.Policy.Explain(t.Context(), p, client.PolicyExplain{Session: session, Tool: "network", Input: must(json.Marshal(map[string]string{"address": at}))})
				if err != nil {
					t.Fatal(err)
				}
				if got := v.Action + " " + v.Rule; got != want || v.Requests[0].Action+" "+v.Requests[0].Rule != want {
					t.Errorf("%s, %s: explained as %s, %+v, want %s", p.Tenant, at, got, v.Requests, want)
				}
			}
			to, err := endpoint.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			action, _, _ := strings.Cut(want, " ")
			if action == "ask" {
				continue // no call is running for which it could be
			}
			if v := calls.Outgoing(t.Context(), &call.Outgoing{Request: policy.Connection(to), Learn: learns}); string(v.Action)+" "+v.Rule != want {
				t.Errorf("%s, %s: is %s by %s, and is explained as %s", p.Tenant, at, v.Action, v.Rule, want)
			}
		}
	}
}

func TestExplain(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, explainedRules)
	h.set.Tenants = map[string]Tenant{"b": {}}
	h.open()
	s := h.create(alice, client.SessionCreate{Permission: []client.RuleOf{{Permission: "bash", Pattern: "git log *", Action: "deny"}}})
	over := h.create(alice, client.SessionCreate{})
	if _, err := h.m.End(t.Context(), alice, over.ID, client.EndOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	input := func(command string) json.RawMessage { return must(json.Marshal(map[string]string{"command": command})) }
	explain := func(p auth.Principal, r client.PolicyExplain) (*client.PolicyVerdict, error) {
		return h.m.Policy.Explain(t.Context(), p, r)
	}
	v, err := explain(alice, client.PolicyExplain{Tool: "bash", Input: input("git status && git push > /etc/motd")})
	if err != nil {
		t.Fatal(err)
	}
	if v.Action != "deny" || v.Rule != "config.toml:5" || v.Reason != "through the queue" || v.Profile != "build" || v.Tenant != "a" {
		t.Errorf("verdict %+v", v)
	}
	var shownAs []string
	for _, r := range v.Requests {
		shownAs = append(shownAs, r.Permission+" "+r.Pattern+" "+r.Action)
		winners := 0
		for _, m := range r.Matches {
			if m.Winner {
				winners++
			}
		}
		if winners == 0 || r.Rule == "" {
			t.Errorf("request %+v", r)
		}
	}
	if got := strings.Join(shownAs, ", "); !strings.Contains(got, "bash git status allow, bash git push > /etc/motd deny, edit /etc/motd allow, external_directory /etc/motd ask") {
		t.Errorf("requests %s", got)
	}
	if !strings.Contains(strings.Join(v.Notes, "; "), "as they stand") {
		t.Errorf("notes %q", v.Notes)
	}
	for command, noted := range map[string]bool{"git status": false, "npm run a b": false, "cat a": true, "npm run ./a": true} {
		if v, err = explain(alice, client.PolicyExplain{Tool: "bash", Input: input(command)}); err != nil || strings.Contains(strings.Join(v.Notes, "; "), "as they stand") != noted {
			t.Errorf("%s: notes %q, %v", command, v.Notes, err)
		}
	}
	// In a session: its rules, and where its paths lead.
	v, err = explain(alice, client.PolicyExplain{Tool: "bash", Input: input("git log x"), Session: s.ID})
	if err != nil || v.Action != "deny" || !strings.Contains(v.Rule, "session") || strings.Contains(strings.Join(v.Notes, "; "), "as they stand") {
		t.Errorf("in the session: %+v, %v", v, err)
	}
	if v, err = explain(alice, client.PolicyExplain{Tool: "bash", Input: input("git log x"), Session: s.ID, Profile: "quiet"}); err != nil || v.Profile != "quiet" {
		t.Errorf("with another profile: %+v, %v", v, err)
	}
	if v, err = explain(alice, client.PolicyExplain{Tool: "read", Input: []byte(`{"file_path":"x"}`), Session: s.ID}); err != nil || v.Requests[0].Path != "/workspace/x" {
		t.Errorf("read: %+v, %v", v, err)
	}
	if v, err = explain(alice, client.PolicyExplain{Tool: "bash", Input: input(`eval "$X"`)}); err != nil || !v.Requests[0].Opaque || v.Requests[0].Why == "" {
		t.Errorf("opaque: %+v, %v", v, err)
	}
	h.reload(func(set *Settings) { set.Opaque, set.Approvals.None = "deny", true })
	if v, err = explain(alice, client.PolicyExplain{Tool: "bash", Input: input(`eval "$X"`)}); err != nil || v.Action != "deny" || v.Requests[0].Action != "deny" || v.Requests[0].Rule != "[tools.bash] opaque" {
		t.Errorf("opaque is denied: %+v, %v", v, err)
	}
	if v, err = explain(alice, client.PolicyExplain{Tool: "bash", Input: input("ls")}); err != nil || v.Action != "ask" || !strings.Contains(strings.Join(v.Notes, ";"), "approver") {
		t.Errorf("nobody answers: %+v, %v", v, err)
	}
	for _, tt := range []struct {
		p    auth.Principal
		r    client.PolicyExplain
		want client.Code
	}{
		{alice, client.PolicyExplain{Tool: "nonsense", Input: input("x")}, client.CodeUnknownTool},
		{alice, client.PolicyExplain{Tool: "bash", Input: []byte(`{}`)}, client.CodeInvalidInput},
		{alice, client.PolicyExplain{Tool: "bash", Input: input("x"), Profile: "nonsense"}, client.CodeInvalidRequest},
		{alice, client.PolicyExplain{Tool: "bash", Input: input("x"), Profile: "nonsense", Session: s.ID}, client.CodeInvalidRequest},
		{alice, client.PolicyExplain{Tool: "bash", Input: input("x"), Tenant: "b"}, client.CodeForbidden},
		{bob, client.PolicyExplain{Tool: "bash", Input: input("x"), Session: s.ID}, client.CodeNotFound},
		{alice, client.PolicyExplain{Tool: "bash", Input: input("x"), Session: over.ID}, client.CodeSessionLost},
		{root, client.PolicyExplain{Tool: "bash", Input: input("x"), Tenant: "b"}, ""},
	} {
		if _, err := explain(tt.p, tt.r); codeOfErr(err) != tt.want {
			t.Errorf("%+v: got %v, want %q", tt.r, err, tt.want)
		}
	}
	if n := len(h.host.box(s.ID).runs); n != 0 {
		t.Errorf("%d calls ran", n)
	}
	if l, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{}); err != nil || len(l.Items) != 0 {
		t.Errorf("calls were stored: %+v, %v", l, err)
	}
}

// replayer is what a daemon has, over its sessions.
func (h *house) replayer() *replay.Replayer {
	return replay.New(replay.Config{Store: h.store, Tools: tool.NewRegistry(), Sessions: h.m})
}

// TestReplayWithMounts: a recorded call is judged by what its session had mounted.
func TestReplayWithMounts(t *testing.T) {
	needs.OpenAt2(t)
	h := newHouse(t)
	dir := t.TempDir()
	h.set.MountRoots = []string{dir}
	h.open()
	mounted, err := h.m.Create(t.Context(), mounter, client.SessionCreate{Mounts: []client.Mount{{Source: dir, Target: "/cache"}}})
	if err != nil {
		t.Fatal(err)
	}
	plain := h.create(alice, client.SessionCreate{})
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { external_directory = "deny" }`) })
	for _, tt := range []struct {
		session string
		want    client.Code
	}{{mounted.ID, client.CodeDenied}, {plain.ID, ""}} {
		h.host.box(tt.session).prepared = &run.Prepared{Targets: []run.Target{{Asked: "/cache/x", Path: "/cache/x", Kind: "file", Exists: true}}}
		if c := h.call(tt.session, readCall("/cache/x")); c.Error == nil && tt.want != "" || c.Error != nil && c.Error.Code != tt.want {
			t.Errorf("got %+v, want %q", c.Error, tt.want)
		}
	}
	got, err := h.replayer().Replay(t.Context(), root, client.PolicyReplay{Rules: `permission = { external_directory = "allow" }`})
	if err != nil || got.Calls != 2 || len(got.Changes) != 1 || got.Changes[0].SessionID != mounted.ID || got.Changes[0].Now != "allow" {
		t.Errorf("replayed: %+v, %v", got, err)
	}
}

func TestReplay(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, explainedRules)
	h.open()
	s, other := h.create(alice, client.SessionCreate{}), h.create(bob, client.SessionCreate{})
	h.call(s.ID, bashCall("git status"))
	h.call(s.ID, bashCall("git push"))
	h.call(s.ID, readCall("x"))
	c, a := h.waiting(s.ID, "ls")
	h.answer(a, once)
	h.finished(c.ID)
	if _, err := h.m.calls.Call(t.Context(), bob, other.ID, bashCall("git status"), call.Options{}); err != nil {
		t.Fatal(err)
	}
	replay := func(r client.PolicyReplay) string {
		t.Helper()
		got, err := h.replayer().Replay(t.Context(), root, r)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, ch := range got.Changes {
			var in struct{ Command string }
			_ = json.Unmarshal(ch.Input, &in)
			all = append(all, in.Command+": "+ch.Was+" "+ch.WasRule+" → "+ch.Now+" "+ch.NowRule)
		}
		return strings.Join(append(all, strings.Repeat("I", got.Calls)), "\n")
	}
	const same = explainedRules
	if got := replay(client.PolicyReplay{Rules: same}); got != "IIIII" {
		t.Errorf("under the same rules: %s", got)
	}
	other1 := "[permission.bash]\n\"*\" = \"allow\"\n\"git *\" = \"ask\"\n"
	want := "ls: ask config.toml:3 → allow new.toml:2\ngit push: deny config.toml:5 → ask new.toml:3\ngit status: allow config.toml:4 → ask new.toml:3\nIIII"
	if got := replay(client.PolicyReplay{Rules: other1, Name: "new.toml", Session: s.ID, Tenant: "a", Since: "1h"}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := replay(client.PolicyReplay{Rules: other1, Limit: 1, Tenant: "a"}); !strings.HasPrefix(got, "ls: ") || !strings.HasSuffix(got, "\nI") {
		t.Errorf("one call: %s", got)
	}
	// A program is judged by the path that led to it when it was called.
	h.call(s.ID, client.CallCreate{Tool: "bash", Input: json.RawMessage(`{"command":"git push; ./x.sh","workdir":"sub"}`)})
	for path, want := range map[string]string{"./sub/x.sh": "→ allow rules:3", "./x.sh": "I"} {
		byPath := "[permission.bash]\n\"*\" = \"deny\"\n\"git push\" = \"allow\"\n\"" + path + "\" = \"allow\"\n"
		if got := replay(client.PolicyReplay{Rules: byPath, Session: s.ID, Tenant: "a", Limit: 1}); !strings.Contains(got, want) || want == "I" && got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	h.reload(func(set *Settings) { set.Approvals.None = true })
	if got := replay(client.PolicyReplay{Rules: "permission = { bash = \"ask\" }", Tenant: "b"}); !strings.Contains(got, "allow config.toml:4 → deny rules:1") {
		t.Errorf("where nobody answers: %s", got)
	}
	for _, r := range []client.PolicyReplay{
		{Rules: "permission = ["},
		{Rules: "", Since: "soon"},
		{Limit: -1},
		{Limit: 100_001},
		{Session: "nonsense"},
		{Rules: strings.Repeat("#", 1<<20+1)},
	} {
		if _, err := h.replayer().Replay(t.Context(), root, r); codeOfErr(err) != client.CodeInvalidRequest && codeOfErr(err) != client.CodeNotFound {
			t.Errorf("%.40v: %v", r, err)
		}
	}
	if _, err := h.replayer().Replay(t.Context(), alice, client.PolicyReplay{}); codeOfErr(err) != client.CodeForbidden {
		t.Errorf("for everybody: %v", err)
	}
	// A profile that the other rules do not have, and one that is theirs alone.
	quiet := h.create(alice, client.SessionCreate{Profile: "quiet"})
	h.call(quiet.ID, bashCall("git status"))
	got, err := h.replayer().Replay(t.Context(), root, client.PolicyReplay{Rules: other1, Session: quiet.ID, Tenant: "a"})
	if err != nil || got.Calls != 0 || !strings.Contains(strings.Join(got.Notes, "\n"), "quiet") {
		t.Errorf("without its profile: %+v, %v", got, err)
	}
}
