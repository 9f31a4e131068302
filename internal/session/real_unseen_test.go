package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
)

// mounted is a session with two mounts, of which rules of the daemon allow what they say.
func mounted(t *testing.T, m *Manager, policy string, ask client.SessionCreate) *client.Session {
	t.Helper()
	dir := realTree(t, m, policy, map[string]string{"f": "hello\n", "l": "link:/data/f", "names": "/mnt/models/f\n", "open.py": "import sys\nprint(open(sys.argv[1] if len(sys.argv) > 1 else '/da' + 'ta/f').read())\n"})
	set := *m.settings.Load()
	for _, target := range []string{"/data", "/mnt/models"} {
		from := t.TempDir()
		testrig.Must(t, os.WriteFile(filepath.Join(from, "f"), []byte("secret of "+target+"\n"), 0o644))
		testrig.Must(t, os.Chmod(from, 0o777))
		set.MountRoots = append(set.MountRoots, from)
		ask.Mounts = append(ask.Mounts, client.Mount{Source: from, Target: target, Mode: client.MountCow})
	}
	m.Reload(set)
	ask.Worktree = client.Worktree{Source: dir}
	s, err := m.Create(t.Context(), mounter, ask)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRealUnseen: a path that is only known at run time is not asked about, and leads to no mount; one that
// the text says is asked about, and a program that opens a mount by itself goes on to do so.
func TestRealUnseen(t *testing.T) {
	needs.Landlock(t, 3)
	h := newRealHouse(t)
	m := openReal(t, h)
	const both = "secret of /data"
	for _, tt := range []struct {
		rules, command string
		want           string // in the output
		denied         bool
	}{
		{"", "cat f", "hello", false},
		{"", "d=$(pwd); cd $d && cat $(echo f)", "hello", false},
		{"", "cat /data/f", "", true},
		{"", "base64 /data/f", "", true},
		{"", "ls /", "", true},
		{"", "echo /da*/f", "", true},
		{"", "for f in /data/*; do echo $f; done", "", true},
		{"", "dd if=/data/f 2>&1", "", true},
		{"", "fold l", "", true},
		{"", "python3 open.py l", "", true},
		{"", "cd / && python3 /workspace/open.py ../workspace/l", "", true},
		{"", "bash -c 'python3 open.py \"$1\"' _ l", "", true},
		{"", "python3 open.py {l,f}", "", true},
		{"", "python3 open.py f; echo l; grep l f; python3 open.py", both, false},
		{"", "python3 open.py", both, false}, // a program opens what it likes
		{"", "python3 open.py $(echo /data/f)", "/data is mounted", false},
		{"", "echo /data/f | xargs cat", "/data is mounted", false},
		{"", "find . | xargs cat >/dev/null; xargs cat <names", "/mnt/models is mounted", false},
		{"", "find -L . -name f -exec cat {} +", "hello", false},
		{"", "cat $(echo /data/f)", "/data is mounted", false},
		{"", "d=/da; base64 ${d}ta/$(echo f)", "/data is mounted", false},
		{"", "f=$(printf '/%s' data f); dd if=$f 2>&1", "/data is mounted", false},
		{"", "echo x > $(printf /)data/new", "/data is mounted", false},
		{"", "(setsid sh -c 'cat $(printf /)data/f' & wait) 2>&1", "/data is mounted", false},
		{"", "ln -s $(printf '/%s/f' data) made; cat ma*", "leads there: /data and /mnt/models are", false},
		{"", "ln -s $(printf '/%s/f' data) made; cat <ma*", "leads there: /data and /mnt/models are", false},
		{"", "mkdir in; ln -s $(printf '/%s' data) in/x; ls in/*/", "in/x", false},
		{"", "echo in/*/*", "in/*/*", false},
		{"", "printf '/mnt/models/f\\0' >n0; sort --files0-from=n0", "/mnt/models is mounted", false},
		{"", "tar cf - -T names", "/mnt/models is mounted", false},
		{"", "find . -name none | xargs python3 open.py", both, false}, // as without xargs
		{"", "tar cf /tmp/a.tar f; tar tf /tmp/a.tar path/with/h; python3 open.py", both, false},
		{"", "cat $(cat names) && echo there || echo not there", "not there", false},
		{`external_directory = { "/data" = "allow", "/data/*" = "allow" }`, "cat $(echo /data/f)", both, false},
		{`external_directory = { "/data" = "allow", "/data/*" = "allow" }`, "cat $(echo /mnt/models/f)", "/mnt/models is mounted", false},
		{`external_directory = { "/data" = "allow", "/data/*" = "allow", "/data/f" = "deny" }`, "echo /data/f | xargs cat", "/data is mounted", false},
		{`external_directory = { "/data/f" = "allow" }`, "cat /data/f", both, false},
		{`external_directory = { "/data/f" = "allow" }`, "cat /data/f; python3 open.py", both, false},
		{`external_directory = { "/data/f" = "allow" }`, "cat /data/f; cat $(echo /mnt/models/f)", "", true},
		{`external_directory = { "/data/f" = "allow" }`, "cat /data/f; xargs cat <names", "", true},
		{`external_directory = { "/data/f" = "allow" }`, "cat /data/f $(cat f)", "", true},
		{`external_directory = { "/data" = "allow" }`, "grep -R secret /data; cat f* >/dev/null", "secret", false},
		{`external_directory = { "/data" = "allow" }`, "find /data -name f | xargs cat", "secret of /data", false},
		{`external_directory = { "/data" = "allow" }`, "cat /data/f", "", true},
		{`external_directory = { "/data/f" = "allow" }`, "cat /data/f f*", "secret of /data", false},
		{`external_directory = { "/" = "allow" }`, "ls / >/dev/null; cat $(cat f)", "", true},
		{`external_directory = { "/" = "allow" }`, "ls /", "data\n", false},
		{`external_directory = { "/" = "allow", "/data" = "deny", "/data/*" = "deny" }`, "ls / >/dev/null; xargs cat <names", "", true},
		{`external_directory = "allow"`, "echo /data/f | xargs cat; cat $(echo /mnt/models/f)", "secret of /mnt/models", false},
		{`external_directory = "deny"`, "cat $(echo f)", "", true},
		{`external_directory = "deny"`, "echo f | xargs cat", "hello", false},
		{`external_directory = "deny"`, "echo /data/f | xargs cat", "/data is mounted", false},
	} {
		policy := ""
		if tt.rules != "" {
			policy = "[permission]\n" + tt.rules + "\n"
		}
		s := mounted(t, m, policy, client.SessionCreate{Profile: "ci"})
		c := realCall(t, m, s.ID, "bash", object{"command": tt.command})
		denied := c.Error != nil && c.Error.Code == client.CodeDenied
		if denied != tt.denied || !denied && !strings.Contains(c.Output, tt.want) || !strings.Contains(tt.want, "secret") && strings.Contains(c.Output, "secret") {
			t.Errorf("%s, %s: %+v %q", tt.rules, tt.command, c.Error, c.Output)
		}
		if _, err := m.End(t.Context(), mounter, s.ID, client.EndOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
