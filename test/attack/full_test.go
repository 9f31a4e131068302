package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/testrig"
)

// neighbour is a program that writes to the disk of the state directory as it likes.
type neighbour struct{ file string }

// fill takes all that is free, to the last block.
func (n neighbour) fill() error {
	f, err := os.OpenFile(n.file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := f.Seek(0, 2)
	if err != nil {
		return err
	}
	for size := int64(64 << 20); size >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, size); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case err != nil:
			return err
		default:
			at += size
		}
	}
	return nil
}

func (n neighbour) free() error {
	if err := os.Remove(n.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// stateOnDisk gives a daemon that is not running a state directory on a file system of its own.
func (r *rig) stateOnDisk(t *testing.T, root string) {
	t.Helper()
	state := filepath.Join(root, "state")
	text := strings.Replace(read(r.config), fmt.Sprintf("state_dir = %q", filepath.Join(r.dir, "state")), fmt.Sprintf("state_dir = %q\nhost_free = \"8MiB\"", state), 1)
	must(t, os.WriteFile(r.config, []byte(text), 0o600))
}

// answers waits for a daemon that may only show what is on record.
func (r *rig) answers(t *testing.T) {
	t.Helper()
	testrig.Eventually(t, "the daemon answers", func() bool {
		h, err := r.admin.Ready(t.Context())
		return err == nil && (h.Status == "ok" || h.Status == "failing")
	})
}

// smallDisk mounts a file system of so many bytes, until the test is over.
func smallDisk(t *testing.T, size client.Size) (root string) {
	t.Helper()
	if why != "" {
		t.Skip(why)
	}
	dir := t.TempDir()
	root = filepath.Join(dir, "disk")
	must(t, os.Mkdir(root, 0o711))
	for _, d := range []string{dir, filepath.Dir(dir)} {
		must(t, os.Chmod(d, 0o711))
	}
	disk, err := loopdisk.Unnamed(filepath.Join(dir, "file"), "state", size)
	must(t, err)
	must(t, unix.MoveMount(int(disk.Fd()), "", unix.AT_FDCWD, root, unix.MOVE_MOUNT_F_EMPTY_PATH))
	must(t, disk.Close())
	must(t, os.Chmod(root, 0o711))
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Error(err)
		}
	})
	return root
}

// contents is what call n of a writer writes to the file fN.
func contents(n int) string {
	return strings.Repeat(fmt.Sprintln(n), 1+n*7919%20_000)
}

// writing makes calls that each write a file of its own in dir: with and without waiting for the
// disk, and by the tool that does (see [tools.write] durable).
func writing(dir string) func(n int) client.CallCreate {
	return func(n int) client.CallCreate {
		file, text := fmt.Sprintf("%s/f%d", dir, n), contents(n)
		if n%3 == 2 {
			input, err := json.Marshal(map[string]string{"file_path": file, "content": text})
			if err != nil {
				panic(err)
			}
			return client.CallCreate{Tool: "write", Input: input}
		}
		command := fmt.Sprintf("set -e; yes %d | head -c %d >%s", n, len(text), file)
		if n%3 == 1 {
			command += "; sync " + file
		}
		return bashCall(command)
	}
}

// differing asks the session which files of calls that have ended well are not what they wrote.
func (w *worker) differing(t *testing.T, dir string) string {
	t.Helper()
	var looks strings.Builder
	for n, well := range w.over {
		if well { // with programs that every image has
			fmt.Fprintf(&looks, "[ \"$(cat f%[1]d 2>&1)\" = \"$(yes %[1]d | head -c %[2]d)\" ] || echo f%[1]d\n", n, len(contents(n)))
		}
	}
	if looks.Len() == 0 {
		return ""
	}
	var c *client.Call
	testrig.Eventually(t, "there is room for a call", func() bool {
		c = bash(t, w.c, w.session, "cd "+dir+"\n"+looks.String()+"echo looked")
		return c.Metadata["reason"] != "disk" && (c.Error == nil || c.Error.Code != client.CodeOverloaded) // the watch may have seen the disk full before
	})
	if c.Output == "looked\n" {
		testrig.Eventually(t, "there is room to begin anew", func() bool {
			c := bash(t, w.c, w.session, "cd "+dir+" && rm -f f* && echo gone")
			return c.Output == "gone\n"
		})
		return ""
	}
	return fmt.Sprintf("%s %+v", c.Output, c.Error)
}

