package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// treeRequests are those about the worktree of a session of mode overlay. Each may be made again.
// The session had a checkpoint "first" when it had nothing but the file kept.
var treeRequests = map[string]func(ctx context.Context, c *client.Client, session string) error{
	"diff": func(ctx context.Context, c *client.Client, s string) error {
		p, err := c.Diff(ctx, s, client.DiffQuery{})
		if err != nil {
			return err
		}
		defer p.Close()
		text, err := io.ReadAll(p)
		if strings.Contains(string(text), "\ndeleted file") {
			return fmt.Errorf("%w:\n%s", errDeletes, text)
		}
		return err
	},
	"changes": func(ctx context.Context, c *client.Client, s string) error { return nothingDeleted(ctx, c, s) },
	"apply": func(ctx context.Context, c *client.Client, s string) error {
		_, err := c.Apply(ctx, s, client.ApplyRequest{Force: true})
		return err
	},
	"discard": func(ctx context.Context, c *client.Client, s string) error {
		_, err := c.Discard(ctx, s, client.DiscardRequest{})
		return err
	},
	"checkpoint": func(ctx context.Context, c *client.Client, s string) error {
		_, err := c.Checkpoint(ctx, s, client.CheckpointCreate{})
		return err
	},
	"restore": func(ctx context.Context, c *client.Client, s string) error {
		_, err := c.Restore(ctx, s, client.RestoreRequest{Checkpoint: "first"})
		return err
	},
	"undo": func(ctx context.Context, c *client.Client, s string) error {
		_, err := c.Restore(ctx, s, client.RestoreRequest{Undo: 1})
		return err
	},
	"fork": func(ctx context.Context, c *client.Client, s string) error {
		f, err := c.Fork(ctx, s, client.ForkRequest{})
		if err == nil {
			_, err = c.EndSession(ctx, f.ID, client.EndOptions{Force: true, Discard: true})
		}
		return err
	},
}

var errDeletes = errors.New("it deletes files that nobody has deleted")

// nothingDeleted lists the changes of a session.
func nothingDeleted(ctx context.Context, c *client.Client, session string) error {
	all, err := c.Changes(ctx, session, client.DiffQuery{Limit: 1000})
	if err != nil {
		return err
	}
	for _, x := range all.Items {
		if x.Status == client.ChangeDeleted {
			return fmt.Errorf("%w: %+v", errDeletes, all.Items)
		}
	}
	return nil
}

// TestChaosTrees: a daemon is killed at any moment of a request about a worktree, and asked the
// same again while it starts. No session is lost, and no answer says that files were deleted
// which nobody has deleted. TOOLD_TEST_SEED repeats a run.
func TestChaosTrees(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("TOOLD_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("TOOLD_TEST_SEED=%d", seed)
	r := newRig(t, nil, "")
	var x *client.Session
	begin := func() {
		t.Helper()
		tree := r.tree(t)
		must(t, os.WriteFile(filepath.Join(tree, "kept"), []byte("kept\n"), 0o666))
		x = r.session(t, r.admin, client.SessionCreate{Worktree: client.Worktree{Source: tree, Mode: client.WorktreeOverlay}})
		_, err := r.admin.Checkpoint(t.Context(), x.ID, client.CheckpointCreate{Name: "first"})
		must(t, err)
	}
	begin()
	var names []string
	for name := range treeRequests {
		names = append(names, name)
	}
	lost, again := 0, 0
	for round := range testrig.Rounds(8) {
		name := names[random.IntN(len(names))]
		do := treeRequests[name]
		what := fmt.Sprintf("round %d, %s", round, name)
		if c := bash(t, r.admin, x.ID, fmt.Sprintf("echo %d >f%d; mkdir -p d; echo %[1]d >d/g; cat kept", round, round%5)); c.Output != "kept\n" {
			t.Fatalf("%s: before it: %+v", what, c)
		}
		done := make(chan error, 1)
		c := client.New(client.Options{Socket: r.socket, HTTPTimeout: patience})
		go func() { done <- do(context.Background(), c, x.ID) }()
		time.Sleep(time.Duration(random.IntN(30_000)) * time.Microsecond)
		r.kill(t)
		if err := <-done; errors.Is(err, errDeletes) {
			t.Errorf("%s, as it was killed: %v", what, err)
		}
		c.Close()
		r.launch(t)
		for wait := time.Now().Add(patience); ; again++ {
			err := do(t.Context(), r.admin, x.ID)
			_, down := errors.AsType[*client.UnreachableError](err)
			e, answered := errors.AsType[*client.Error](err)
			if (down || answered && e.Code == client.CodeOverloaded) && time.Now().Before(wait) {
				time.Sleep(time.Millisecond)
				continue
			}
			// Where nothing is left to undo, or a tier takes no checkpoints, that is an answer.
			fair := answered && (e.Code == client.CodeConflict || e.Code == client.CodeNotFound && name == "undo")
			if err != nil && !fair {
				t.Errorf("%s, while it started: %v", what, err)
			}
			break
		}
		must(t, r.daemon.Ready())
		s, err := r.admin.GetSession(t.Context(), x.ID)
		if err != nil || s.State != client.SessionReady {
			t.Errorf("%s: the session is %s: %s, %v", what, s.State, s.Reason, err)
			lost++
			begin()
			continue
		}
		if err := nothingDeleted(t.Context(), r.admin, x.ID); err != nil {
			t.Errorf("%s, afterwards: %v", what, err)
		}
		if c := bash(t, r.admin, x.ID, "cat kept"); c.Output != "kept\n" {
			t.Errorf("%s, afterwards: %+v", what, c)
		}
	}
	t.Logf("%d rounds, %d sessions lost, %d times refused while it started", testrig.Rounds(8), lost, again)
}
