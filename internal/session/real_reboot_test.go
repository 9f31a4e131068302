package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
)

// What each session of the host that is to go down does, and what is there afterwards.
const (
	beforeReboot = "echo one >one; mkdir new; mv dir new/moved; rm gone; echo more >>kept"
	atReboot     = "echo two >two; ln -s one link; sleep 1000"
	rebootOver   = "kept: old\nmore\n|link: one\n|new/moved/deep: deep\n|one: one\n|two: two\n"
	rebootSource = "dir/deep: deep\n|gone: gone\n|kept: old\n"
)

var rebootNames = []string{"apply", "discard", "fork"}

// TestRealTreeReboot: the host goes down with sessions of mode overlay on it: no process, no
// mount, no cgroup and nothing of /run is left. The next daemon has what they changed, also
// what a call was about to, and can compare, apply, discard and fork it.
func TestRealTreeReboot(t *testing.T) {
	h := newRealHouse(t)
	src := source(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(src, "dir"), 0o755))
	for name, text := range map[string]string{"dir/deep": "deep\n", "gone": "gone\n", "kept": "old\n"} {
		must(os.WriteFile(filepath.Join(src, name), []byte(text), 0o644))
	}
	for _, name := range []string{"", "dir", "dir/deep", "gone", "kept"} {
		must(os.Chown(filepath.Join(src, name), int(alice.UID), int(alice.GID)))
	}
	h.Op = src
	h.goDown(t)
	for len(h.own(t)) > 0 { // the disks of home directories are gone with their mounts
		if t.Context().Err() != nil {
			t.Fatalf("disks are left: %q", h.own(t))
		}
	}
	if got := listing(t, src); got != rebootSource {
		t.Fatalf("the source has %q", got)
	}

	m, stop, err := h.open(slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelError})))
	must(err)
	list, err := m.List(t.Context(), owner, client.SessionQuery{All: true})
	must(err)
	ids := map[string]string{}
	for _, s := range list.Items {
		if ids[s.Name] = s.ID; s.State != client.SessionLost || s.Worktree.KeptUntil == nil {
			t.Errorf("session %s is %s, its changes are kept until %v", s.Name, s.State, s.Worktree.KeptUntil)
		}
	}
	changed := func(id string) (paths []string) {
		t.Helper()
		c, err := m.trees.Changes(t.Context(), owner, id, client.DiffQuery{Limit: 100})
		must(err)
		for _, x := range c.Items {
			paths = append(paths, x.Path)
		}
		slices.Sort(paths)
		return paths
	}
	want := []string{"dir", "dir/deep", "gone", "kept", "link", "new", "new/moved", "new/moved/deep", "one", "two"}
	for _, name := range rebootNames {
		if got := changed(ids[name]); !slices.Equal(got, want) {
			t.Errorf("%s: changes are %q, want %q", name, got, want)
		}
	}
	fork, err := m.trees.Fork(t.Context(), owner, ids["fork"], client.ForkRequest{Name: "forked"})
	must(err)
	if c := realCall(t, m, fork.ID, "bash", object{"command": "cat one two new/moved/deep kept; ls dir gone"}); !strings.HasPrefix(c.Output, "one\ntwo\ndeep\nold\nmore\n") || !c.IsError {
		t.Errorf("the fork has %+v", c)
	}
	_, err = m.trees.Discard(t.Context(), owner, ids["discard"], client.DiscardRequest{})
	must(err)
	if got := changed(ids["discard"]); len(got) > 0 {
		t.Errorf("after discard there are %q", got)
	}
	_, err = m.trees.Apply(t.Context(), owner, ids["apply"], client.ApplyRequest{})
	must(err)
	if got := listing(t, src); got != rebootOver {
		t.Errorf("the source has %q, want %q", got, rebootOver)
	}
	if got := changed(ids["apply"]); len(got) > 0 {
		t.Errorf("after apply there are %q", got)
	}
	must(m.EndAll(context.Background()))
	must(stop())
	if got := h.mounts(t); len(got) > 0 {
		t.Errorf("mounts are left: %q", got)
	}
}

