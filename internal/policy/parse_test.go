package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tomltext"
	"github.com/toold/toold/internal/tool/run/readrule"
)

func TestParseProblems(t *testing.T) {
	for _, tt := range []struct{ name, doc, want string }{
		{"unquoted dot", "[permission.edit]\nsrc.go = 'allow'\n", `r:2: permission.edit.src.go: a pattern with a dot must stand in quotes: write "src.go"`},
		{"unquoted dot before action", "[permission.edit]\nplan.action = 'allow'\n", `r:2: permission.edit.plan.action: a pattern with a dot must stand in quotes: write "plan.action"`},
		{"action for a permission", "[permission]\nbash = { action = 'deny', reason = 'no' }\n", `r:2: permission.bash: a permission's table has patterns: write bash = { "*" = { action = … } } for an action with a reason`},
		{"action", "[permission]\nbash = 'Deny'\n", `r:2: permission.bash: "Deny" is not one of "allow", "ask", "deny"`},
		{"action of a pattern", "[permission.bash]\n'*' = ''\n", `r:2: permission.bash."*": "" is not one of "allow", "ask", "deny"`},
		{"action in a table", "[permission.bash]\n'*' = { action = 'no' }\n", `r:2: permission.bash."*": "no" is not one of "allow", "ask", "deny"`},
		{"no action", "[permission.bash]\n'*' = { reason = 'x' }\n", `r:2: permission.bash."*": want { action = "allow", "ask" or "deny", reason = "…" }`},
		{"reason of two lines", "[permission.bash]\n'*' = { action = 'deny', reason = \"a\\nb\" }\n", `r:2: permission.bash."*": a reason is one line of printable text, at most 500 bytes`},
		{"reason that is none", "[permission.bash]\n'*' = { action = 'deny', reason = 1 }\n", `r:2: permission.bash."*": a reason is text`},
		{"number", "[permission]\nbash = 1\n", `r:2: permission.bash: want an action ("allow", "ask", "deny") or a table of patterns, not 1`},
		{"list", "[permission.bash]\n'*' = ['allow']\n", `r:2: permission.bash."*": want an action ("allow", "ask", "deny") or { action = …, reason = … }, not a list`},
		{"no table", "permission = 'allow'\n", `r:1: permission is a table: write [permission]`},
		{"array of tables", "[[permission]]\nbash = 'allow'\n", `r:1: permission is a table: write [permission]`},
		{"case of a permission", "[permission]\nBash = 'deny'\n", `r:2: permission: Bash: permissions are case-sensitive, write bash`},
		{"judged as edit", "[permission]\nwrite = 'deny'\n", `r:2: permission: write is judged as edit: write edit, or the rule would never match`},
		{"no name", "[permission]\n'Bash(git *)' = 'deny'\n", `r:2: permission: "Bash(git *)" is not a permission: a name has letters, digits, _, -, . and the wildcards * and ?, at most 128`},
		{"empty name", "[permission]\n'' = 'deny'\n", `r:2: permission: a permission is empty: write "*" for every tool's`},
		{"empty pattern", "[permission.bash]\n'' = 'deny'\n", `r:2: permission.bash."": a pattern is empty: write "*" for everything`},
		{"NUL", "[permission.bash]\n\"a\\u0000\" = 'deny'\n", `r:2: permission.bash."a\x00": a pattern is text in UTF-8 without NUL bytes`},
		{"stars", "[permission.bash]\n'" + strings.Repeat("*", 33) + "' = 'deny'\n", `r:2: permission.bash."` + strings.Repeat("*", 33) + `": a pattern has 33 times *; at most 32`},
		{"unknown section", "[premission]\nx = 1\n", `r:1: unknown key premission: did you mean permission?`},
		{"section in another case", "[Permission]\nx = 1\n", `r:1: unknown key Permission: names are case-sensitive, write permission`},
		{"rule without a pattern", "[[rule]]\npermission = 'bash'\naction = 'deny'\n", `r:1: a rule needs pattern`},
		{"rule's key", "[[rule]]\npermission = 'bash'\npattern = '*'\naction = 'deny'\ntenants = 'ci'\n", `r:5: unknown key tenants of a rule: did you mean tenant?`},
		{"rule's type", "[[rule]]\npermission = 'bash'\npattern = 1\naction = 'deny'\n", `r:3: rule.pattern: want text, not 1`},
		{"rule's permission", "[[rule]]\npermission = 'Edit'\npattern = '*'\naction = 'deny'\n", `r:1: rule: Edit: permissions are case-sensitive, write edit`},
		{"rule for nobody", "[[rule]]\npermission = 'edit'\npattern = '*'\naction = 'deny'\nprofile = ''\n", `r:1: rule.profile is empty: leave it out for all`},
		{"one rule", "[rule]\npermission = 'bash'\n", `r:1: rule is an array of tables: write [[rule]]`},
		{"profile", "profile = 1\n", `r:1: profile is a table of tables: write [profile.NAME]`},
		{"profile of no table", "[profile]\nx = 1\n", `r:2: profile.x is a table: write [profile.x]`},
		{"profile's name", "[profile.'A b']\n", `r:1: profile."A b": a profile's name is 1 to 63 of a-z, 0-9, _ and -, and begins with a letter or digit`},
		{"profile's key", "[profile.x]\npermissions = {}\n", `r:2: unknown key profile.x.permissions: did you mean permission?`},
		{"profile's later key", "[profile.x]\ntruncate = {}\ntools = []\n", `r:3: unknown key profile.x.tools: remove it`},
		{"profile's description", "[profile.x]\ndescription = 1\n", `r:2: profile.x.description: want one line of text, at most 500 bytes`},
		{"tenant's profiles", "[tenant.a]\nprofiles = 'plan'\n", `r:2: tenant.a.profiles: want a list of profiles in [ ], not "plan"`},
		{"tenant's profile", "[tenant.a]\nprofiles = ['plan', 'biuld']\n", `r:2: tenant.a.profiles: there is no profile "biuld": did you mean build?`},
		{"tenant's permission", "[tenant.a]\npermission = 'ask'\n", `r:2: tenant.a.permission is a table: write [tenant.a.permission]`},
		{"test without a tool", "[[test]]\nexpect = 'allow'\n", `r:1: a test needs tool`},
		{"test's input", "[[test]]\ntool = 'bash'\ninput = 'ls'\nexpect = 'allow'\n", `r:1: test.input: want a table, such as { command = "git status" }, not "ls"`},
		{"test's action", "[[test]]\ntool = 'bash'\ninput = {}\nexpect = 'yes'\n", `r:1: test.expect: "yes" is not one of "allow", "ask", "deny"`},
		{"syntax alone", "permission = 3\nx = = 1\n", `r:2: expected value but found '=' instead`},
		{"twice", "[permission]\nbash = 'ask'\nbash = 'deny'\n", `r:3: Key 'permission.bash' has already been defined.`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("r", []byte(tt.doc))
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse("r", []byte("[permission]\nBash = 'ask'\nread = 'no'\n[[rule]]\nx = 1\n[profile.a.permission.edit]\na.b = 'ask'\n"))
	var lines []int
	for _, p := range tomltext.Problems(err) {
		lines = append(lines, p.Line)
	}
	if want := []int{2, 3, 4, 4, 4, 5, 7}; !slices.Equal(lines, want) {
		t.Errorf("problems on lines %v, want %v:\n%v", lines, want, err)
	}
}

func TestTooManyRules(t *testing.T) {
	var b strings.Builder
	b.WriteString("[permission.bash]\n")
	for i := range maxRules + 5 {
		fmt.Fprintf(&b, "\"%d\" = \"ask\"\n", i)
	}
	_, err := Parse("r", []byte(b.String()))
	if want := fmt.Sprintf("r:%d: there are more than %d rules", maxRules+2, maxRules); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestExpectations: a file whose tests fail is refused, and says why.
func TestExpectations(t *testing.T) {
	const rules = `[permission.bash]
"*" = "ask"
"git *" = "allow"
"git push *" = "deny"
[tenant.ci.permission]
read = "ask"
`
	for _, tt := range []struct{ name, test, want string }{
		{"holds", "tool = 'bash'\ninput = { command = 'git push origin main' }\nexpect = 'deny'\n", ""},
		{"names its rule", "tool = 'bash'\ninput = { command = 'git push origin main' }\nexpect = 'deny'\nrule = 'bash \"git push *\"'\n", ""},
		{
			"another rule", "tool = 'bash'\ninput = { command = 'git push origin main' }\nexpect = 'deny'\nrule = 'bash \"git *\"'\n",
			`r:7: test: bash {"command":"git push origin main"} is deny by r:4 (bash "git push *"), want the rule bash "git *"`,
		},
		{
			"fails", "tool = 'bash'\ninput = { command = 'git push origin main' }\nexpect = 'allow'\n",
			`r:7: test: bash {"command":"git push origin main"} is deny by r:4 (bash "git push *"), want allow`,
		},
		{"path", "tool = 'read'\ninput = { file_path = 'app/.env' }\nexpect = 'ask'\n", ""},
		{"outside", "tool = 'write'\ninput = { file_path = '../x', content = '' }\nexpect = 'ask'\nrule = 'external_directory \"*\"'\n", ""},
		{"workdir", "tool = 'bash'\ninput = { command = 'git log > x', workdir = '/srv' }\nexpect = 'ask'\nrule = 'external_directory \"*\"'\n", ""},
		{"not known before", "tool = 'bash'\ninput = { command = 'git log > src/$X' }\nexpect = 'ask'\nrule = 'external_directory \"*\"'\n", ""},
		{"tenant", "tool = 'read'\ninput = { file_path = 'x' }\nexpect = 'ask'\ntenant = 'ci'\n", ""},
		{"profile", "tool = 'edit'\ninput = { file_path = 'x', old_string = 'a', new_string = 'b' }\nexpect = 'deny'\nprofile = 'plan'\n", ""},
		{"headless", "tool = 'bash'\ninput = { command = 'ls' }\nexpect = 'deny'\nprofile = 'ci'\n", ""},
		{"no input", "tool = 'list'\nexpect = 'allow'\n", ""},
		{
			"unknown profile", "tool = 'list'\nexpect = 'allow'\nprofile = 'x'\n",
			`r:7: test: there is no profile "x" for tenant default; it may use build, ci, explore, general, plan`,
		},
		{"unknown tool", "tool = 'shall'\nexpect = 'allow'\n", `r:7: test: there is no tool called "shall"`},
		{"wrong input", "tool = 'bash'\ninput = { comand = 'ls' }\nexpect = 'allow'\n", `r:7: test: the input of bash does not fit: /comand is not a known key; did you mean "command"?; /command is required`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, err := Parse("r", []byte(rules+"[[test]]\n"+tt.test))
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "" && set.Tests() != 1:
				t.Errorf("%d tests were passed", set.Tests())
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)):
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestLint(t *testing.T) {
	for _, tt := range []struct{ name, doc, want string }{
		{"nothing", "[permission]\n'*' = 'ask'\nedit = 'allow'\n[permission.bash]\n'ls *' = 'allow'\n'ls -R *' = 'deny'\n", ""},
		{
			"shadowed", "[permission.bash]\n'git push *' = 'deny'\n'git *' = 'allow'\n",
			`r:2: bash "git push *" never decides: line 3 (bash "git *") matches all of it, and the last matching rule wins`,
		},
		{
			"shadowed by another permission", "[permission]\nedit = { 'src/*' = 'allow' }\n'*' = { '*' = 'deny' }\n",
			`r:3: * "*" stands last and undoes line 2: the last matching rule wins, so what is about everything belongs on top`,
		},
		{
			"catch-all", "[permission.bash]\n'git *' = 'allow'\n'rm *' = 'deny'\n'*' = 'ask'\n",
			`r:4: bash "*" stands last and undoes lines 2, 3: the last matching rule wins, so what is about everything belongs on top`,
		},
		{"not shadowed: doom_loop", "[permission]\ndoom_loop = 'deny'\n'*' = 'ask'\n", ""},
		{"bare command", "[permission.bash]\n'git' = 'allow'\n", `r:2: bash "git" is about the command without arguments only: write "git *" for all`},
		{"bare command on purpose", "[permission.bash]\n'git *' = 'ask'\n'git' = 'allow'\n", ""},
		{"unknown permission", "[permission]\nbahs = 'deny'\n", `r:2: no tool asks for the permission bahs: did you mean bash?`},
		{"unknown permission with a mistake", "[permission]\ndoomloop = 'deny'\n", `r:2: no tool asks for the permission doomloop: did you mean doom_loop?`},
		{"of an MCP server", "[permission]\ngithub_create_issue = 'deny'\n", ""},
		{
			"another name that denies", "[permission]\nlocal_shell = 'deny'\n",
			`r:2: local_shell "*" is taken as one of bash, for which calls of the tool ask that has this name elsewhere: write that`,
		},
		{
			"another name that allows", "[permission]\nbash = 'deny'\ntoold_bash = { 'ls *' = 'allow' }\n",
			`r:3: toold_bash "ls *" allows nothing: calls of the tool that has this name elsewhere ask for bash`,
		},
		{
			"another name is not shadowed", "[permission]\nlocal_shell = { 'x *' = 'deny' }\n'local_*' = 'allow'\n",
			"r:2: local_shell \"x *\" is taken as one of bash, for which calls of the tool ask that has this name elsewhere: write that",
		},
		{
			"all tools by their prefix", "[permission]\n'mcp__toold__g*' = 'deny'\n",
			`r:2: mcp__toold__g* "*" is taken as one of glob and grep, for which calls of the tool ask that has this name elsewhere: write that`,
		},
		{"empty", "[permission]\n", `r:1: permission is empty: it says nothing`},
		{"empty patterns", "[permission]\nbash = {}\n", `r:2: permission.bash is empty: it says nothing`},
		{"no profiles", "[tenant.a]\nprofiles = []\n", `r:2: tenant.a.profiles is empty: the tenant can make no session`},
		{
			"rule for no profile", "[[rule]]\npermission = 'edit'\npattern = '*'\naction = 'deny'\nprofile = 'pln*'\n",
			`r:1: the rule is for a profile that there is not: there are build, ci, explore, general, plan`,
		},
		{
			"tenant that is given something", "[tenant.a.permission.bash]\n'git *' = 'allow'\n'*' = 'ask'\n'ls *' = 'allow'\n",
			"r:2: bash \"git *\" allows nothing: rules of tenants can only make things stricter, and there is none above that it is an exception from\n" +
				`r:3: bash "*" stands last and undoes line 2: the last matching rule wins, so what is about everything belongs on top`,
		},
		{"tenants apart", "[tenant.a.permission]\nedit = { 'x' = 'deny' }\n[tenant.b.permission]\nedit = 'ask'\n", ""},
		{
			"one tenant", "[tenant.a.permission]\nedit = { 'x' = 'deny' }\n[[rule]]\ntenant = 'a'\npermission = 'edit'\npattern = '*'\naction = 'ask'\n",
			`r:3: edit "*" stands last and undoes line 2: the last matching rule wins, so what is about everything belongs on top`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, err := Parse("r", []byte(tt.doc))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range set.Warnings() {
				got = append(got, w.String())
			}
			if strings.Join(got, "\n") != tt.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "\n"), tt.want)
			}
		})
	}
}

