package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// TestOwnCallAtTheTerminal: an admin who is the only user of a machine is asked at the terminal about the
// call that they have typed there, and may say "once" or "reject", in that very process alone.
func TestOwnCallAtTheTerminal(t *testing.T) {
	if why != "" {
		t.Skip(why)
	}
	t.Parallel()
	r, err := openRig()
	if err != nil {
		t.Fatal(err)
	}
	defer r.close(t)
	config := filepath.Join(r.dir, "config.toml")
	if err := os.WriteFile(config, []byte("[permission]\nbash = \"ask\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.start([]string{"--config", config}); err != nil {
		t.Fatal(err)
	}
	if text, exit := r.raw(t, 80, "session", "create", "--name", "s"); exit != 0 {
		t.Fatal(text)
	}
	const asked = "o once, r reject, m with a reason, f full"
	for _, tt := range []struct {
		key, command string
		exit         int
		says         string
	}{
		{"o", "echo one", 0, "one"},
		{"y", "echo two", 0, "once by self at terminal"},
		{"n", "echo three", 126, "was rejected by self at terminal"},
	} {
		text, exit := r.pressed(t, 80, asked, tt.key, "exec", "s", "--", "sh", "-c", tt.command)
		if exit != tt.exit || !strings.Contains(strings.Join(strings.Fields(text), " "), tt.says) {
			t.Errorf("%s for %s: exit %d, want %d and %q:\n%s", tt.key, tt.command, exit, tt.exit, tt.says, text)
		}
	}

	testrig.Eventually(t, "the audit log says who has answered", func() bool {
		text, _ := r.raw(t, 300, "audit", "tail", filepath.Join(r.dir, "state/audit"), "-o", "json")
		return strings.Count(strings.ReplaceAll(text, `": "`, `":"`), `"approver":"self at terminal"`) >= 3
	})

	// Another process of the same user does not answer for it, at a terminal or not.
	r.raw(t, 80, "call", "s", "bash", "echo four", "--wait", "0")
	var id string
	testrig.Eventually(t, "the call waits", func() bool {
		text, _ := r.raw(t, 80, "approvals", "list", "-o", "name")
		id = strings.TrimSpace(text)
		return strings.HasPrefix(id, "apr_")
	})
	if text, exit := r.raw(t, 300, "approvals", "answer", id, "once"); exit != 3 || !strings.Contains(text, "you made yourself") {
		t.Errorf("another process has answered %q with exit %d:\n%s", id, exit, text)
	}
	// What has no terminal is not asked.
	said := filepath.Join(r.dir, "said")
	to, err := os.Create(said)
	testrig.Must(t, err)
	defer to.Close()
	cmd := exec.Command(filepath.Join(programs, "toolctl"), "--socket", r.socket, "call", "s", "bash", "echo five")
	cmd.Stderr, cmd.SysProcAttr = to, &syscall.SysProcAttr{Setsid: true}
	testrig.Must(t, cmd.Start())
	testrig.Eventually(t, "it says who may answer", func() bool {
		text, _ := os.ReadFile(said)
		return strings.Contains(string(text), "who made the call may not answer")
	})
	if text, _ := r.raw(t, 200, "approvals", "list", "-o", "json"); strings.Count(text, `"id": "apr_`) != 2 || strings.Contains(text, "self_once") {
		t.Errorf("calls whose process has ended, or has no terminal, say that they may be answered there:\n%s", text)
	}
	testrig.Must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
}
