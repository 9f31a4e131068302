package oci_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/testrig"
)

// moody is a runtime that fails as often as there are files in its directory, each time in the
// way that the first of them names, and works else.
const moody = `#!/bin/sh
case " $* " in *" run "*)
	for mood in %[1]s/*; do
		[ -e "$mood" ] || break
		rm "$mood"
		case $mood in
		*fails) echo "no such luck" >&2; exit 1 ;;
		*is-killed) kill -9 $$ ;;
		*hangs) read line <%[2]s; exit 1 ;;
		esac
	done ;;
esac
exec %[3]s "$@"
`

// moodyFixture has the runtime moody. mood gives it another mood; fifo is what it reads of when it
// hangs.
func moodyFixture(t *testing.T) (f *fixture, mood func(name string), fifo string) {
	f = newFixture(t)
	moods, fifo, script := filepath.Join(f.Dir, "moods"), filepath.Join(f.Dir, "fifo"), filepath.Join(f.Dir, "moody")
	testrig.Must(t, os.Mkdir(moods, 0o700), unix.Mkfifo(fifo, 0o600),
		testrig.WriteProgram(script, fmt.Appendf(nil, moody, moods, fifo, f.cfg.Runtimes["runc"])))
	f.cfg.Runtimes["moody"], f.cfg.DefaultRuntime = script, "runc"
	return f, func(name string) { testrig.Must(t, os.WriteFile(filepath.Join(moods, name), nil, 0o600)) }, fifo
}

// holdRead opens a FIFO once it is read by a probe, which says in over that it has ended without.
func holdRead(t *testing.T, fifo string, over <-chan error) *os.File {
	t.Helper()
	opened := make(chan *os.File, 1)
	go func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
		}
		opened <- f
	}()
	select {
	case f := <-opened:
		t.Cleanup(func() { _ = f.Close() })
		return f
	case err := <-over:
		go func() { _, _ = os.Open(fifo) }() // lets the other one go
		t.Fatal("the probe has ended before it hung: ", err)
		return nil
	}
}

// TestProbeEndsWithDriver: a probe that nobody waits for any more ends with the driver, with the
// runtime that it has started, and none begins afterwards.
func TestProbeEndsWithDriver(t *testing.T) {
	t.Parallel()
	f, mood, fifo := moodyFixture(t)
	d := f.open()
	mood("hangs")
	left := errors.New("left")
	ctx, leave := context.WithCancelCause(t.Context())
	tried := make(chan error, 1)
	go func() { tried <- d.Try(ctx, "moody") }()
	held := holdRead(t, fifo, tried)
	leave(left)
	if err := <-tried; !errors.Is(err, left) {
		t.Errorf("who leaves: %v", err)
	}
	testrig.Must(t, d.Close())
	if n, err := held.WriteString("x"); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the runtime still reads: %d, %v", n, err)
	}
	if err := d.Try(t.Context(), "moody"); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("afterwards: %v", err)
	}
}

// TestProbesOfOthers: a probe's sandbox is left alone while the daemon lives that has made it, in another
// process under the same cgroup, and goes when that has ended.
func TestProbesOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := exec.Command("sleep", "1h")
	testrig.Must(t, other.Start())
	end := sync.OnceFunc(func() { _ = other.Process.Kill(); _ = other.Wait() })
	t.Cleanup(end)
	its, err := process.Open(other.Process.Pid, 0, nil)
	testrig.Must(t, err)
	spec := f.Spec()
	spec.SessionID, spec.Owner, spec.Incarnation = "probe-of-another", "probe", fmt.Sprintf("%d since %d", its.PID(), its.Start())
	testrig.Must(t, its.Close())
	f.create(spec)
	left := func() bool {
		testrig.Must(t, f.open().Try(f.Ctx(), "runc"))
		list, err := f.driver.List(f.Ctx(), "probe")
		testrig.Must(t, err)
		return slices.ContainsFunc(list, func(r sandbox.Record) bool { return r.SessionID == "probe-of-another" })
	}
	if !left() {
		t.Error("the probe of a daemon that lives was taken for a leftover")
	}
	end()
	if left() {
		t.Error("the probe of a daemon that has ended is left")
	}
}

// TestTryAgain: that a runtime has failed is not believed the next time, whichever way it
// failed; one that hangs holds no other one's probe, and nobody who does not want to wait.
func TestTryAgain(t *testing.T) {
	t.Parallel()
	f, mood, fifo := moodyFixture(t)
	d := f.open()
	for name, want := range map[string]string{"fails": "no such luck", "is-killed": "killed"} {
		mood(name)
		if err := d.Try(f.Ctx(), "moody"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it %s: %v", name, err)
		}
	}
	mood("hangs")
	hung := make(chan error, 1)
	go func() { hung <- d.Try(f.Ctx(), "moody") }()
	held := holdRead(t, fifo, hung)
	if err := d.Try(f.Ctx(), "runc"); err != nil {
		t.Errorf("another one, meanwhile: %v", err)
	}
	left := errors.New("left")
	ctx, leave := context.WithCancelCause(t.Context())
	leave(left)
	if err := d.Try(ctx, "moody"); !errors.Is(err, left) {
		t.Errorf("who does not wait: %v", err)
	}
	select {
	case err := <-hung:
		t.Errorf("it has answered: %v", err)
	default:
	}
	held.Close()
	if err := <-hung; err == nil {
		t.Error("it hung, and works")
	}
	if err := d.Try(f.Ctx(), "moody"); err != nil {
		t.Errorf("the next time: %v", err)
	}
	mood("fails") // nobody asks it any more
	if err := d.Try(f.Ctx(), "moody"); err != nil {
		t.Errorf("it has worked: %v", err)
	}
}
