package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool"
)

// TestReading: what the sandbox itself consists of is read without a question. A
// mount of the session, and what leads to one, is not.
func TestReading(t *testing.T) {
	for _, tt := range []struct {
		mounts string
		free   string // paths that nothing is asked about
		asked  string
	}{
		{
			"", "/ /root /root/x /var/lib/dpkg/status /run /run/toold /run/toold/agent /srv /mnt/x /home /home/other /usr/bin/x /proc/self /dev/x /workspaces/x",
			"",
		},
		{
			"/mnt/x", "/root /mn /mnt2 /mnt/xy /mnt/y /usr /workspace /workspace/mnt/x /home/tool",
			"/ /mnt /mnt/x /mnt/x/y",
		},
		{
			"/a/b /a/b/c /usr/local/x", "/a/c /usr/bin /usr/local/y",
			"/ /a /a/b /a/b/c /a/b/c/d /a/b/d /usr /usr/local /usr/local/x",
		},
		// What is mounted in the worktree is the session's own.
		{"/workspace/x", "/ /workspace /workspace/x/y /mnt", ""},
	} {
		places := lexical(Workspace, "")
		places.Mounts = strings.Fields(tt.mounts)
		requests := func(p string, write bool) []Request {
			return places.Requests(tool.Access{Requests: []tool.Request{{Permission: PermissionExternal, Path: p, Outside: true, Write: write}}})
		}
		for p := range strings.FieldsSeq(tt.free) {
			if got := requests(p, false); len(got) > 0 {
				t.Errorf("mounts %q: reading %s asks for %+v", tt.mounts, p, got)
			}
			if own := p == Home || below(p, Workspace); len(requests(p, true)) != 1 && !own {
				t.Errorf("mounts %q: nothing is asked about writing %s", tt.mounts, p)
			}
		}
		for p := range strings.FieldsSeq(tt.asked) {
			if got := requests(p, false); len(got) != 1 || got[0].Path != p {
				t.Errorf("mounts %q: reading %s asks for %+v", tt.mounts, p, got)
			}
		}
	}
}

// TestAsWritten: without a sandbox, too, a session's mounts are asked about.
func TestAsWritten(t *testing.T) {
	tools := tool.NewRegistry()
	for _, tt := range []struct {
		command, workdir string
		mounts           []string
		want             string // paths of requests for external_directory
	}{
		{"ls /; cat /var/x ../x", "", nil, ""},
		{"ls /; cat /mnt/x/y", "", []string{"/mnt/x"}, "/ /mnt/x/y"},
		{"ls x", "/mnt", []string{"/mnt/x"}, "/mnt /mnt/x"},
		{"echo > /var/x", "", nil, "/var/x"},
		{"echo > x", "/var", nil, "/var/x"},
	} {
		input, err := json.Marshal(map[string]string{"command": tt.command, "workdir": tt.workdir})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := tools.Parse("bash", input)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, q := range AsWritten(inv, nil, Places{Mounts: tt.mounts}) {
			if q.Permission == PermissionExternal {
				got = append(got, q.Path)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s in %q with %q asks for %q, want %q", tt.command, tt.workdir, tt.mounts, got, tt.want)
		}
	}
}

// TestAlone: about a path that is only known at run time the built-in line asks where it may be a
// person's, and every other line as it says.
func TestAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rules          string
		session        []Rule
		alone, reaches Action
	}{
		{"", nil, Allow, Ask},
		{`permission = { "*" = "deny" }`, nil, Allow, Ask},
		{`permission.external_directory = "ask"`, nil, Ask, Ask},
		{`permission.external_directory = "deny"`, nil, Deny, Deny},
		{`permission.external_directory = "allow"`, nil, Allow, Allow},
		{`permission.external_directory = { "/srv/x/*" = "deny" }`, nil, Deny, Deny},
		{`permission.external_directory = { "/srv/x/*" = "ask" }`, nil, Ask, Ask},
		{`permission.external_directory = { "/srv/x/*" = "allow" }`, nil, Allow, Ask},
		{`profile.build.permission.external_directory = "deny"`, nil, Deny, Deny},
		{`tenant.default.permission.external_directory = { "/srv/*" = "ask" }`, nil, Ask, Ask},
		{"", []Rule{{Permission: PermissionExternal, Pattern: "/srv/*", Action: Deny}}, Deny, Deny},
	} {
		set, err := Parse("rules.toml", []byte(tt.rules))
		if err != nil {
			t.Fatal(err)
		}
		stack, err := set.Stack(DefaultProfile, "default")
		if err != nil {
			t.Fatal(err)
		}
		stack = stack.With(Ceiling{"session", tt.session})
		for alone, want := range map[bool]Action{true: tt.alone, false: tt.reaches} {
			places := lexical(Workspace, "")
			places.Alone = alone
			for _, r := range []tool.Request{
				{Permission: PermissionExternal, Pattern: "$f", Outside: true},
				{Permission: PermissionExternal, Pattern: "$f", Outside: true, Write: true},
			} {
				requests := places.Requests(tool.Access{Requests: []tool.Request{r}})
				if v := stack.Judge(requests); v.Action != want || len(requests) != 1 {
					t.Errorf("%s, %v, alone %v: %+v, want %s", tt.rules, tt.session, alone, v, want)
				}
			}
			// Where it is known, that the session is alone makes no difference.
			if v := stack.Judge(places.Requests(tool.Access{Requests: []tool.Request{{Permission: PermissionExternal, Pattern: "/var/x", Path: "/var/x", Outside: true, Write: true}}})); v.Action == Allow && tt.reaches != Allow && tt.rules == "" {
				t.Errorf("alone %v: a known path: %+v", alone, v)
			}
		}
	}
}

