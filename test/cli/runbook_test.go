package cli

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// runbook has the commands of docs/operations.md's table of alerts with what an admin must see of a session
// of another tenant when they are typed as they stand there; "" where they are about the host.
var runbook = map[string]string{
	"toolctl config check":                                  "",
	"toolctl doctor --probe":                                "probed",
	"toolctl doctor":                                        "",
	"toolctl gc --dry-run":                                  "records +ci ",
	"toolctl gc":                                            "OVER[^\n]* yes(?s:.*)toolctl gc --records frees ",
	"toolctl gc --records":                                  "records +ci [^\n]* yes",
	"toolctl image rm IMAGE":                                "in use by 1 session",
	"toolctl session list --all":                            "over .* ci",
	"toolctl session list":                                  "review .* ci",
	"toolctl session logs SESSION":                          "cat /nosuch",
	"toolctl events --type 'call.*'":                        "ci +call.error +SESSION",
	"toolctl audit tail":                                    "SESSION",
	"toolctl policy explain bash COMMAND --session SESSION": "config.toml:",
	"toolctl approvals watch":                               "SESSION",
	"toolctl top":                                           "SESSION.* ci",
	"toolctl usage":                                         "ci ",
	"toolctl network log SESSION":                           "deny +refused.example",
}

// TestRunbook types what docs/operations.md says for each alert, on a daemon whose sessions are another
// tenant's than the admin's.
func TestRunbook(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/operations.md")
	testrig.Must(t, err)
	_, table, _ := strings.Cut(string(manual), "\n### What the alerts mean\n")
	table, _, _ = strings.Cut(table, "\n## ")
	config := filepath.Join(t.TempDir(), "config.toml")
	testrig.Must(t, os.WriteFile(config, []byte(`
[daemon]
socket_group = "nogroup"
[permission.bash]
"*" = "ask"
"cat *" = "allow"
"curl *" = "allow"
[network]
mode = "rules"
[permission.network]
"*.example" = "deny"
[tenant.ci]
uids = [40001]
`), 0o600))
	r := newDaemon(t, "--config", config)
	base := filepath.Join(r.dir, "base")
	testrig.Must(t, os.Mkdir(base, 0o755))
	r.toolctl(t, "image", "import", base, "--name", "base")
	user := *r
	user.uid = 40001
	for _, args := range [][]string{
		{"session", "create", "--name", "over"},
		{"call", "over", "write", `{"file_path": "a", "content": "` + strings.Repeat("a line\\n", 5000) + `"}`},
		{"session", "rm", "over"},
		{"session", "create", "--name", "review", "--net", "rules"},
		{"session", "create", "--name", "imaged", "--image", "base"},
		{"call", "review", "bash", "curl -sm 5 http://refused.example/ || cat /nosuch"},
		{"call", "review", "bash", "cat /nosuch"},
		{"call", "review", "nosuch", "{}"},
		{"call", "review", "bash", "echo asked", "--wait", "0"},
	} {
		if text, exit := user.raw(t, 200, args...); exit != 0 && !strings.Contains(text, "nosuch") {
			t.Fatalf("%q: exit %d, %s", args, exit, text)
		}
	}
	session := strings.TrimSpace(r.toolctl(t, "--tenant", "ci", "session", "show", "review", "-o", "name"))
	over := strings.TrimSpace(r.toolctl(t, "--tenant", "ci", "session", "list", "--all", "--state", "ended", "-o", "name"))
	places := strings.NewReplacer("SESSION", session, "OVER", over, "COMMAND", "ls", "IMAGE", "base", "'", "")
	// What a session has left: its outputs, as if they could not be removed when it ended.
	testrig.Must(t, os.MkdirAll(filepath.Join(r.dir, "state/output", over), 0o700))

	told := map[string]bool{}
	for _, span := range regexp.MustCompile("`(toolctl [^`]*)`").FindAllStringSubmatch(table, -1) {
		told[span[1]] = true
	}
	const probes = "toolctl doctor --probe" // the last: it makes calls, and what it finds is this machine's
	for _, command := range append(slices.DeleteFunc(slices.Sorted(maps.Keys(told)), func(c string) bool { return c == probes }), probes) {
		shows, ok := runbook[command]
		if !ok {
			t.Errorf("nothing is said here of %q", command)
		}
		args := strings.Fields(places.Replace(command))[1:]
		key, after := "", ""
		switch command {
		case "toolctl top", "toolctl approvals watch":
			key, after = "q", session
		case "toolctl audit tail": // what is installed has it where it is looked for
			args = append(args, filepath.Join(r.dir, "state/audit"))
		case "toolctl config check":
			args = append(args, config)
		}
		text, exit := r.pressed(t, 200, after, key, args...)
		if exit != 0 && args[0] != "image" && command != probes || strings.TrimSpace(text) == "" {
			t.Errorf("%q exits with %d and\n%s", command, exit, text)
		}
		if !regexp.MustCompile(places.Replace(shows)).MatchString(text) {
			t.Errorf("%q does not show %q:\n%s", command, shows, text)
		}
	}
	for command := range runbook {
		if !told[command] {
			t.Errorf("docs/operations.md does not have %q", command)
		}
	}
}
