package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// rules parses a configuration's rules.
func rules(t *testing.T, text string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("config.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// reload changes the settings of the daemon that runs and of later ones.
func (h *house) reload(change func(*Settings)) {
	change(&h.set)
	h.m.Reload(h.set)
}

func TestCallsAreJudged(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `
[permission.bash]
"*" = "allow"
"git push *" = { action = "deny", reason = "pushes go through the merge queue" }
[permission]
read = { "*" = "allow", "**/.env" = "deny" }
[profile.careful.permission]
edit = "deny"
[[rule]]
permission = "bash"
pattern = "rm *"
action = "deny"
tenant = "a"
`)
	h.open()
	s := h.create(alice, client.SessionCreate{Permission: []client.RuleOf{{Permission: "bash", Pattern: "curl *", Action: "deny"}}})
	careful := h.create(alice, client.SessionCreate{Profile: "careful"})
	box := h.host.box(s.ID)
	for _, tt := range []struct {
		session string
		r       client.CallCreate
		want    string // in the message; "" = it runs
	}{
		{s.ID, bashCall("echo ok"), ""},
		{s.ID, bashCall("git push origin main"), `config.toml:4 (bash "git push *"): pushes go through the merge queue`},
		{s.ID, bashCall("curl x"), "session"},
		{careful.ID, bashCall("curl x"), ""},
		{s.ID, bashCall("rm x"), "config.toml:"},
		{s.ID, readCall("a/.env"), "config.toml:"},
		{s.ID, readCall("env"), ""},
		{careful.ID, writeCall("x"), "config.toml:"},
		{s.ID, writeCall("x"), ""},
	} {
		c := h.call(tt.session, tt.r)
		if tt.want == "" {
			if c.Status != client.CallCompleted || c.Permission.Verdict != "allow" || c.Permission.Rule == "" {
				t.Errorf("%s: %+v, %+v", tt.r.Input, c.Error, c.Permission)
			}
			continue
		}
		if c.Status != client.CallError || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, tt.want) ||
			!strings.HasPrefix(c.Error.Message, "denied: ") || c.Error.Hint == "" || c.Permission.Verdict != "deny" || c.Printed() != "" || !c.IsError {
			t.Errorf("%s: %+v, %+v", tt.r.Input, c.Error, c.Permission)
		}
	}
	// What is denied never reached the tool.
	if n := len(box.runs); n != 3 {
		t.Errorf("%d calls ran", n)
	}
	// The rule of this moment counts, for what begins later.
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { bash = "deny" }`) })
	if c := h.call(s.ID, bashCall("echo ok")); c.Error == nil || c.Error.Code != client.CodeDenied {
		t.Errorf("after a reload: %+v", c)
	}
	// A profile that is gone allows nothing.
	if c := h.call(careful.ID, readCall("x")); c.Error == nil || !strings.Contains(c.Error.Message, "careful") {
		t.Errorf("without its profile: %+v", c.Error)
	}
}

// TestShellReads: a command is read as the shell of its session reads it, whatever
// is configured by now.
func TestShellReads(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `permission = { bash = { "*" = "deny", "echo *" = "allow" } }`)
	h.set.Shell = []string{"/bin/sh"}
	h.open()
	const text = `echo $'\'; touch FLAG #'` // for bash one command, for others two
	old := h.create(alice, client.SessionCreate{})
	h.reload(func(set *Settings) { set.Shell = []string{"/bin/bash"} })
	young := h.create(alice, client.SessionCreate{})
	for range 2 {
		if c := h.call(old.ID, bashCall(text)); c.Error == nil || c.Error.Code != client.CodeDenied {
			t.Errorf("run by sh: %+v", c)
		}
		if c := h.call(young.ID, bashCall(text)); c.Error != nil {
			t.Errorf("run by bash: %v", c.Error)
		}
		h.kill()
		h.open()
	}
	for session, want := range map[string]string{old.ID: "deny", young.ID: "allow", "": "allow"} {
		v, err := h.m.Policy.Explain(t.Context(), alice, client.PolicyExplain{Session: session, Tool: "bash", Input: bashCall(text).Input})
		if err != nil || v.Action != want {
			t.Errorf("explain in session %q: %+v, %v", session, v, err)
		}
	}
}

// TestUnknownFile: the refusal of an edit of some file says how to go on.
func TestUnknownFile(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `permission = { edit = { "*" = "allow", "vendor/*" = "deny" } }`)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for text, want := range map[string]string{
		"f=x; echo a >$f":                 `denied: edit "$f" (which file it is, is only known at run time) by config.toml:1 (edit "vendor/*")`,
		"echo a 1<vendor/x >/dev/stdout":  `denied: edit "/dev/stdout" (which file it is, is only known at run time) by config.toml:1 (edit "vendor/*")`,
		"echo a 1<vendor/x >/dev//stdout": `denied: edit "/dev//stdout" (it is not known where this path leads) by config.toml:1 (edit "vendor/*")`,
	} {
		c := h.call(s.ID, bashCall(text))
		if c.Error == nil || c.Error.Message != want || !strings.Contains(c.Error.Hint, "name the file itself") {
			t.Errorf("%s: %+v", text, c.Error)
		}
	}
	if c := h.call(s.ID, bashCall("echo a >x <vendor/x 2>/dev/stderr")); c.Error != nil {
		t.Errorf("a file that is known: %v", c.Error)
	}
}

func writeCall(path string) client.CallCreate {
	return client.CallCreate{Tool: "write", Input: json.RawMessage(fmt.Sprintf(`{"file_path":%q,"content":"x"}`, path))}
}

func TestRequestsOf(t *testing.T) {
	h := newHouse(t)
	h.open()
	created := h.create(alice, client.SessionCreate{})
	s, err := h.m.find(alice, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	s.row.Mounts = []client.Mount{{Target: "/opt/cache"}, {Target: "/data"}}
	target := func(asked, path, kind string) run.Target {
		return run.Target{Asked: asked, Path: path, Kind: kind, Exists: true}
	}
	file := func(asked string, write bool) tool.Request {
		return tool.Request{Permission: "read", Pattern: asked, Path: asked, Write: write}
	}
	outside := func(asked string, write bool) tool.Request {
		return tool.Request{Permission: "external_directory", Pattern: asked, Path: asked, Write: write, Outside: true}
	}
	show := func(all []policy.Request) string {
		var b strings.Builder
		for _, r := range all {
			fmt.Fprintf(&b, "%s %s path=%s rel=%s save=%s opaque=%t\n", r.Permission, r.Pattern, r.Path, r.Relative, r.Save, r.Opaque)
		}
		return b.String()
	}
	read := &tool.Invocation{Tool: &tool.Definition{Name: "read"}}
	for _, tt := range []struct {
		name    string
		r       tool.Request
		targets []run.Target
		want    string
	}{
		{"no path", tool.Request{Permission: "bash", Pattern: "ls", Save: "ls *"}, nil, "bash ls path= rel= save=ls * opaque=false\n"},
		{
			"in the worktree", file("a", false),
			[]run.Target{target("a", "/workspace/b/a", "file")},
			"read a path=/workspace/b/a rel=b/a save=b/a opaque=false\n",
		},
		{
			"the worktree", file(".", false),
			[]run.Target{target(".", "/workspace", "dir")},
			"read . path=/workspace rel=. save=/workspace opaque=false\n",
		},
		{
			"a name with a wildcard", file("a*", false),
			[]run.Target{target("a*", "/workspace/a*", "file")},
			"read a* path=/workspace/a* rel=a* save= opaque=false\n",
		},
		{
			"writing beside the worktree", file("/workspaces/a", true),
			[]run.Target{target("/workspaces/a", "/workspaces/a", "file")},
			"read /workspaces/a path=/workspaces/a rel= save=/workspaces/a opaque=false\n" +
				"external_directory /workspaces/a path=/workspaces/a rel= save=/workspaces/* opaque=false\n",
		},
		{
			"a system path", file("/usr/include/a.h", false),
			[]run.Target{target("/usr/include/a.h", "/usr/include/a.h", "file")},
			"read /usr/include/a.h path=/usr/include/a.h rel= save=/usr/include/a.h opaque=false\n",
		},
		{
			"a path of the root filesystem", file("/var/lib/x", false),
			[]run.Target{target("/var/lib/x", "/var/lib/x", "file")},
			"read /var/lib/x path=/var/lib/x rel= save=/var/lib/x opaque=false\n",
		},
		{
			"writing a system path", file("/usr/a", true),
			[]run.Target{target("/usr/a", "/usr/a", "file")},
			"read /usr/a path=/usr/a rel= save=/usr/a opaque=false\n" +
				"external_directory /usr/a path=/usr/a rel= save=/usr/* opaque=false\n",
		},
		{
			"a mount below a system path", outside("/opt/cache/x", false),
			[]run.Target{target("/opt/cache/x", "/opt/cache/x", "dir")},
			"external_directory /opt/cache/x path=/opt/cache/x rel= save=/opt/cache/x opaque=false\n",
		},
		{"tmp", outside("/tmp/x", true), []run.Target{target("/tmp/x", "/tmp/x", "file")}, ""},
		{"home", outside("~/x", true), []run.Target{target("~/x", sandbox.Home+"/x", "file")}, ""},
		{"an output", outside("o", false), []run.Target{target("o", sandbox.OutputDir+"/call_1", "file")}, ""},
		{"no more than a sink", outside("/dev/null", true), []run.Target{target("/dev/null", "/dev/null", "device")}, ""},
		{
			"a link to a mount", outside("link", false),
			[]run.Target{target("link", "/data/x", "file")},
			"external_directory link path=/data/x rel= save=/data/* opaque=false\n",
		},
		{"above a mount", outside("/opt", false), []run.Target{target("/opt", "/opt", "dir")}, "external_directory /opt path=/opt rel= save=/opt opaque=false\n"},
		{"the root, above mounts", outside("/", false), []run.Target{target("/", "/", "dir")}, "external_directory / path=/ rel= save= opaque=false\n"},
		{"not resolved", outside("$X", false), nil, "external_directory $X path= rel= save= opaque=true\n"},
		{
			"not resolved to its end", outside("y", false),
			[]run.Target{target("y", "/workspace/y", "unknown")},
			"external_directory y path= rel= save= opaque=true\n",
		},
		{
			"a file that is not resolved", file("f", false), nil,
			"read f path= rel= save= opaque=true\nexternal_directory f path= rel= save= opaque=true\n",
		},
		{
			"a search",
			tool.Request{Permission: "grep", Pattern: "TODO", Path: "src", Search: true},
			[]run.Target{target("src", "/workspace/src", "dir")},
			"grep TODO path= rel= save= opaque=false\ngrep src path=/workspace/src rel=src save=src opaque=false\n",
		},
		{
			"a search of everything",
			tool.Request{Permission: "grep", Pattern: "src/x", Search: true},
			nil,
			"grep src/x path= rel= save= opaque=false\ngrep . path=/workspace rel=. save= opaque=false\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := show(s.judge.Requests(read, tool.Access{Requests: []tool.Request{tt.r, tt.r}[:1]}, &run.Prepared{Targets: tt.targets}, nil))
			if got != tt.want {
				t.Errorf("got  %swant %s", got, tt.want)
			}
		})
	}
	twice := s.judge.Requests(read, tool.Access{Requests: []tool.Request{outside("/data/x", false), outside("/data/x", true)}},
		&run.Prepared{Targets: []run.Target{target("/data/x", "/data/x", "file")}}, nil)
	if len(twice) != 1 {
		t.Errorf("one place outside is asked about %d times", len(twice))
	}
}

// A path of a command may be written as its working directory is.
func TestPathNamedLikeWorkdir(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `permission = { bash = "allow", edit = { "*" = "deny", "out" = "allow" } }`)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	input := json.RawMessage(`{"command":"echo x > out","workdir":"out"}`)
	box.prepared = &run.Prepared{Targets: []run.Target{
		{Asked: "out", Path: "/workspace/out", Kind: "dir", Exists: true},
		{Asked: "out", Path: "/workspace/main.go", Kind: "file", Exists: true},
		{Asked: ".", Path: "/workspace/out", Kind: "dir", Exists: true},
	}}
	c := h.call(s.ID, client.CallCreate{Tool: "bash", Input: input})
	if c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, "main.go") || len(box.runs) > 0 {
		t.Errorf("error %+v, runs %v", c.Error, box.runs)
	}
	v, err := h.m.Policy.Explain(t.Context(), alice, client.PolicyExplain{Session: s.ID, Tool: "bash", Input: input})
	if err != nil || v.Action != "deny" {
		t.Errorf("explained as %+v, %v", v, err)
	}
}

// What a search looks for is no place where it may search.
func TestSearchOfEverything(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `permission = { grep = { "*" = "deny", "docs/*" = "allow" }, glob = { "*" = "deny", "docs/*" = "allow" } }`)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for _, name := range []string{"grep", "glob"} {
		if c := h.call(s.ID, client.CallCreate{Tool: name, Input: json.RawMessage(`{"pattern":"docs/../**"}`)}); c.Error == nil || c.Error.Code != client.CodeDenied {
			t.Errorf("%s: %+v", name, c.Error)
		}
	}
}

// A call's environment may make another command of what the rules allow.
func TestSteeredByEnvironment(t *testing.T) {
	for _, tc := range []struct {
		rules string
		env   map[string]string
		want  client.Code
	}{
		{`{ "*" = "deny", "git *" = "allow" }`, map[string]string{"PATH": "/workspace/bin"}, client.CodeDenied},
		{`{ "*" = "deny", "git *" = "allow" }`, map[string]string{"CI": "1"}, ""},
		{`{ "*" = "deny", "git *" = "allow" }`, map[string]string{"LC_ALL": "C.UTF-8", "NO_COLOR": ""}, ""},
		{`{ "*" = "deny", "git *" = "allow" }`, map[string]string{"LC_ALL": "ja_JP.SJIS"}, client.CodeDenied},
		{`{ "*" = "deny", "git *" = "allow" }`, map[string]string{"CI": "1", "MAKEFILES": "x.mk"}, client.CodeDenied},
		{`{ "*" = "deny", "git *" = "allow" }`, map[string]string{"FOO": "1"}, client.CodeDenied},
		// What an exact rule allows is the command with no such variable.
		{`{ "*" = "deny", "git status" = "allow" }`, map[string]string{"FOO": "1"}, client.CodeDenied},
		{`{ "*" = "deny", "*git status" = "allow", "FOO=* git status" = "allow" }`, map[string]string{"FOO": "1"}, client.CodeDenied},
		{`{ "*" = "allow", "FOO=* git *" = "deny" }`, map[string]string{"FOO": "1"}, client.CodeDenied},
		{`{ "*" = "allow", "git st*" = "deny" }`, map[string]string{"FOO": "1"}, client.CodeDenied},
		{`{ "*" = "allow" }`, map[string]string{"PATH": "/workspace/bin"}, ""},
		{`{ "*" = "allow", "git push *" = "deny" }`, map[string]string{"PATH": "/workspace/bin"}, ""},
		{`{ "*" = "allow", "git status *" = "deny" }`, map[string]string{"HOME": "/workspace"}, client.CodeDenied},
	} {
		h := newHouse(t)
		h.set.Policy = rules(t, "permission = { bash = "+tc.rules+" }")
		h.open()
		s := h.create(alice, client.SessionCreate{})
		r := bashCall("git status")
		r.Env = tc.env
		c := h.call(s.ID, r)
		got := client.Code("")
		if c.Error != nil {
			got = c.Error.Code
		}
		if got != tc.want {
			t.Errorf("%s with %v: %+v", tc.rules, tc.env, c.Error)
		}
		// What is approved for always is for other environments, too.
		s2 := h.create(alice, client.SessionCreate{Permission: []client.RuleOf{{Permission: "bash", Pattern: "*", Action: "ask"}}})
		if tc.want == "" && tc.env["PATH"] != "" {
			_, a := h.waitingFor(alice, s2.ID, r)
			for _, q := range a.Requests {
				if q.Save != "" {
					t.Errorf("offers to save %q", q.Save)
				}
			}
		}
	}
}
