package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// bound is how long anything may take that only has to happen some time.
const bound = 60 * time.Second

type rigKey struct{}

// rig is what belongs to one script: its directories and its daemon.
type rig struct {
	dir    string // others may pass it, as the users of sandboxes must
	socket string
	cgroup string // parent of the cgroups of its sessions
	uids   uint32
	unused func() // gives them back

	through []string // starts the daemon; none for by itself

	program string // that pressed runs; "" for toolctl
	uid     uint32 // by which user; 0 for root

	daemon *testrig.Daemon // nil: none was started
	killed bool            // and has not been started again
}

// openRig makes a rig's directory; it starts nothing.
func openRig() (*rig, error) {
	dir, err := testrig.MkdirTemp(prefix)
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, socket: testrig.Socket(dir), cgroup: filepath.Base(dir)}
	r.uids, r.unused, err = testrig.ClaimUIDs()
	return r, err
}

// newRig gives a script its directories and environment; it starts nothing.
func newRig(e *testscript.Env) (*rig, error) {
	r, err := openRig()
	if err != nil {
		return nil, err
	}
	dir := r.dir
	e.Defer(func() { r.close(e.T()) })
	// Worktrees and the private daemon's directory are below $WORK.
	tmp := filepath.Join(dir, "tmp") // $WORK/.tmp is too long for the path of a socket
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chmod(tmp, 0o711), os.Chmod(dir, 0o711), os.Chmod(e.WorkDir, 0o711), os.Chmod(filepath.Dir(e.WorkDir), 0o711)); err != nil {
		return nil, err
	}
	e.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	e.Setenv("BIN", programs)
	e.Setenv("TMPDIR", tmp)
	e.Setenv("TOOLD_SOCKET", r.socket)
	e.Setenv("SOCKET", r.socket)
	// For what a script builds: this repository, and the modules and caches that this host has.
	top, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"GOMODCACHE", "GOCACHE"} {
		where, err := exec.Command("go", "env", name).Output()
		if err != nil {
			return nil, err
		}
		e.Setenv(name, strings.TrimSpace(string(where)))
	}
	e.Setenv("REPO", top)
	e.Setenv("TOOLD_TEST_LONG", os.Getenv("TOOLD_TEST_LONG"))
	return r, nil
}

// start runs toold and waits until it is ready. It ends its sessions and itself
// when its standard input closes, so also when this test is killed.
func (r *rig) start(flags []string) error {
	d, err := testrig.StartDaemon(r.socket, filepath.Join(r.dir, "log"), r.argv(flags)...)
	if err == nil {
		r.daemon, r.killed = d, false
	}
	return err
}

func (r *rig) argv(flags []string) []string {
	return slices.Concat(r.through, []string{filepath.Join(programs, "toold"), "--ephemeral"}, testrig.Flags(r.dir, r.cgroup, r.uids), flags)
}

// teller is what close needs of a test, or of a script.
type teller interface {
	Log(args ...any)
	FailNow()
}

// close ends the daemon and removes what is left; what should not be there any
// more is a failure of the script.
func (r *rig) close(t teller) {
	if r.daemon != nil {
		if err := r.daemon.CloseStdin(); err != nil {
			t.Log(err)
			defer t.FailNow()
		}
		t.Log("log of toold:\n" + r.daemon.Log())
	}
	// The last daemon of a script takes the cgroup above its sessions along.
	for end := time.Now().Add(bound); !r.killed && len(testrig.Cgroups(r.cgroup)) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Log("an empty cgroup was left behind: " + r.cgroup)
			defer t.FailNow()
			break
		}
	}
	err := testrig.RemoveCgroups(r.cgroup)
	for end := time.Now().Add(bound); err != nil && r.killed && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		err = testrig.RemoveCgroups(r.cgroup) // the sandboxes of a daemon that does not come back end by themselves
	}
	if err != nil {
		t.Log(err)
		defer t.FailNow()
	}
	_ = os.RemoveAll(r.dir)
	r.unused()
}

func rigOf(ts *testscript.TestScript) *rig { return ts.Value(rigKey{}).(*rig) }

func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("daemon cannot be negated")
	}
	ts.Check(rigOf(ts).start(args))
}

// cmdReloadDaemon returns when the daemon works with the configuration of now.
func cmdReloadDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: reloaddaemon")
	}
	c := client.New(client.Options{Socket: rigOf(ts).socket})
	defer c.Close()
	_, err := c.Reload(context.Background(), false)
	ts.Check(err)
}

// cmdKillDaemon kills the daemon as a crash would; "daemon" starts it again.
func cmdKillDaemon(ts *testscript.TestScript, neg bool, args []string) {
	r := rigOf(ts)
	if neg || len(args) > 0 || r.daemon == nil {
		ts.Fatalf("usage: killdaemon, when one runs")
	}
	ts.Check(r.daemon.Kill())
	r.killed = true
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var e *exec.ExitError
		if !errors.As(err, &e) {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually COMMAND...")
	}
	for end := time.Now().Add(bound); ; time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("still %v after %s", err, bound)
		}
	}
}

func cmdSetvar(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: setvar NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// cmdJUnit checks that files are what readers of JUnit take.
func cmdJUnit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: junit FILE...")
	}
	for _, f := range args {
		if n, err := testrig.CheckJUnit([]byte(ts.ReadFile(f))); err != nil || n == 0 {
			ts.Fatalf("%s: %d cases, %v", f, n, err)
		}
	}
}

// cmdPrivateDir makes a toolctl whose private daemons keep their cgroups to this
// script.
func cmdPrivateDir(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: privatedir DIR")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.Mkdir(dir, 0o755))
	ts.Check(os.Link(filepath.Join(programs, "toolctl"), filepath.Join(dir, "toolctl")))
	script := fmt.Sprintf("#!/bin/sh\nexec %s/toold --cgroup-parent /%s \"$@\"\n", programs, rigOf(ts).cgroup)
	ts.Check(testrig.WriteProgram(filepath.Join(dir, "toold"), []byte(script)))
}
