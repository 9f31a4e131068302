package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs toold as far as it goes without serving.
func command(t *testing.T, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(t.Context(), process{args: args, env: env, stdin: strings.NewReader(""), stdout: &out, stderr: &errs})
	return out.String(), errs.String(), err
}

func TestVersionAndHelp(t *testing.T) {
	if out, _, err := command(t, nil, "--version"); err != nil || out != "toold "+version+"\n" {
		t.Errorf("--version: got %q, %v", out, err)
	}
	_, help, err := command(t, nil, "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range settingFlags {
		if !strings.Contains(help, "--"+f.flag+" ") || !strings.Contains(help, f.key) {
			t.Errorf("--help does not explain --%s", f.flag)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"--frob"}, "flag provided but not defined: -frob (see toold --help)"},
		{nil, []string{"serve"}, `unexpected argument "serve" (see toold --help)`},
		{nil, []string{"--check", "--config", "/nonexistent.toml"}, "open /nonexistent.toml: no such file or directory"},
		{nil, []string{"--check", "--log", "xml"}, `--log: daemon.log: "xml" is not one of "auto", "json", "text"`},
		{nil, []string{"--check", "--socket", "toold.sock"}, `--socket: daemon.socket: "toold.sock" is not an absolute path`},
		{[]string{"TOOLD_LIMITS_PIDS=all"}, []string{"--check"}, `TOOLD_LIMITS_PIDS: limits.pids: want a whole number, not "all"`},
		{[]string{"TOOLD_LIMITS_PIDDS=1"}, []string{"--check"}, `TOOLD_LIMITS_PIDDS: no setting of [limits] has this variable`},
	} {
		_, _, err := command(t, tt.env, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || exitCode(err) != exitConfig {
			t.Errorf("%v %v: got %v (exit %d), want %q (exit %d)", tt.env, tt.args, err, exitCode(err), tt.want, exitConfig)
		}
	}
	if got := exitCode(errors.New("x")); got != 1 {
		t.Errorf("exit code of another error: got %d, want 1", got)
	}
}

// TestPrecedence: flags over variables over the file.
func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	mustNil(t, os.WriteFile(file, []byte("[daemon]\nsocket = '/file'\nstate_dir = '/file'\nrun_dir = '/file-run'\n"), 0o600))
	o, err := parseOptions([]string{"--config", file, "--socket", "/flag"}, nil)
	mustNil(t, err)
	c, err := o.load([]string{"TOOLD_DAEMON_SOCKET=/env", "TOOLD_DAEMON_STATE_DIR=/env"})
	mustNil(t, err)
	if c.Daemon.Socket != "/flag" || c.Daemon.StateDir != "/env" || c.Daemon.RunDir != "/file-run" {
		t.Errorf("got %+v", c.Daemon)
	}
}

func TestCheckAcceptsTheShippedFile(t *testing.T) {
	out, _, err := command(t, nil, "--check", "--config", "../../config.toml")
	if err != nil || out != "the configuration is valid\n" {
		t.Errorf("got %q, %v", out, err)
	}
}