// TestWholeConfiguration: the sections of others are left alone.
func TestWholeConfiguration(t *testing.T) {
	set, err := Parse("r", []byte("[daemon]\nlog = 'text'\n[tools.bash]\nopaque = 'ask'\n[tenant.a]\nuids = [1]\n[permission]\nbash = 'deny'\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := set.Stack("", "a"); err != nil || !s.Hidden("bash") {
		t.Errorf("bash is not hidden: %v", err)
	}
}

func TestProfilesOfTenants(t *testing.T) {
	set, err := Parse("r", []byte("[tenant.a]\nprofiles = ['plan', 'mine']\n[tenant.b]\nprofiles = []\n[profile.mine]\ndescription = 'does things'\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Description("mine"); got != "does things" {
		t.Errorf("description: %q", got)
	}
	if got := set.Description("x"); got != "" {
		t.Errorf("description of none: %q", got)
	}
	for _, tt := range []struct{ profile, tenant, want string }{
		{"", "default", ""},
		{"mine", "default", ""},
		{"mine", "a", ""},
		{"", "a", "tenant a may not use the profile build; it may use mine, plan"},
		{"ci", "a", "tenant a may not use the profile ci; it may use mine, plan"},
		{"plan", "b", "tenant b may not use the profile plan; it may use none: give tenant.b.profiles a name"},
		{"\x1b[2J", "a", `there is no profile "\x1b[2J" for tenant a; it may use mine, plan`},
	} {
		_, err := set.Stack(tt.profile, tt.tenant)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && got != tt.want {
			t.Errorf("%q of %s: got %v, want %s", tt.profile, tt.tenant, err, tt.want)
		}
	}
}

// FuzzParse: whatever the text is, the answer is rules that judge, or problems
// with words, and the same ones the second time.
func FuzzParse(f *testing.F) {
	for _, doc := range []string{
		"[permission]\n\"*\" = \"ask\"\n[permission.bash]\n\"git *\" = { action = \"deny\", reason = \"x\" }\n",
		"[[rule]]\npermission = \"*\"\npattern = \"?*\"\naction = \"ask\"\ntenant = \"c*\"\nprofile = \"p?an\"\n",
		"[profile.x]\ndescription = \"d\"\npermission = { read = { a = \"deny\" } }\n[tenant.a]\nprofiles = [\"x\"]\npermission.edit = \"deny\"\n",
		"[[test]]\ntool = \"bash\"\ninput = { command = \"git push\" }\nexpect = \"allow\"\n",
		"permission.bash.x.action = 'deny'\nrule = [{permission='a'}]\n[permission.\"\\u0000\"]",
	} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		set, err := Parse("f", []byte(doc))
		if err != nil {
			problems := tomltext.Problems(err)
			if len(problems) == 0 {
				t.Fatalf("an error without problems: %v", err)
			}
			for _, p := range problems {
				if p.Message == "" {
					t.Fatalf("a problem without words: %+v", p)
				}
			}
			if _, again := Parse("f", []byte(doc)); again == nil || again.Error() != err.Error() {
				t.Fatalf("first %v\nthen %v", err, again)
			}
			return
		}
		for _, profile := range set.Profiles() {
			s := set.stack(profile, "a")
			for _, q := range []Request{{Permission: "bash", Pattern: "git push"}, {Permission: "edit", Path: "/workspace/a", Relative: "a"}} {
				if v := s.Judge([]Request{q}); readrule.Strictness(v.Action) > 1 && v.Action != Deny || v.Rule == "" {
					t.Fatalf("%+v: %+v", q, v)
				}
			}
		}
	})
}