// No narrow rule allows a command that is given input, also not one of the very text.
func TestStdinAndNarrowRules(t *testing.T) {
	set, err := Parse("rules.toml", []byte("[permission.bash]\n\"*\" = \"ask\"\n\"python3\" = \"allow\"\n\"bash *\" = \"allow\"\n\"cat *\" = \"allow\"\n\"rm *\" = \"deny\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	stack, err := set.Stack("", "default")
	if err != nil {
		t.Fatal(err)
	}
	stack = stack.Remember([]Rule{{Permission: "bash", Pattern: "python3"}, {Permission: "bash", Pattern: "cat"}})
	for _, tt := range []struct {
		command, stdin string
		want           Action
	}{
		{"python3", "", Allow},
		{"python3", "print(1)", Ask},
		{"bash -s", "rm x", Ask},
		{"cat", "x", Ask},
		{"rm x", "y", Deny},
	} {
		input, err := json.Marshal(map[string]string{"command": tt.command, "stdin": tt.stdin})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := tool.NewRegistry().Parse("bash", input)
		if err != nil {
			t.Fatal(err)
		}
		if v := stack.Judge(AsWritten(inv, nil, NoSession)); v.Action != tt.want {
			t.Errorf("%s with %q: %+v, want %s", tt.command, tt.stdin, v, tt.want)
		}
	}
}

// TestGranted: no built-in line asks about a mount that the only user has asked for; a line of theirs
// decides as it does elsewhere.
func TestGranted(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]Action{
		"": Allow, `permission = { "*" = "deny" }`: Deny, `permission.external_directory = "ask"`: Ask,
		`permission.external_directory = { "/mnt/x/*" = "deny" }`: Deny, `permission.external_directory = { "/mnt/*" = "ask" }`: Ask,
	} {
		set, err := Parse("rules.toml", []byte(rules))
		if err != nil {
			t.Fatal(err)
		}
		stack, err := set.Stack(DefaultProfile, "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"cat /mnt/x/f", "ls /mnt/x/", "echo a > /mnt/x/f"} {
			input, err := json.Marshal(map[string]string{"command": command})
			if err != nil {
				t.Fatal(err)
			}
			inv, err := tool.NewRegistry().Parse("bash", input)
			if err != nil {
				t.Fatal(err)
			}
			mounts := Places{Mounts: []string{"/mnt/x"}}
			if v := stack.Judge(AsWritten(inv, nil, mounts)); v.Action == Allow {
				t.Errorf("%q, %s: allowed for all", rules, command)
			}
			mounts.Alone, mounts.Granted = true, true
			if v := stack.Judge(AsWritten(inv, nil, mounts)); v.Action != want && (want != Deny || !strings.HasSuffix(command, "/")) {
				t.Errorf("%q, %s: %+v, want %s", rules, command, v, want)
			}
		}
	}
	places := lexical(Workspace, "")
	places.Mounts, places.Granted = []string{"/mnt/x"}, true
	r := places.Requests(tool.Access{Requests: []tool.Request{{Permission: PermissionExternal, Pattern: "/var/x", Path: "/var/x", Outside: true, Write: true}}})
	if len(r) != 1 || r[0].Confined {
		t.Errorf("of what is no mount: %+v", r)
	}
}
