package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/testrig"
)

// allowing asks about nothing, nor about the same call again and again.
const allowing = "[permission]\n'*' = 'allow'\ndoom_loop = 'allow'\n"

// stateDisk gives the state directory of a place a small disk of its own.
func (p *place) stateDisk() (state string) {
	p.t.Helper()
	disk, err := loopdisk.Unnamed(p.t.TempDir(), "state", 128<<20)
	if err != nil {
		testrig.Skipf(p.t, "loop", "no disks in files: %v", err)
	}
	defer disk.Close()
	state = p.dir + "/state"
	mustNil(p.t, os.Mkdir(state, 0o700))
	mustNil(p.t, unix.MoveMount(int(disk.Fd()), "", unix.AT_FDCWD, state, unix.MOVE_MOUNT_F_EMPTY_PATH))
	mustNil(p.t, os.Chmod(state, 0o700))
	p.t.Cleanup(func() {
		if err := unix.Unmount(state, unix.UMOUNT_NOFOLLOW); err != nil {
			p.t.Errorf("the disk of the state directory is still used: %v", err)
			_ = unix.Unmount(state, unix.MNT_DETACH)
		}
	})
	return state
}

// fill writes to a file until not a block is left.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	mustNil(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 4096} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err = f.Sync()
	}
}