// listing is the files and links below a directory with what is in them.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		text, err := os.ReadFile(path)
		if to, lerr := os.Readlink(path); lerr == nil {
			text, err = []byte(to+"\n"), nil
		}
		all = append(all, name+": "+string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, strings.Compare)
	return strings.Join(all, "|")
}

// goDown has a daemon make the sessions, and takes away what a host that goes down would.
func (h *realHouse) goDown(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // see child
	defer runtime.UnlockOSThread()
	cmd := h.child(t, "reboot")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || line != "ready\n" {
		t.Fatalf("the sessions: %q, %v", line, err)
	}
	groups := h.groups(t)
	for n := -1; n != 0; { // what is born meanwhile dies too
		n = 0
		for _, g := range groups {
			b, err := os.ReadFile(filepath.Join(g, "cgroup.procs"))
			if err != nil {
				t.Fatal(err)
			}
			for pid := range strings.FieldsSeq(string(b)) {
				if id, err := strconv.Atoi(pid); err == nil && id > 1 {
					n++
					_ = syscall.Kill(id, syscall.SIGKILL)
				}
			}
		}
	}
	for _, g := range slices.Backward(groups) {
		for errors.Is(unix.Rmdir(g), unix.EBUSY) { // until the last of it is reaped
		}
	}
	for _, m := range slices.Backward(h.mounts(t)) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			t.Fatalf("%s: %v", m, err)
		}
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(h.Dir, "run")), os.RemoveAll(filepath.Join(h.Dir, "uids"))); err != nil {
		t.Fatal(err)
	}
}

// groups are the cgroups of the house, those above first.
func (h *realHouse) groups(t *testing.T) (all []string) {
	t.Helper()
	tops, _ := filepath.Glob("/sys/fs/cgroup/*" + h.Cgroup)
	if top := "/sys/fs/cgroup" + h.Cgroup; testDir(top) {
		tops = append(tops, top)
	}
	for _, top := range tops {
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) == 0 {
		t.Fatal("the sandboxes have no cgroups")
	}
	return all
}

func testDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// mounts are those of this host below the house.
func (h *realHouse) mounts(t *testing.T) (all []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], h.Dir+"/") {
			all = append(all, f[4])
		}
	}
	return all
}

// makeOverlaid is what the daemon does that goDown starts.
func (h *realHouse) makeOverlaid() error {
	m, _, err := h.open(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	ctx, zero := context.Background(), int64(0)
	for _, name := range rebootNames {
		_, err := m.Create(ctx, owner, client.SessionCreate{Name: name, Worktree: client.Worktree{Source: h.Op, Mode: client.WorktreeOverlay}})
		if err != nil {
			return err
		}
		c, err := m.calls.Call(ctx, owner, name, bashCall(beforeReboot), call.Options{})
		if err != nil || c.IsError || c.Error != nil {
			return fmt.Errorf("%s: %+v, %w", name, c, err)
		}
		if _, err := m.trees.Checkpoint(ctx, owner, name, client.CheckpointCreate{Name: "one"}); err != nil {
			return err
		}
		r := bashCall(atReboot)
		r.WaitMillis = &zero
		if _, err := m.calls.Call(ctx, owner, name, r, call.Options{}); err != nil {
			return err
		}
		for { // until the call has written all of it
			tree, err := m.cfg.Trees.Get(mustID(m, name))
			if err != nil {
				return err
			}
			upper, err := m.cfg.Trees.OpenLayers([]string{tree.Upper})
			if err != nil {
				return err
			}
			err = unix.Faccessat(int(upper.Files[0].Fd()), "root/link", unix.F_OK, unix.AT_SYMLINK_NOFOLLOW)
			upper.Close()
			if err == nil {
				break
			}
			runtime.Gosched()
		}
	}
	fmt.Println("ready")
	select {}
}

func mustID(m *Manager, name string) string {
	s, err := m.find(owner, name)
	if err != nil {
		return ""
	}
	return s.id
}
