package approval

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// sleeper is a process, with a terminal of its own where that is asked for.
func sleeper(t *testing.T, terminal bool) (pid int32) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "echo ready; exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: terminal}
	if terminal {
		master, path, err := testrig.Terminal()
		testrig.Must(t, err)
		t.Cleanup(func() { master.Close() })
		slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
		testrig.Must(t, err)
		defer slave.Close()
		cmd.Stdin = slave
	}
	out, err := cmd.StdoutPipe()
	testrig.Must(t, err)
	testrig.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	testrig.Must(t, err)
	return int32(cmd.Process.Pid)
}

// TestMayAnswer: who made a call answers it only at the terminal where an admin's own process did so, and for this once.
func TestMayAnswer(t *testing.T) {
	t.Parallel()
	at, without := sleeper(t, true), sleeper(t, false)
	start := func(pid int32) uint64 {
		p, err := auth.ProcessOf(pid)
		testrig.Must(t, err)
		return p.Start
	}
	self, config := auth.Principal{UID: 5, PID: at, Admin: true}, &Config{}
	d := New(Setup{Config: func() *Config { return config }})
	for name, tt := range map[string]struct {
		change func(p *auth.Principal, row *store.Approval)
		answer client.Answer
		by     string
		hint   string
	}{
		"once":            {answer: client.AnswerOnce, by: BySelf},
		"reject":          {answer: client.AnswerReject, by: BySelf},
		"always":          {answer: client.AnswerAlways, hint: "answer once"},
		"no admin":        {change: func(p *auth.Principal, _ *store.Approval) { p.Admin = false }, hint: "another user"},
		"other process":   {change: func(p *auth.Principal, _ *store.Approval) { p.PID = without }, hint: "another user"},
		"other namespace": {change: func(p *auth.Principal, row *store.Approval) { p.PID, row.PID = 0, 0 }, hint: "another user"},
		"pid used again":  {change: func(_ *auth.Principal, row *store.Approval) { row.Start++ }, hint: "another user"},
		"an agent's call": {change: func(_ *auth.Principal, row *store.Approval) { row.Start = 0 }, hint: "another user"},
		"no terminal": {change: func(p *auth.Principal, row *store.Approval) {
			p.PID, row.PID, row.Start = without, without, start(without)
		}, hint: "another user"},
		"a token's call":   {change: func(p *auth.Principal, row *store.Approval) { p.Session, row.Token, row.Start = "ses_1", "ses_1", 0 }, hint: "another user"},
		"another's call":   {change: func(_ *auth.Principal, row *store.Approval) { row.UID = 6 }, answer: client.AnswerAlways, by: "uid 5"},
		"of its own token": {change: func(_ *auth.Principal, row *store.Approval) { row.Token, row.Start = "ses_1", 0 }, by: "uid 5"},
	} {
		p, row := self, store.Approval{UID: 5, PID: at, Start: start(at)}
		row.ID = "apr_1"
		if tt.change != nil {
			tt.change(&p, &row)
		}
		if tt.answer == "" {
			tt.answer = client.AnswerOnce
		}
		by, err := d.mayAnswer(p, &Pending{Row: row}, tt.answer)
		if by != tt.by || (err != nil) != (tt.hint != "") {
			t.Errorf("%s: by %q, %v", name, by, err)
		}
		if e, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || e.Kind != fault.Forbidden || !strings.Contains(e.Hint, tt.hint)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			continue
		}
		own := &Desk{Setup: Setup{Config: func() *Config { return &Config{SelfApprove: true} }}}
		if by, err := own.mayAnswer(p, &Pending{Row: row}, tt.answer); err != nil || by != p.Credential() {
			t.Errorf("%s with self_approve: by %q, %v", name, by, err)
		}
	}
}