// TestDiskTakesNoWrites: a daemon that finds its state disk full or read-only shows what is on
// record, refuses all else with what to do, and goes on by itself when the disk takes writes
// again, with the sessions of before. One that is killed meanwhile leaves nothing in the way.
func TestDiskTakesNoWrites(t *testing.T) {
	for name, tt := range map[string]struct {
		hinder, free func(t *testing.T, state string)
		says         string
	}{
		"full": {
			func(t *testing.T, state string) { t.Helper(); fill(t, state+"/others") },
			func(t *testing.T, state string) { t.Helper(); mustNil(t, os.Remove(state+"/others")) },
			"no space left on device",
		},
		"read-only": {
			func(t *testing.T, state string) {
				t.Helper()
				mustNil(t, unix.Mount(state, state, "", unix.MS_BIND, ""))
				mustNil(t, unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
			},
			func(t *testing.T, state string) { t.Helper(); mustNil(t, unix.Unmount(state, unix.MNT_DETACH)) },
			"read-only file system",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			state := p.stateDisk()
			config, d, s := p.overlaySession()
			done := d.runs(s.ID, "echo made >made; cat made", "made\n")
			d.end(syscall.SIGTERM) // which stores how the call ended
			tt.hinder(t, state)

			told := p.notified()
			for _, kill := range []bool{true, false} {
				d = p.command("--config", config)
				d.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+told.LocalAddr().String())
				d.start().ready()
				d.showsOnly(done, tt.says)
				second := p.command("--config", config).start()
				if code := second.wait(); code != 1 || !strings.Contains(second.log.String(), "another toold uses") {
					t.Errorf("a second daemon: exit code %d:\n%s", code, second.log)
				}
				if kill {
					d.end(syscall.SIGKILL)
				}
			}
			tt.free(t, state)
			d.goesOn()
			c := d.client()
			// It is not to be killed for not having stopped.
			if all := received(told); strings.Contains(all, "STOPPING=1") || strings.Count(all, "READY=1") != 3 {
				t.Errorf("systemd was told %q", all)
			}
			d.runs(s.ID, "cat made", "made\n")
			changes, err := c.Changes(t.Context(), s.ID, client.DiffQuery{})
			if err != nil || changes.Files != 1 {
				t.Errorf("%+v, %v", changes, err)
			}
			_, err = c.EndSession(t.Context(), s.ID, client.EndOptions{Force: true, Discard: true})
			mustNil(t, err)
			if code := d.end(syscall.SIGTERM); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if left, err := filepath.Glob(p.dir + "/run/shown*"); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestDiskNearlyFull: however little is left when a daemon begins, it answers, and no session is
// lost by what it could not write.
func TestDiskNearlyFull(t *testing.T) {
	p := newPlace(t)
	state := p.stateDisk()
	config, d, s := p.overlaySession()
	for round := range testrig.Rounds(3) {
		left := int64(16<<10 + (round*97<<10)%(600<<10))
		name := fmt.Sprintf("f%d", round)
		d.runs(s.ID, "echo made >"+name+"; cat "+name, "made\n")
		d.end(syscall.SIGKILL)
		fill(t, state+"/others")
		info, err := os.Stat(state + "/others")
		mustNil(t, err)
		mustNil(t, os.Truncate(state+"/others", info.Size()-left))
		d = p.command("--config", config).start().ready()
		mustNil(t, os.Remove(state+"/others"))
		d.goesOn()
		d.runs(s.ID, "cat "+name, "made\n")
		if changes, err := d.client().Changes(t.Context(), s.ID, client.DiffQuery{}); err != nil || changes.Files != round+1 {
			t.Errorf("%d bytes left: %+v, %v", left, changes, err)
		}
	}
	_, err := d.client().EndSession(t.Context(), s.ID, client.EndOptions{Force: true, Discard: true})
	mustNil(t, err)
	d.end(syscall.SIGTERM)
}

// overlaySession starts a daemon with a session "work" over a source, and gives its configuration.
func (p *place) overlaySession() (config string, d *instance, s *client.Session) {
	p.t.Helper()
	source := p.dir + "/source"
	mustNil(p.t, os.Mkdir(source, 0o755))
	config = p.dir + "/config.toml"
	mustNil(p.t, os.WriteFile(config, []byte(allowing), 0o600))
	d = p.command("--config", config).start().ready()
	s, err := d.client().CreateSession(p.t.Context(), client.SessionCreate{
		Name: "work", Worktree: client.Worktree{Source: source, Mode: client.WorktreeOverlay},
	})
	mustNil(p.t, err)
	return config, d, s
}

// goesOn waits until a daemon does not only show any more.
func (i *instance) goesOn() {
	i.t.Helper()
	c := i.client()
	testrig.Eventually(i.t, "the daemon goes on", func() bool {
		h, err := c.Ready(context.Background())
		return err == nil && (h.Status == "ok" || h.Status == "failing") && !strings.Contains(strings.Join(h.Reasons, "\n"), "only what is on record")
	})
}

// notified is a socket for what a daemon tells systemd, and received what has come.
func (p *place) notified() *net.UnixConn {
	p.t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: p.dir + "/notify", Net: "unixgram"})
	mustNil(p.t, err)
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

func received(c *net.UnixConn) (all string) {
	buf := make([]byte, 4096)
	for {
		_ = c.SetReadDeadline(time.Now().Add(time.Second)) // READY is told before any answer
		n, err := c.Read(buf)
		if err != nil {
			return all
		}
		all += string(buf[:n]) + "\n"
	}
}

// runs runs a command to its end, as soon as the daemon has seen that there is room.
func (i *instance) runs(session, command, want string) (c *client.Call) {
	i.t.Helper()
	testrig.Eventually(i.t, "there is room for "+command, func() (ran bool) {
		var err error
		c, err = i.client().CreateCall(i.t.Context(), session, client.CallCreate{
			Tool: "bash", Input: fmt.Appendf(nil, `{"command":%q,"description":"try"}`, command),
		}, client.CallOptions{})
		mustNil(i.t, err)
		return c.Error == nil || c.Error.Code != client.CodeOverloaded
	})
	if !strings.Contains(c.Output, want) {
		i.t.Fatalf("%s: %s, %v", command, c.Output, c.Error)
	}
	return c
}

// showsOnly looks at what a daemon does whose disk takes no writes.
func (i *instance) showsOnly(done *client.Call, says string) {
	t, c := i.t, i.client()
	t.Helper()
	if h, err := c.Ready(t.Context()); err != nil || h.Status != "failing" || !strings.Contains(strings.Join(h.Reasons, "\n"), says) {
		t.Errorf("ready: %+v, %v", h, err)
	}
	if d, err := c.Doctor(t.Context(), false); err != nil || !slices.ContainsFunc(d.Checks, func(k client.Check) bool {
		return k.Status == client.CheckFail && strings.Contains(k.Detail, says) && strings.Contains(k.Hint, "goes on by itself")
	}) {
		t.Errorf("doctor: %+v, %v", d, err)
	}
	if all, err := c.ListSessions(t.Context(), client.SessionQuery{}); err != nil || len(all.Items) != 1 {
		t.Errorf("sessions: %+v, %v", all, err)
	}
	calls, err := c.ListCalls(t.Context(), done.SessionID, client.CallQuery{})
	if err != nil || len(calls.Items) != 1 || calls.Items[0].Output != done.Output {
		t.Errorf("calls: %s %q, want %q, %v", calls.Items[0].Status, calls.Items[0].Output, done.Output, err)
	}
	out, err := c.CallOutput(t.Context(), done.ID, client.OutputQuery{})
	mustNil(t, err)
	text, err := io.ReadAll(out)
	if mustNil(t, errors.Join(err, out.Close())); !strings.HasPrefix(string(text), "made") {
		t.Errorf("output: %q", text)
	}
	refused := func(what string, err error) {
		t.Helper()
		problem := new(client.Error)
		if !errors.As(err, &problem) || problem.Status != 503 || !strings.Contains(problem.Message, says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s, err := c.GetSession(t.Context(), "work"); err != nil || s.State != client.SessionReady {
		t.Errorf("show: %+v, %v", s, err)
	}
	_, err = c.CreateSession(t.Context(), client.SessionCreate{})
	refused("create", err)
	_, err = c.CreateCall(t.Context(), "work", client.CallCreate{Tool: "bash", Input: []byte(`{"command":"ls"}`)}, client.CallOptions{})
	refused("call", err)
	_, err = c.Diff(t.Context(), "work", client.DiffQuery{})
	refused("diff", err)
	_, err = c.Apply(t.Context(), "work", client.ApplyRequest{})
	refused("apply", err)
	_, err = c.EndSession(t.Context(), "work", client.EndOptions{Force: true})
	refused("end", err)
	_, err = c.GC(t.Context(), client.GCRequest{})
	refused("gc", err)
}

// TestDiskElsewhere: a daemon that cannot begin for the disk of its audit log says so and ends; it
// does not take that for the disk of its state, and wait for what is not missing.
func TestDiskElsewhere(t *testing.T) {
	for name, tt := range map[string]struct{ hinder, free string }{
		"full":      {"nr_inodes=1", "nr_inodes=100"},
		"read-only": {"ro", "rw"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			dir := p.dir + "/audit"
			mustNil(t, os.Mkdir(dir, 0o700))
			mount := func(options string, flags uintptr) {
				t.Helper()
				if options == "ro" {
					flags |= unix.MS_RDONLY
				}
				mustNil(t, unix.Mount("tmpfs", dir, "tmpfs", flags, strings.TrimPrefix(strings.TrimPrefix(options, "ro"), "rw")))
			}
			mount(tt.hinder, 0)
			t.Cleanup(func() { mustNil(t, unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)) })
			config := p.dir + "/config.toml"
			mustNil(t, os.WriteFile(config, []byte("[audit]\npath = '"+dir+"/log/audit.jsonl'\n"), 0o600))
			d := p.command("--config", config).start()
			if code := d.wait(); code == 0 || !strings.Contains(d.log.String(), dir) || strings.Contains(d.log.String(), "is shown until") {
				t.Errorf("exit code %d:\n%s", code, d.log)
			}
			mount(tt.free, unix.MS_REMOUNT)
			if code := p.command("--config", config).start().ready().end(syscall.SIGTERM); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
