package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/session/trees"
)

// hindrances are what a session, or the host, can put in the way of all that is done with its
// changes.
var hindrances = map[string]struct {
	inside, host string
	short        bool // also where time is short
}{
	"a full disk":             {inside: "echo 1 >new; cat /dev/zero >big 2>/dev/null; rm old; true", short: true},
	"a root of mode 0":        {inside: "echo 1 >new; rm old; mkdir .toold; echo = >.toold/policy.toml; chmod 0 .", short: true},
	"a directory of mode 0":   {inside: "mkdir d; echo 1 >d/new; rm old; chmod 0 d"},
	"one of the source's":     {inside: "echo 1 >dir/new; chmod 0 dir"},
	"rules that hold nothing": {inside: "echo 1 >new; mkdir .toold; echo = >.toold/policy.toml", short: true},
	"files of mode 0":         {inside: "echo 1 >new; echo 2 >old; chmod 0 new old"},
	"a read-only source":      {inside: "echo 1 >new; rm old", host: "mount -o remount,ro ."},
	"a full source":           {inside: "echo 1 >new; head -c 2000000 /dev/zero >big; rm old", host: "cat /dev/zero >full 2>/dev/null || true"},
	"a source of mode 0":      {inside: "echo 1 >new; rm old", host: "chmod 0 ."},
	"no inode":                {inside: "echo 1 >new; rm old; mkdir i; cd i; seq 200000 | xargs touch 2>/dev/null; true", short: true},
	"a file for a directory":  {inside: "rm -r dir; echo 1 >dir; mkdir old2; mv old old2"},
	"a cache of mode 0":       {inside: "echo 1 >new; rm old; mkdir -p /caches/own/d; echo 1 >/caches/own/d/f; chmod 0 /caches/own/d/f /caches/own/d /caches/own"},
	"a full cache":            {inside: "echo 1 >new; rm old; cat /dev/zero >/caches/own/f 2>/dev/null; true", short: true},
	"a directory below that":  {inside: "echo 1 >dir/new; chmod 500 dir; chmod 0 ."},
}

// dueCheckpoint is what makes a checkpoint before a call, or says with it why there is none.
const dueCheckpoint = "a call with a checkpoint"

// hindered are what is done with changes.
var hindered = []struct {
	name string
	do   func(ctx context.Context, m *Manager, id string) error
}{
	{"list", func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Changes(ctx, owner, id, client.DiffQuery{})
		return err
	}},
	{"diff", func(ctx context.Context, m *Manager, id string) error {
		r, err := m.trees.Diff(ctx, owner, id, client.DiffQuery{})
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		return errors.Join(err, r.Close())
	}},
	{"apply --dry-run", func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Apply(ctx, owner, id, client.ApplyRequest{DryRun: true})
		return err
	}},
	{"checkpoint", func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Checkpoint(ctx, owner, id, client.CheckpointCreate{})
		return err
	}},
	{"fork", func(ctx context.Context, m *Manager, id string) error {
		s, err := m.trees.Fork(ctx, owner, id, client.ForkRequest{})
		if err == nil {
			_, err = m.End(ctx, owner, s.ID, client.EndOptions{Force: true})
		}
		return err
	}},
	{"checkpoints", func(ctx context.Context, m *Manager, id string) error {
		list, err := m.trees.Checkpoints(ctx, owner, id)
		if err == nil && len(list.Items) > 1 {
			err = m.trees.DropCheckpoint(ctx, owner, id, list.Items[len(list.Items)-1].ID)
		}
		return err
	}},
	{"promote a cache", func(ctx context.Context, m *Manager, id string) error {
		_, err := m.Caches.PromoteCache(ctx, owner, id, "own")
		return err
	}},
	{"discard a path", func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Discard(ctx, owner, id, client.DiscardRequest{Paths: []string{"old", "d", "dir"}})
		return err
	}},
	{dueCheckpoint, func(ctx context.Context, m *Manager, id string) error {
		before := *m.settings.Load()
		defer m.Reload(before)
		set := before
		set.Worktrees.Checkpoint = trees.EachCall
		m.Reload(set)
		c, err := m.calls.Call(ctx, alice, id, client.CallCreate{Tool: "bash", Input: []byte(`{"command":"true"}`)}, call.Options{})
		if err != nil || c.Error != nil || c.Metadata["checkpoint"] != nil {
			return err
		}
		why, next, _ := strings.Cut(fmt.Sprint(c.Metadata["checkpoint_missing"]), "; ")
		return fault.Conflict.Errorf("checkpoint_missing: %s", why).Next(next)
	}},
	{"undo", func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Restore(ctx, owner, id, client.RestoreRequest{Undo: 1})
		return err
	}},
	{"restore", func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Restore(ctx, owner, id, client.RestoreRequest{Checkpoint: "first"})
		return err
	}},
	{"apply", func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Apply(ctx, owner, id, client.ApplyRequest{})
		return err
	}},
}

