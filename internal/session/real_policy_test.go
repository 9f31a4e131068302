package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// realTree is a worktree of root's own user with these files, and a daemon that
// may mount it.
func realTree(t *testing.T, m *Manager, policy string, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(content, "link:"); ok {
			if err := os.Symlink(to, file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set := *m.settings.Load()
	set.Policy = rules(t, policy)
	m.Reload(set)
	return dir
}

// admin of alice's tenant, who may mount any directory.
var mounter = auth.Principal{UID: 0, Tenant: "a", Admin: true}

func TestRealRules(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, `
[permission]
read = { "*" = "allow", "**/.env" = "deny" }
external_directory = "deny"
[permission.bash]
"*" = "allow"
"git push *" = "deny"
`, map[string]string{
		".env": "SECRET=1", "plain": "fine\n", "link": "link:.env", "sub/up": "link:../.env", "dir": "link:sub", "sub/.env": "SECRET=2",
		"out": "link:/mnt/cache/f", "agent": "link:/run/toold/sandbox", "passwd": "link:/etc/hostname", ".toold/policy.toml": "[permission.bash]\n\"curl *\" = \"deny\"\n",
	})
	cache := t.TempDir()
	if err := os.WriteFile(filepath.Join(cache, "f"), []byte("of the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	set := *m.settings.Load()
	set.MountRoots = []string{cache}
	m.Reload(set)
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{
		Worktree: client.Worktree{Source: dir}, Mounts: []client.Mount{{Source: cache, Target: "/mnt/cache"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tool  string
		input object
		want  string // of the refusal; "" = it runs
	}{
		{"read", object{"file_path": "plain"}, ""},
		{"read", object{"file_path": ".env"}, "config.toml:3"},
		{"read", object{"file_path": "link"}, "config.toml:3"},
		{"read", object{"file_path": "sub/up"}, "config.toml:3"},
		{"read", object{"file_path": "dir/.env"}, "config.toml:3"},
		{"read", object{"file_path": "./sub/../sub/./.env"}, "config.toml:3"},
		{"read", object{"file_path": "out"}, "external_directory"},
		{"read", object{"file_path": "/mnt/cache/f"}, "external_directory"},
		{"list", object{"path": "/mnt/cache"}, "external_directory"},
		{"list", object{"path": "/mnt"}, "external_directory"},
		{"list", object{"path": "/"}, "external_directory"},
		{"grep", object{"pattern": "host", "path": ".."}, "external_directory"},
		{"list", object{"path": "/var"}, ""},
		{"read", object{"file_path": "agent"}, ""},
		{"write", object{"file_path": "/var/x", "content": "x"}, "external_directory"},
		{"bash", object{"command": "cat plain"}, ""},
		{"bash", object{"command": "cat /etc/hostname passwd 2>/dev/null"}, ""},
		{"bash", object{"command": "cat out"}, "external_directory"},
		{"bash", object{"command": "cat agent && ls -d /run/toold /var /home"}, ""},
		{"bash", object{"command": "ls /mnt"}, "external_directory"},
		{"bash", object{"command": "find / -name f"}, "external_directory"},
		{"bash", object{"command": "cat /mn?/cache/f"}, "external_directory"},
		{"bash", object{"command": "cd /; cat mnt/cache/f"}, "external_directory"},
		{"bash", object{"command": "echo x > /var/x"}, "external_directory"},
		{"bash", object{"command": "cd sub && cat ../out"}, "external_directory"},
		{"bash", object{"command": "echo x > out"}, "external_directory"},
		{"bash", object{"command": "ls", "workdir": "/mnt"}, "external_directory"},
		{"bash", object{"command": "true; (git push)"}, "config.toml:7"},
		{"bash", object{"command": "curl x"}, "/workspace/.toold/policy.toml:2"},
	} {
		c := realCall(t, m, s.ID, tt.tool, tt.input)
		switch {
		case tt.want == "" && (c.Error != nil || c.IsError):
			t.Errorf("%s %v: %+v %q", tt.tool, tt.input, c.Error, c.Output)
		case tt.want != "" && (c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, tt.want)):
			t.Errorf("%s %v: %+v %q", tt.tool, tt.input, c.Error, c.Output)
		}
	}
}

// TestRealReadRules: what read denies is shown by no tool that shows many files.
func TestRealReadRules(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, `permission = { grep = "allow", read = { "*" = "allow", "**/.env" = "deny", "/workspace/asked" = "ask" } }`, map[string]string{
		".env": "SECRET=1\n", "plain": "SECRET is elsewhere\n", "sub/.env": "SECRET=2\n", "link": "link:.env", "asked": "SECRET=3\n",
	})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tool  string
		input object
		says  string
	}{
		{"grep", object{"pattern": "SECRET"}, "(2 files not searched: read denies them (config.toml:1).)"},
		{"grep", object{"pattern": "SECRET", "path": "asked"}, "(1 file not searched: to read it is asked about (config.toml:1): /workspace/asked. Call read to ask.)"},
		{"grep", object{"pattern": "SECRET", "path": "/workspace/sub/../link"}, "(1 file not searched: read denies it (config.toml:1).)"},
		{"glob", object{"pattern": "**/.env"}, "(2 files left out: read denies them (config.toml:1).)"},
		{"list", object{}, "(2 entries left out: read denies them (config.toml:1).)"},
		{"read", object{"file_path": "sub"}, "(1 entry left out: read denies it (config.toml:1).)"},
	} {
		c := realCall(t, m, s.ID, tt.tool, tt.input)
		if c.Error != nil || !strings.Contains(c.Output, tt.says) || strings.Contains(c.Output, "SECRET=") || strings.Contains(c.Output, "/.env\n") || strings.Contains(c.Output, "  .env\n") {
			t.Errorf("%s %v: %v\n%s", tt.tool, tt.input, c.Error, c.Output)
		}
	}
}

func TestRealApproval(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, `permission = { edit = "ask" }`, map[string]string{"f": "one\n", "g": "one\n"})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		t.Fatal(err)
	}
	edit := func(file string) (*client.Call, client.Approval) {
		t.Helper()
		raw := must([]byte(`{"file_path":"`+file+`","old_string":"one","new_string":"two"}`), nil)
		c, err := m.calls.Call(t.Context(), alice, s.ID, client.CallCreate{Tool: "edit", Input: raw, WaitMillis: new(int64)}, call.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var a client.Approval
		testrig.Eventually(t, "it waits", func() bool {
			l, err := m.Approvals.Approvals(t.Context(), carol, client.ApprovalQuery{})
			for _, v := range l.Items {
				if v.CallID == c.ID {
					a = v
				}
			}
			return err == nil && a.ID != ""
		})
		return c, a
	}
	finish := func(c *client.Call, a client.Approval) *client.Call {
		t.Helper()
		if _, err := m.Approvals.Answer(t.Context(), carol, a.ID, once); err != nil {
			t.Fatal(err)
		}
		var err error
		testrig.Eventually(t, "it has ended", func() bool { c, err = m.calls.GetCall(t.Context(), alice, c.ID); return err != nil || c.Finished() })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, a := edit("f")
	if diff, _ := a.Metadata["diff"].(string); !strings.Contains(diff, "-one") || !strings.Contains(diff, "+two") || a.Requests[0].Save != "f" {
		t.Errorf("approval %+v", a)
	}
	if done := finish(c, a); done.Error != nil || done.IsError {
		t.Errorf("%+v, %q", done.Error, done.Output)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "two\n" {
		t.Errorf("f is %q, %v", b, err)
	}
	// The file changes between what was shown and the answer.
	c, a = edit("g")
	if err := os.WriteFile(filepath.Join(dir, "g"), []byte("one\nand more\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if done := finish(c, a); done.Error == nil || done.Error.Code != client.CodeStaleApproval {
		t.Errorf("%+v, %q", done.Error, done.Output)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "g")); err != nil || string(b) != "one\nand more\n" {
		t.Errorf("g is %q, %v", b, err)
	}
}

// TestRealWorktreeRulesThatLeadOut: the rules file is no way to read what the
// session could not.
func TestRealWorktreeRulesThatLeadOut(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	for name, files := range map[string]map[string]string{
		"a link":         {".toold/policy.toml": "link:/etc/hostname"},
		"a directory":    {".toold/policy.toml/x": ""},
		"a broken file":  {".toold/policy.toml": "permission = ["},
		"a link to none": {".toold/policy.toml": "link:/nonexistent/x"},
	} {
		dir := realTree(t, m, ``, files)
		_, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
		if codeOfErr(err) != client.CodeInvalidRequest || !strings.Contains(err.Error(), "policy.toml") || strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRealProgramsElsewhere: a line that allows a program by a relative path, or denies one, is about the file in the
// worktree's root, whichever directory a call says that it runs in, or enters, and by whatever link. One that allows is not
// about a path with a link in it that the text names, wherever that leads.
func TestRealProgramsElsewhere(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, `
[permission]
doom_loop = "allow"
[permission.bash]
"*" = "deny"
"cd *" = "allow"
"./x.sh *" = "allow"
"bash x.sh" = "allow"
[profile.most.permission.bash]
"*" = "allow"
"./sub/x.sh *" = "deny"
"bash sub/x.sh" = "deny"
`, map[string]string{
		"x.sh": "#!/bin/sh\necho root\n", "sub/x.sh": "#!/bin/sh\necho other\n", "link": "link:sub", "up": "link:.", "sub/back": "link:..", "own/y.sh": "link:../x.sh", "own/x.sh": "link:../sub/x.sh",
	})
	for _, file := range []string{"x.sh", "sub/x.sh"} {
		testrig.Must(t, os.Chmod(filepath.Join(dir, file), 0o755))
	}
	sessions := make(map[string]string)
	for _, profile := range []string{"", "most"} {
		s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}, Profile: profile})
		testrig.Must(t, err)
		sessions[profile] = s.ID
	}
	for _, tt := range []struct {
		command, workdir string
		few, most        string // what it prints with the rules, and with the profile; "" = it is denied
	}{
		{"./x.sh", "", "root", "root"},
		{"./x.sh", "sub", "", ""},
		{"./x.sh", "link", "", ""},
		{"./x.sh a", "/workspace/link", "", ""},
		{"./x.sh", "up/link", "", ""},
		{"./x.sh", "own", "", ""},
		{"bash x.sh", "", "root", "root"},
		{"bash x.sh", "sub", "", ""},
		{"bash x.sh", "link", "", ""},
		{"env bash x.sh", "link", "", ""},
		{"cd sub && ./x.sh", "", "", ""},
		{"cd link && ./x.sh", "", "", ""},
		{"cd link; bash x.sh", "", "", ""},
		{"cd link && ./x.sh", "up", "", ""},
		{"cd up/link && bash -c ./x.sh", "", "", ""},
		{"./back/x.sh", "sub", "", "root"},
		{"../x.sh", "sub", "root", "root"},
		{"./x.sh", "up", "root", "root"},
		{"./x.sh", "sub/back", "root", "root"},
		{"cd up && ./x.sh", "", "", "root"},
		{"./y.sh", "own", "", "root"},
	} {
		for profile, want := range map[string]string{"": tt.few, "most": tt.most} {
			c := realCall(t, m, sessions[profile], "bash", object{"command": tt.command, "workdir": tt.workdir})
			if denied := c.Error != nil && c.Error.Code == client.CodeDenied; denied != (want == "") || strings.TrimSpace(c.Output) != want && !denied {
				t.Errorf("%q in %q, profile %q: %+v %q, want %q", tt.command, tt.workdir, profile, c.Error, c.Output, want)
			}
		}
	}
}