// failedSays sees that a session whose disk has failed says what is lost and what to do, that it writes no
// more, and that its changes can be looked at, while it lives and when it is over.
func (r *rig) failedSays(t *testing.T, what, id string, overlay bool) {
	t.Helper()
	s, err := r.admin.GetSession(t.Context(), id)
	must(t, err)
	notes := strings.Join(s.Notes, "\n")
	if s.Reason != "disk" || !strings.Contains(notes, "what was written last may be lost") || !strings.Contains(notes, "end it, and go on") {
		t.Errorf("%s: the reason is %q, the notes are %q", what, s.Reason, notes)
	}
	testrig.Eventually(t, "calls are refused for the disk, and not for want of room on the host", func() bool {
		c := bash(t, r.admin, id, "echo more >>f")
		if c.Error == nil && !c.IsError {
			t.Fatalf("%s: it writes to the disk: %+v", what, c)
		}
		return c.Error != nil && strings.Contains(c.Error.Message, "disk has failed")
	})
	if !overlay {
		return
	}
	look := func(when string) {
		t.Helper()
		_, err := r.admin.Changes(t.Context(), id, client.DiffQuery{})
		if e, answered := errors.AsType[*client.Error](err); err != nil && (!answered || e.Code == client.CodeInternal) {
			t.Errorf("%s: changes %s: %v", what, when, err)
		}
	}
	look("while it lives")
	_, err = r.admin.EndSession(t.Context(), id, client.EndOptions{Force: true})
	must(t, err)
	look("when it is over")
}

const homeDir = "/home/tool"