// TestRealHindered: whatever is in the way of what is done with a session's changes, there is an
// answer that says what, and what to do next; and discard takes all of them away.
func TestRealHindered(t *testing.T) {
	a := newApplyRig(t)
	top, n := a.src, 0
	set := *a.m.settings.Load()
	set.Caches = cache.Settings{{
		Cache: builtin.Cache{Name: "own", Dirs: []builtin.Dir{{Name: "own"}}}, Path: "/caches/own", Mode: client.CacheCow, Size: 32 << 20, Promote: []string{"build"},
	}}
	a.m.Reload(set)
	for name, tt := range hindrances {
		for _, over := range []bool{false, true} {
			if os.Getenv("TOOLD_TEST_LONG") == "" && (!tt.short || over != (name == "rules that hold nothing")) {
				continue
			}
			n++
			what := fmt.Sprintf("%s, over %v", name, over)
			a.src = fmt.Sprintf("%s/%d", top, n)
			a.must(os.Mkdir(a.src, 0o755))
			if tt.host != "" {
				a.must(errors.Join(unix.Mount("tmpfs", a.src, "tmpfs", 0, "size=1m,mode=755")))
				dir := a.src
				t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			}
			a.must(os.Chown(a.src, int(alice.UID), int(alice.GID)))
			a.host(".", "echo old >old; mkdir dir; echo 1 >dir/f")
			v, err := a.m.Create(t.Context(), owner, client.SessionCreate{
				Worktree: client.Worktree{Source: a.src, Mode: client.WorktreeOverlay}, Caches: []client.CacheUse{{Name: "own"}}, IdleTimeout: -1,
			})
			a.must(err)
			id := v.ID
			a.bash(id, "echo first >first")
			_, err = a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{Name: "first"})
			a.must(err)
			a.bash(id, tt.inside)
			if over {
				a.end(id)
			}
			if tt.host != "" {
				cmd := exec.Command("sh", "-ec", tt.host)
				cmd.Dir = a.src
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v %s", tt.host, err, out)
				}
			}
			for _, op := range hindered {
				if over && (op.name == "promote a cache" || op.name == dueCheckpoint) {
					continue // its caches went with it, and it has no calls
				}
				err := op.do(t.Context(), a.m, id)
				var f *fault.Error
				switch {
				case err == nil:
				case !errors.As(err, &f) || f.Kind == fault.Internal || f.Kind == fault.Over || f.Hint == "":
					t.Errorf("%s, %s: %v", what, op.name, err)
				default:
					t.Logf("%s, %s: %v", what, op.name, err)
				}
			}
			if _, err := a.m.trees.Discard(t.Context(), owner, id, client.DiscardRequest{}); err != nil {
				t.Errorf("%s, discard: %v", what, err)
			}
			if !over {
				a.end(id)
			}
		}
	}
}

// TestRealSourceReplaced: what somebody puts in the place of a source, no request loses the session
// for it: they are refused, or done without it, and all is well when the source is back.
func TestRealSourceReplaced(t *testing.T) {
	a := newApplyRig(t)
	top := a.src
	for name, tt := range map[string]struct {
		how   string
		short bool // also where time is short
	}{
		"a file":            {"echo >src", true},
		"nothing":           {"true", false},
		"another directory": {"mkdir src", true},
		"a link to it":      {"ln -s gone src", false},
	} {
		if os.Getenv("TOOLD_TEST_LONG") == "" && !tt.short {
			continue
		}
		in := top + "/" + strings.ReplaceAll(name, " ", "-")
		a.src = in + "/src"
		a.must(os.MkdirAll(a.src, 0o755))
		a.must(os.Chown(a.src, int(alice.UID), int(alice.GID)))
		a.host(".", "echo old >old; mkdir dir; echo 1 >dir/f")
		id := a.session("")
		a.bash(id, "echo first >first")
		_, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{Name: "first"})
		a.must(err)
		a.bash(id, "echo 1 >new; rm old")
		a.must(os.Rename(a.src, in+"/gone"))
		if out, err := exec.Command("sh", "-ec", "cd "+in+"; "+tt.how).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		for _, op := range hindered {
			if op.name == "promote a cache" {
				continue
			}
			err := op.do(t.Context(), a.m, id)
			var f *fault.Error
			if err != nil && (!errors.As(err, &f) || f.Kind == fault.Internal || f.Kind == fault.Over || f.Hint == "") {
				t.Errorf("%s in its place, %s: %v", name, op.name, err)
			}
		}
		if got := a.bash(id, "cat first new"); !strings.HasPrefix(got, "first\n1\n(the worktree's source ") {
			t.Errorf("%s in its place: the session has %q", name, got)
		}
		a.must(errors.Join(os.RemoveAll(a.src), os.Rename(in+"/gone", a.src)))
		a.apply(id, client.ApplyRequest{})
		a.holds("new", "1\n")
		a.end(id)
	}
}
