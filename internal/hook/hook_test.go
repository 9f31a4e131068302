package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
)

// program writes a shell script and gives its path.
func program(t testing.TB, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook.sh")
	if err := testrig.WriteProgram(path, []byte("#!/bin/sh\n"+script+"\n")); err != nil {
		t.Fatal(err)
	}
	return path
}

var errStopped = errors.New("stopped")

// pidIn reads the process id that a script has written to a file, once it is there.
func pidIn(t *testing.T, file string) int {
	t.Helper()
	var pid int
	testrig.Eventually(t, "the script has said its process id", func() bool {
		text, _ := os.ReadFile(file)
		n, err := strconv.Atoi(strings.TrimSuffix(string(text), "\n"))
		pid = n
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	return pid
}

func awaitDead(t *testing.T, pid int) {
	t.Helper()
	testrig.Eventually(t, "the hook's child is dead", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
}

// TestGroupIsKilled: nothing of a hook lives on, whether it ended by itself
// or not.
func TestGroupIsKilled(t *testing.T) {
	script := func(file, end string) []string {
		return []string{program(t, fmt.Sprintf("sleep 1000 & echo $! > %s; %s", file, end))}
	}
	t.Run("ended", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		if _, err := Run(t.Context(), script(file, "exit 0"), nil, time.Minute); err != nil {
			t.Error(err)
		}
		awaitDead(t, pidIn(t, file))
	})
	t.Run("stopped", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := Run(ctx, script(file, "sleep 1000"), nil, time.Minute)
			failed <- err
		}()
		pid := pidIn(t, file)
		cancel(errStopped)
		if err := <-failed; !errors.Is(err, errStopped) {
			t.Errorf("got %v", err)
		}
		awaitDead(t, pid)
	})
}

// TestWhoseChildHoldsTheOutput: a process that left the group cannot hold the
// call up by keeping the pipe open.
func TestWhoseChildHoldsTheOutput(t *testing.T) {
	if _, err := os.Stat("/usr/bin/setsid"); err != nil {
		t.Skip("setsid is not installed")
	}
	file := filepath.Join(t.TempDir(), "pid")
	t.Cleanup(func() { _ = syscall.Kill(pidIn(t, file), syscall.SIGKILL) })
	h := Hook{On: CallBefore, Timeout: time.Minute, Command: []string{program(t, fmt.Sprintf(`setsid sh -c 'echo $$ > %[1]s; exec sleep 60' & until [ -s %[1]s ]; do sleep 0.01; done; echo '{"action":"allow"}'`, file))}}
	begun := time.Now()
	if a, err := h.Run(t.Context(), &Event{}); err != nil || a.Deny {
		t.Errorf("%+v, %v", a, err)
	}
	if took := time.Since(begun); took > 40*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestMatches(t *testing.T) {
	of := About{Tool: "bash", Tenant: "ci-1", Profile: "build", Path: "/workspace/a/b.go", Relative: "a/b.go"}
	tests := []struct {
		match map[string]string
		want  bool
	}{
		{nil, true},
		{map[string]string{"tool": "bash"}, true},
		{map[string]string{"tool": "ba*"}, true},
		{map[string]string{"tool": "edit"}, false},
		{map[string]string{"tool": "bash", "tenant": "ci-*", "profile": "build"}, true},
		{map[string]string{"tool": "bash", "tenant": "x"}, false},
		{map[string]string{"profile": "plan"}, false},
		{map[string]string{"path": "*.go"}, true},
		{map[string]string{"path": "a/*"}, true},
		{map[string]string{"path": "/workspace/*"}, true},
		{map[string]string{"path": "**/b.go"}, true},
		{map[string]string{"path": "*.py"}, false},
	}
	for _, tt := range tests {
		if got := (&Hook{Match: tt.match}).Matches(of); got != tt.want {
			t.Errorf("%v: got %t", tt.match, got)
		}
	}
	outside := of
	outside.Path, outside.Relative = "/tmp/b.py", ""
	if (&Hook{Match: map[string]string{"path": "*.go"}}).Matches(outside) {
		t.Error("a file outside matched")
	}
}

// FuzzAnswer: whatever a hook prints, it is read without a panic, and what
// lets a call through says so in so many words.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"", "{}", `{"action":"allow"}`, `{"action":"deny","reason":"x"}`, `{"action":"allow","input":{"command":"x"}}`, `{"output":"x"}`, `{"action":"allow"`, `[]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for on := range answerKeys {
			a, err := readAnswer(on, []byte(s))
			if err == nil && on == CallBefore && !a.Deny && !strings.Contains(s, "all") && !strings.Contains(s, `\u`) {
				t.Errorf("%q lets a call through", s)
			}
		}
	})
}
