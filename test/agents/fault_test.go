package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// fake is the program of a fakeAgent, and its directory.
func fake(t *testing.T, mode string) (program, dir string) {
	t.Helper()
	self, err := os.Executable()
	testrig.Must(t, err)
	dir = t.TempDir()
	program = filepath.Join(dir, "agent")
	testrig.Must(t, testrig.WriteProgram(program, fmt.Appendf(nil, "#!/bin/sh\nTOOLD_TEST_FAKE_AGENT='%s' TOOLD_TEST_FAKE_DIR='%s' exec '%s'\n", mode, dir, self)))
	return program, dir
}

// tries is a run of toolctl mcp --doctor with a fakeAgent.
func (d *daemon) tries(program string, flags ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.t.Context(), filepath.Join(programs, "toolctl"), append([]string{"mcp", "--doctor", "opencode", "--program", program}, flags...)...)
	cmd.Env = append(os.Environ(), "TOOLD_SOCKET="+d.socket)
	return cmd
}

// nothingLeft waits until nothing is left of a fakeAgent: no process, no home, no session.
func (d *daemon) nothingLeft(t *testing.T, dir string) {
	t.Helper()
	home, err := os.ReadFile(filepath.Join(dir, "home"))
	testrig.Must(t, err)
	list, err := os.ReadFile(filepath.Join(dir, "processes"))
	testrig.Must(t, err)
	for pid := range strings.FieldsSeq(string(list)) {
		testrig.Eventually(t, "the process "+pid+" of the agent has ended", func() bool {
			_, err := os.Stat("/proc/" + pid)
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	testrig.Eventually(t, "its home is removed", func() bool {
		_, err := os.Stat(string(home))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestDoctorFaults: what is wrong with an agent is named, with what to do, and nothing of it is left.
func TestDoctorFaults(t *testing.T) {
	d := startDaemon(t)
	for _, tt := range []struct {
		mode  string
		flags []string
		want  []string // on standard error, where there is no report
		check string   // that fails, or warns
		says  string   // in its detail
	}{
		{mode: "exits", want: []string{"opencode ended with exit code 3, before it asked", "see that ", "npm install -g opencode-ai", "there is no licence"}},
		{mode: "hangs", flags: []string{"--patience", "10s"}, want: []string{"asked nothing for 10s, and was stopped, before it asked", "--patience 10m"}},
		{mode: "offers nothing", want: []string{"ended with exit code 0", "without offering any tool"}},
		{mode: "alone", check: "tools", says: "none of toold's"},
		{mode: "leaves out", check: "tools", says: "not edit"},
		{mode: "stops", check: "calls", says: "2 of 11 made; then it ended with exit code 0"},
		{mode: "hangs in a call", flags: []string{"--patience", "10s"}, check: "calls", says: "1 of 11 made; then it asked nothing for 10s, and was stopped"},
		{mode: "own", check: "own tools", says: "shell"},
		{mode: "escapes", check: "44,000 bytes", says: "as a string of JSON"},
		{mode: "changes", check: "error", says: "the model has 2 bytes"},
		{mode: "cuts", check: "44,000 bytes", says: "cut: of 44000 bytes the first 5000 and the last 1000"},
		{mode: "twice", check: "300 lines", says: "2 times"},
		{mode: "blind", check: "picture", says: "not shown"},
		{mode: "redraws", check: "picture", says: "its model has a PNG of 3 × 2 pixels and "},
		{mode: "uninstructed", check: "instructions", says: "none of "},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			program, dir := fake(t, tt.mode)
			cmd := d.tries(program, append(tt.flags, "-o", "json")...)
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err == nil || cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("%s: %v", cmd, err)
			}
			d.nothingLeft(t, dir)
			if tt.check == "" {
				if len(out) > 0 {
					t.Errorf("it reports %s", out)
				}
				testrig.Wants(t, said.String(), tt.want...)
				return
			}
			var r trial
			testrig.Must(t, json.Unmarshal(out, &r))
			if c := r.check(tt.check); c.Status == client.CheckOK || c.Hint == "" || !strings.Contains(c.Detail, tt.says) || !strings.Contains(said.String(), "toolctl: "+tt.check+": ") {
				t.Errorf("%+v, want %q in it\n%s", c, tt.says, &said)
			}
		})
	}
	testrig.Eventually(t, "all sessions are over", func() bool { return len(d.sessions()) == 0 })
}

// TestDoctorKilled: nothing is left of an agent, its home and its session when toolctl is stopped, wherever
// that is.
func TestDoctorKilled(t *testing.T) {
	d := startDaemon(t)
	for _, mode := range []string{"hangs", "hangs in a call"} {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
			t.Run(mode+" "+signal.String(), func(t *testing.T) {
				program, dir := fake(t, mode)
				cmd := d.tries(program)
				testrig.Must(t, cmd.Start())
				testrig.Eventually(t, "the agent hangs", func() bool {
					_, err := os.Stat(filepath.Join(dir, "hangs"))
					return err == nil
				})
				testrig.Must(t, cmd.Process.Signal(signal))
				_ = cmd.Wait() // says how it was stopped
				if code := cmd.ProcessState.ExitCode(); signal == syscall.SIGINT && code != 130 {
					t.Errorf("exit code %d", code)
				}
				d.nothingLeft(t, dir)
				testrig.Eventually(t, "its session is over", func() bool { return len(d.sessions()) == 0 })
			})
		}
	}
}
