package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/thread"
)

// unmountWorktree takes the worktree of a session off in its sandbox, with all that lies in it.
func unmountWorktree(m *Manager, session string) error {
	s, err := m.find(owner, session)
	if err != nil {
		return err
	}
	var rec struct{ PID int }
	row := s.Row()
	if err := json.Unmarshal(row.Record, &rec); err != nil || rec.PID < 2 {
		return fmt.Errorf("the sandbox's process is %d, %w", rec.PID, err)
	}
	_, err = thread.Run(func() (struct{}, error) {
		ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", rec.PID), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return struct{}{}, err
		}
		defer unix.Close(ns)
		if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(ns, unix.CLONE_NEWNS)); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, unix.Unmount(sandbox.Workspace, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	})
	return err
}

// unmounted: a worktree that is not mounted in its sandbox has not lost all its files. What looks
// there says so and does nothing; what is laid anew is there again.
func (r *treeRig) unmounted() {
	t := r.t
	t.Helper()
	ctx := t.Context()
	looks := map[string]func(m *Manager) error{
		"changes": func(m *Manager) error {
			_, err := m.trees.Changes(ctx, owner, "tree", client.DiffQuery{})
			return err
		},
		"diff": func(m *Manager) error {
			body, err := m.trees.Diff(ctx, owner, "tree", client.DiffQuery{})
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, body)
			return errors.Join(err, body.Close())
		},
		"apply": func(m *Manager) error {
			_, err := m.trees.Apply(ctx, owner, "tree", client.ApplyRequest{Force: true})
			return err
		},
		"dry run": func(m *Manager) error {
			_, err := m.trees.Apply(ctx, owner, "tree", client.ApplyRequest{DryRun: true})
			return err
		},
		"discard of a path": func(m *Manager) error {
			_, err := m.trees.Discard(ctx, owner, "tree", client.DiscardRequest{Paths: []string{"two"}})
			return err
		},
	}
	lays := map[string]func(ctx context.Context, m *Manager) error{"one two": treeOps[0].do, "one": treeOps[1].do, "*": treeOps[4].do}
	for after, lay := range lays {
		r.daemon(func(m *Manager) {
			r.bash(m, "echo one >one; echo two >two")
			if err := unmountWorktree(m, "tree"); err != nil {
				t.Fatal(err)
			}
			for name, look := range looks {
				if err := look(m); !errors.Is(err, fault.Sandbox) {
					t.Errorf("%s of a worktree that is not mounted: %v", name, err)
				}
			}
			if got := sourceFiles(t, r.src); len(got) > 0 {
				t.Errorf("the source has %q", got)
			}
			if err := lay(ctx, m); err != nil {
				t.Errorf("laid anew to be %q: %v", after, err)
			}
			if got := r.bash(m, "echo *"); got != after {
				t.Errorf("laid anew there is %q, want %q", got, after)
			}
		})
	}
}
