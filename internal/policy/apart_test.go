package policy

import (
	"encoding/json"
	"testing"

	"github.com/toold/toold/internal/tool"
)

// TestLinesBelongToTheirPlace: an approval for always of one line is about that line in the worktree's
// root, with no input but the call's: elsewhere, and with input, it does something else.
func TestLinesBelongToTheirPlace(t *testing.T) {
	t.Parallel()
	set, err := Parse("rules.toml", []byte("[permission]\nexternal_directory = \"allow\"\nedit = \"allow\"\n[permission.bash]\n\"*\" = \"ask\"\n"+
		"\"cd *\" = \"allow\"\n\"echo *\" = \"allow\"\n\"cat *\" = \"allow\"\n\"cat\" = \"allow\"\n\"tail *\" = \"allow\"\n\"tee *\" = \"allow\"\n\"read *\" = \"allow\"\n\"exec *\" = \"allow\"\n\"true\" = \"allow\"\n\"bash -c *\" = \"allow\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	stack, err := set.Stack(DefaultProfile, "default")
	if err != nil {
		t.Fatal(err)
	}
	tools := tool.NewRegistry()
	for _, line := range []string{"make test", ".venv/bin/python", "rm -rf build", "npx sh", "psql db", "bc", "ssh h", "docker exec -i a sh", "at now", "m4"} {
		saved := stack.Remember([]Rule{{Permission: tool.PermissionBash, Pattern: line, Action: Allow}})
		judge := func(text, workdir string) Action {
			t.Helper()
			input, err := json.Marshal(map[string]string{"command": text, "workdir": workdir})
			if err != nil {
				t.Fatal(err)
			}
			inv, err := tools.Parse("bash", input)
			if err != nil {
				t.Fatal(err)
			}
			return saved.Judge(AsWritten(inv, nil, NoSession)).Action
		}
		for _, text := range []string{
			line, line + " ", "cd /workspace && " + line, "true && " + line, line + " | tail -3", "bash -c '" + line + "'", "if true; then " + line + "; fi",
			"cat <<E >f\nx\nE\n" + line, "(" + line + ")", "cd . && " + line, "for i in 1 2; do " + line + "; done", "cat <f; " + line, line + " & " + line,
		} {
			if got := judge(text, ""); got != Allow {
				t.Errorf("%q is saved, and %q is judged %s", line, text, got)
			}
		}
		if got := judge(line, "/workspace"); got != Allow {
			t.Errorf("%q in the worktree's root by its name: %s", line, got)
		}
		for _, text := range []string{
			"echo x | " + line, "{ " + line + "; } <f", "while true; do " + line + "; done <f", "for i in 1 2; do " + line + "; done <<<x", "(" + line + ") <<E\nx\nE\n",
			"exec <f; " + line, "exec 0<&3; " + line, "command exec <f; " + line, "echo x | { cat; " + line + "; }", "echo x | bash -c '" + line + "'", "echo x |& " + line,
			"echo x > >(" + line + ")", "cat f | if true; then " + line + "; fi", "echo $(" + line + ") <f | " + line, "cd src && " + line, "cd src; " + line,
			"cd src || cd b; " + line, "(cd src; " + line + ")", "cd /srv && " + line, "while true; do cd a; " + line + "; done", "bash -c 'cd a && " + line + "'",
		} {
			if got := judge(text, ""); got == Allow {
				t.Errorf("%q is saved, and %q is allowed", line, text)
			}
		}
		if got := judge(line, "src"); got == Allow {
			t.Errorf("%q in another directory is allowed", line)
		}
	}
}