// TestChaosFull: another program fills the disk of the state directory and frees it at random
// moments while sessions write, make checkpoints and are looked at, and daemons are killed. What
// each call that has ended well has written is there afterwards, or its session says that its disk
// has failed. A daemon starts on the full disk, and on one that takes no writes.
func TestChaosFull(t *testing.T) {
	random := rand.New(rand.NewPCG(chaosSeed(t), 3))
	root := smallDisk(t, 640<<20)
	r := newRig(t, nil, "[tools.write]\ndurable = true\n")
	r.stop(t)
	r.stateOnDisk(t, root)
	r.start(t)
	other := neighbour{filepath.Join(root, "others")}
	t.Cleanup(func() { // or its sessions would not be ended
		if err := errors.Join(other.free(), r.daemon.Ready()); err != nil {
			t.Error(err)
		}
	})

	modes := map[client.WorktreeMode]string{client.WorktreeOverlay: "/workspace", client.WorktreeBind: homeDir}
	workers := map[client.WorktreeMode]*worker{}
	begin := func(mode client.WorktreeMode) {
		t.Helper()
		testrig.Eventually(t, "there is room for a session", func() bool {
			x, err := r.admin.CreateSession(t.Context(), client.SessionCreate{Profile: "wall", Worktree: client.Worktree{Source: r.tree(t), Mode: mode}})
			if e, ok := errors.AsType[*client.Error](err); ok && e.Code == client.CodeOverloaded {
				return false
			}
			must(t, err)
			workers[mode] = &worker{name: x.ID, c: r.admin, session: x.ID, make: writing(modes[mode]), over: map[int]bool{}}
			return true
		})
	}
	renew := func(mode client.WorktreeMode) {
		t.Helper()
		_, err := r.admin.EndSession(t.Context(), workers[mode].session, client.EndOptions{Force: true, Discard: true})
		must(t, err)
		begin(mode)
	}
	for mode := range modes {
		begin(mode)
	}
	failed, well, all, kills := 0, 0, 0, 0
	for round := range testrig.Rounds(2) {
		ctx := t.Context() // to leave a call is to abort it
		var over atomic.Bool
		var wait sync.WaitGroup
		for mode, w := range workers {
			wait.Go(func() {
				for !over.Load() {
					if err := w.one(ctx); err != nil {
						t.Errorf("round %d, %s: %v", round, mode, err)
						return
					}
				}
			})
		}
		tree := workers[client.WorktreeOverlay].session
		wait.Go(func() {
			for i := 0; !over.Load(); i++ {
				do := treeRequests[[]string{"checkpoint", "diff", "changes"}[i%3]]
				e, answered := errors.AsType[*client.Error](do(ctx, r.admin, tree))
				if answered && e.Code == client.CodeInternal {
					t.Errorf("round %d, request %d: %v", round, i%3, e)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		for range 3 {
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
			must(t, other.fill())
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
			if random.IntN(4) == 0 {
				r.kill(t)
				r.launch(t)
				r.answers(t)
				kills++
			}
			must(t, other.free())
		}
		must(t, r.daemon.Ready())
		over.Store(true)
		wait.Wait()
		if os.Getenv("TOOLD_TEST_LONG") != "" { // what lies in memory and not on the disk is no proof
			unix.Sync()
			must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0))
		}
		for mode, w := range workers {
			var s *client.Session
			testrig.Eventually(t, "the daemon goes on", func() bool {
				var err error
				s, err = r.admin.GetSession(t.Context(), w.session)
				return err == nil
			})
			what := fmt.Sprintf("round %d, %s, session %s: %s %q", round, mode, s.ID, s.State, s.Reason)
			if s.State != client.SessionReady {
				t.Fatal(what)
			}
			for _, ended := range w.over {
				if all++; ended {
					well++
				}
			}
			if s.Reason != "disk" {
				bad := w.differing(t, modes[mode])
				if clear(w.over); bad == "" {
					continue
				}
				testrig.Eventually(t, what+", and has lost what calls wrote that ended well: "+bad, func() bool {
					s, err := r.admin.GetSession(t.Context(), w.session)
					must(t, err)
					return s.Reason == "disk"
				})
			}
			failed++
			r.failedSays(t, what, w.session, mode == client.WorktreeOverlay)
			renew(mode)
		}
	}
	t.Logf("%d rounds, %d kills, %d calls of which %d ended well, %d disks failed and said so", testrig.Rounds(2), kills, all, well, failed)
	state := filepath.Join(root, "state")
	for name, of := range map[string]struct{ hinder, free func() error }{
		"full": {other.fill, other.free},
		"read-only": {func() error {
			return errors.Join(unix.Mount(state, state, "", unix.MS_BIND, ""), unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
		}, func() error { return unix.Unmount(state, unix.MNT_DETACH) }},
	} {
		must(t, of.hinder())
		r.kill(t)
		r.launch(t)
		r.answers(t)
		if list, err := r.admin.ListSessions(t.Context(), client.SessionQuery{}); err != nil || len(list.Items) == 0 {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
		must(t, of.free())
		must(t, r.daemon.Ready())
	}
	for mode := range workers {
		if !r.again(t, workers[mode].session) { // what was removed last may have had no room to be written down
			renew(mode)
			if !r.again(t, workers[mode].session) {
				t.Errorf("%s: the disk of a session that began when there was room has failed", mode)
			}
		}
	}
}

// again waits until calls run in a session, or it says that its disk has failed.
func (r *rig) again(t *testing.T, session string) (runs bool) {
	t.Helper()
	testrig.Eventually(t, "calls run again in session "+session+", or it says that its disk has failed", func() bool {
		c, err := tryCall(r.admin, session, "bash", map[string]any{"command": "echo again"})
		if runs = err == nil && c.Output == "again\n"; runs {
			return true
		}
		s, err := r.admin.GetSession(t.Context(), session)
		return err == nil && s.State == client.SessionReady && s.Reason == "disk"
	})
	return runs
}
