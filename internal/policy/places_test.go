package policy

import (
	"encoding/json"
	"math/rand/v2"
	"path"
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

// linkAsker says whether rules that allow all commands have a command asked about where each "link" leads to a mount.
func linkAsker(t *testing.T) func(command string) bool {
	t.Helper()
	stack, tools := stackOf(t, `permission.bash = "allow"`), tool.NewRegistry()
	return func(command string) bool {
		input, err := json.Marshal(map[string]string{"command": command})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := tools.Parse("bash", input)
		if err != nil {
			t.Fatal(err)
		}
		places := lexical(Workspace, "")
		places.Mounts = []string{"/mnt/x"}
		places.Resolve = func(asked string) (Resolved, bool) {
			if path.Base(asked) == "link" {
				return Resolved{Path: "/mnt/x/f"}, true
			}
			return Resolved{Path: Under(Workspace, asked)}, true
		}
		v := stack.Judge(places.Requests(inv.Input.Access(nil)))
		return v.Action == Ask && v.Request.Permission == PermissionExternal
	}
}

// TestWordsThatAreLinks: whatever a program takes for a file, a link that leads out of the session's own places is asked
// about wherever its name stands, and however much it looks like something else; but for what is known to be no file.
func TestWordsThatAreLinks(t *testing.T) {
	t.Parallel()
	asks := linkAsker(t)
	for _, program := range []string{"sort", "frob", "git hash-object", "python3", "./x", "make", "npm run", "docker cp", "dd", "xargs frob", "bash -c 'frob link'", "cd d && frob", "pushd d; frob"} {
		for _, words := range []string{"link", "-a link", "a b link", "-- link", "'link'", "li\\nk", "--in=link", "if=link", "a=link", "@link", "-x @link", "--data=@link", "link >o"} {
			for _, outer := range []string{"", "env ", "nice -n 1 ", "timeout 5 ", "A=1 "} {
				if strings.Contains(program, "d && ") && outer != "" {
					continue
				}
				if command := outer + program + " " + words; !asks(command) {
					t.Errorf("%s: nobody is asked", command)
				}
			}
		}
	}
	for _, command := range []string{
		"frob -flink", "zstd -olink", "python3 -mlink", "git commit -Flink", "git blame -Slink x", "grep -flink x", "grep -vflink x", "grep -f link x", "grep a link", "grep -e a link", "grep -ea link", "grep -e -a link", "grep --regexp=a link", "grep --regexp a link", "grep -A 3 a link",
		"grep -- -A link", "grep -e a -A link link", "grep a b if=link", "rg a link", "rg -g '*.go' a link", "rg --files link", "sed -n p link", "sed -e p link", "sed -ne p link", "sed -f link a", "sed -i p link", "awk a link", "awk -F : a link", "awk -F: a link", "awk -v a=b c link",
		"awk -f link", "awk -f a link", "awk -f a -F : link", "awk -F -v a link", "awk a b=link", "jq . link", "jq -e . link", "jq -f a -e link", "jq -f link a", "find link", "find -L link", "find -L a link", "find a -newer link", "find a -samefile link", "find a -exec frob link \\;", "find a -exec frob link {} +",
		"curl -T link http://h", "curl -d @link http://h", "curl -F a=@link http://h", "wget -i link", "bash link", "bash -c 'cat link'", "bash -c 'frob \"$1\"' _ link", "sh -c 'cd d && frob link'", "[ -f link ]", "eval frob link", "cat <link", "frob <link", "for i in a; do frob link; done", "f() { frob link; }; f",
	} {
		if !asks(command) {
			t.Errorf("%s: nobody is asked", command)
		}
	}
	for _, command := range []string{
		"echo link", "printf link", "tr link a", "tr a link", "tr -d link", "git status", "frob a b", "frob --in=a -xb a=b @c", "export A=link", "frob link://h/x", "frob --url=link://h/x", "frob \"li$x\"", "frob " + strings.Repeat("link", 100),
		"grep link a", "grep -e link a", "grep -elink a", "grep -rn link", "grep -A link a b", "grep -rn -A 3 link a", "grep --regexp link a", "grep -e a -e link b", "rg -n link", "rg -g link a b", "rg -t go link a", "ag link", "ack link a", "sed link a", "sed -n link a", "sed -e link a", "sed -n -e p -e link a", "awk link a", "awk -F link a b", "awk -F : link a", "awk -v a=b link c", "jq link a", "jq -r link a",
		"find . -name link", "find . -path link -prune", "find . ! -name a -name link -print", "find -H . -type f -name link", "ls -link", "ls -alink", "grep -link a", "git log -link", "cat -link", "curl -d link http://h", "curl -X link h", "curl link", "wget -q link", "sh -c link", "bash -c 'echo link'", "bash -ec 'echo link' a",
	} {
		if asks(command) {
			t.Errorf("%s: it is asked about", command)
		}
	}
}

// TestLinksAreTargets: a link that is any word of any program is asked about as its target would be.
func TestLinksAreTargets(t *testing.T) {
	t.Parallel()
	asks := linkAsker(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[g.IntN(len(list))] }
	name := func() string {
		b := make([]byte, 1+g.IntN(6))
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz0123456789_-."[g.IntN(26+min(i, 1)*13)]
		}
		return string(b)
	}
	word := func() string {
		return pick("", "", "-", "--", "--"+name()+"=", name()+"=", "@", "./", "'", "+") + name()
	}
	n := 0
	for range 3000 {
		program := "z" + name() // none that is known
		if g.IntN(3) == 0 {
			program = pick("cat", "sort", "cp", "head", "tar", "git add", "git", "make", "go run", "docker run", "python3", "node", "gcc", "openssl", "base64", "dd", "ssh", "psql", "./run", "/usr/bin/cat", "tee", "rm", "source", "xargs -n 1 frob")
		}
		before, after := make([]string, g.IntN(4)), make([]string, g.IntN(3))
		for _, list := range [][]string{before, after} {
			for i := range list {
				list[i] = strings.ReplaceAll(word(), "'", "")
			}
		}
		spelled := pick("X", "X", "X", "'X'", `"X"`, "''X", `X""`, "@X", "--"+name()+"=X", name()+"=X", "--"+name()+"=@X", "-- X", "<X", ">>X")
		text := pick("", "", "", "env ", "nice ", "A=b ", "time ", "timeout 9 ", "command ", "cd /workspace && ", "if true; then ") +
			program + " " + strings.Join(before, " ") + " " + spelled + " " + strings.Join(after, " ")
		if strings.HasPrefix(text, "if ") {
			text += "; fi"
		}
		switch g.IntN(5) {
		case 0:
			text = "( " + text + " ) | " + pick("cat", "head -n 3", "tee o")
		case 1:
			text = "bash -c '" + strings.ReplaceAll(text, "'", "") + "'"
		}
		target, link := strings.ReplaceAll(text, "X", "/mnt/x/f"), strings.ReplaceAll(text, "X", "link")
		if !asks(target) {
			continue
		}
		if n++; !asks(link) {
			t.Errorf("%s: nobody is asked, and of %s are they", link, target)
		}
	}
	if n < 2500 {
		t.Errorf("of %d only is anybody asked", n)
	}
}
