package client_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// Identities are read as git writes them, and those that git would refuse or change are refused.
func TestParseGitIdentity(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	for _, tt := range []struct{ text, name, email string }{
		{"Ada Lovelace <ada@example.com>", "Ada Lovelace", "ada@example.com"},
		{"  Ada  <a>", "Ada", "a"},
		{"a.b (c) <ö@ü>", "a.b (c)", "ö@ü"},
		{text: ""},
		{text: "Ada"},
		{text: "Ada ada@example.com"},
		{text: "<a@b>"},
		{text: "Ada <>"},
		{text: "Ada <a@b> more"},
		{text: "Ada <a@b"},
		{text: "A<da <a@b>"},
		{text: "A\nda <a@b>"},
		{text: ". <a@b>"},
		{text: "\xff <a@b>"},
		{text: strings.Repeat("a", 257) + " <a@b>"},
	} {
		i, err := client.ParseGitIdentity(tt.text)
		if (err == nil) != (tt.name != "") {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		if err != nil {
			continue
		}
		if i.Name != tt.name || i.Email != tt.email {
			t.Errorf("%q: %+v", tt.text, i)
		}
		cmd := exec.Command(git, "var", "GIT_AUTHOR_IDENT")
		cmd.Env = []string{"GIT_AUTHOR_NAME=" + i.Name, "GIT_AUTHOR_EMAIL=" + i.Email, "GIT_CONFIG_GLOBAL=/dev/null"}
		if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), tt.name+" <"+tt.email+"> ") {
			t.Errorf("git has %q, %v of %q", out, err, tt.text)
		}
	}
}
