package shell

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// ways are how a text gives the variable NAME to the program git.
var ways = []string{
	"%s=%s git status",
	"CI=1 %s=%s git status",
	"env %s=%s git status",
	"env -u X CI=1 nice env %s=%s git status",
	"nice env -- %s=%s git status",
	"sudo %s=%s git status",
	"export %s=%s; git status",
	"export CI=1 %s=%s; git status",
	"declare -x %s=%s; git status",
	"typeset -gx %s=%s; git status",
	"sh -c '%s=%s git status'",
	"echo $(%s=%s git status)",
}

// TestPassedVariables has what programs get as their environment.
func TestPassedVariables(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		harmless    bool
	}{
		{"LANG", "C", true},
		{"LC_ALL", "en_US.UTF-8", true},
		{"TZ", "Europe/Berlin", true},
		{"TERM", "xterm-256color", true},
		{"NO_COLOR", "1", true},
		{"CI", "true", true},
		{"CI", "", true},
		{"DEBUG", "a:b,-c", true},
		{"RUST_LOG", "info,hyper=debug", true},
		{"GOOS", "linux", true},
		// A value that is more than such a variable has.
		{"LANG", "ja_JP.SJIS", false},
		{"LC_ALL", "../../workspace/x.UTF-8", false},
		{"TZ", "/workspace/x", false},
		{"TZ", ":x", false},
		{"TERM", "../x", false},
		{"CI", "a/b", false},
		{"CI", "\"$x\"", false},
		{"DEBUG", "$(:)", false},
		{"LC_x", "C", false},
		{"LANG+", "C", false},
		// Variables that name programs, libraries, files and servers.
		{"MAKEFILES", "x.mk", false},
		{"RIPGREP_CONFIG_PATH", "x", false},
		{"GOCACHEPROG", "x", false},
		{"COMPILER_PATH", ".", false},
		{"GCC_EXEC_PREFIX", "./", false},
		{"PATH", ".", false},
		{"LANGUAGE", "../../../../workspace/x", false},
		{"GOFLAGS", "-toolexec=x", false},
		{"http_proxy", "x", false},
		// Names that nothing is known of.
		{"FOO", "1", false},
		{"x", "1", false},
	} {
		for _, way := range ways {
			if strings.Contains(way, "env") && strings.HasSuffix(tc.name, "+") {
				continue
			}
			text := fmt.Sprintf(way, tc.name, tc.value)
			r := Scan(text, Options{Home: "/home/tool"})
			if r.Opaque == tc.harmless {
				t.Errorf("%q: opaque is %v: %s", text, r.Opaque, r.Why)
			}
			if tc.value != "$(:)" && !strings.Contains(fmt.Sprint(r.Commands), "{git status") {
				t.Errorf("%q: git status is not among %v", text, r.Commands)
			}
		}
	}
}

// TestShellVariables has what stays in the shell, where it steers nothing.
func TestShellVariables(t *testing.T) {
	for _, tc := range []struct {
		text   string
		opaque bool
	}{
		{"x=1; echo $x", false},
		{"VERSION=$(git describe); echo \"$VERSION\"", false},
		{"LC_ALL=C; sort x", false},
		{"declare -r x=1; local y=2; readonly z; echo $x", false},
		{"for f in a b; do echo $f; done", false},
		{"LC_ALL=ja_JP.SJIS; echo x", true},
		{"x=1; export x; echo $x", true},
		{"export CI; echo x", true},
		{"PATH=.; ls", true},
		{"http_proxy=x; curl a", true},
	} {
		if r := Scan(tc.text, Options{}); r.Opaque != tc.opaque {
			t.Errorf("%q: opaque is %v: %s", tc.text, r.Opaque, r.Why)
		}
	}
}

// TestDocsNameHarmlessVariables: docs/policy.md has the table that Harmless reads.
func TestDocsNameHarmlessVariables(t *testing.T) {
	text, err := os.ReadFile("../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| variables | values |\n|---|---|\n"
	for _, h := range harmlessVariables {
		table += "| `" + strings.Join(h.names, "`, `") + "` | " + h.says + " |\n"
	}
	if !strings.Contains(string(text), "\n\n"+table+"\n") {
		t.Errorf("docs/policy.md does not have the table\n%s", table)
	}
}
