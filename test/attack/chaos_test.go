package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// treeRequests are those about the worktree of a session of mode overlay, and its cache. Each may
// be made again.
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
	"promote": func(ctx context.Context, c *client.Client, s string) error {
		_, err := c.PromoteCache(ctx, s, "notes")
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

// chaosSeed is what a run's random choices come from: TOOLD_TEST_SEED, so that it is repeated, or
// a new one, which is printed.
func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("TOOLD_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	t.Logf("TOOLD_TEST_SEED=%d", seed)
	return seed
}

// TestChaosTrees: a daemon is killed at any moment of a request about a worktree, and asked the
// same again while it starts. No session is lost, and no answer says that files were deleted
// which nobody has deleted.
func TestChaosTrees(t *testing.T) {
	random := rand.New(rand.NewPCG(chaosSeed(t), 0))
	r := newRig(t, nil, caches)
	notes := []client.CacheUse{{Name: "notes"}}
	var x *client.Session
	begin := func() {
		t.Helper()
		tree := r.tree(t)
		must(t, os.WriteFile(filepath.Join(tree, "kept"), []byte("kept\n"), 0o666))
		x = r.session(t, r.admin, client.SessionCreate{Worktree: client.Worktree{Source: tree, Mode: client.WorktreeOverlay}, Caches: notes})
		_, err := r.admin.Checkpoint(t.Context(), x.ID, client.CheckpointCreate{Name: "first"})
		must(t, err)
	}
	begin()
	names := slices.Sorted(maps.Keys(treeRequests)) // by the seed alone
	rounds := testrig.Rounds(len(names))
	lost, again := 0, 0
	for round := range rounds {
		at := round % len(names)
		if at == 0 {
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		}
		name := names[at]
		do := treeRequests[name]
		what := fmt.Sprintf("round %d, %s", round, name)
		if c := bash(t, r.admin, x.ID, fmt.Sprintf("echo %d >f%d; mkdir -p d; echo %[1]d >d/g; echo %[1]d >/caches/notes/a && cp /caches/notes/a /caches/notes/b; cat kept", round, round%5)); c.Output != "kept\n" {
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
		if name == "promote" {
			later := r.session(t, r.admin, client.SessionCreate{Caches: notes})
			if c := bash(t, r.admin, later.ID, "cd /caches/notes && [ -s a ] && [ \"$(cat a)\" = \"$(cat b)\" ] && echo same"); c.Output != "same\n" {
				t.Errorf("%s: a later session has of the cache %+v", what, c)
			}
			_, err := r.admin.EndSession(t.Context(), later.ID, client.EndOptions{Force: true})
			must(t, err)
		}
	}
	t.Logf("%d rounds, %d sessions lost, %d times refused while it started", rounds, lost, again)
}

// TestChaosSource: two sessions over one source, of one daemon and of two, change the same 300
// files and are applied at once; in some rounds a daemon is killed meanwhile. The source has
// afterwards all of one or, after a kill, nothing of any; who is refused has changed nothing.
func TestChaosSource(t *testing.T) {
	const files = 300
	seed := chaosSeed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	one := newRig(t, nil, "")
	two := newRig(t, nil, "")
	two.stop(t) // it is to have the sources of the other
	must(t, os.WriteFile(two.config, []byte(strings.ReplaceAll(read(two.config), two.trees, one.trees)), 0o600))
	two.start(t)
	outcomes := make(map[string]int)
	for round := range testrig.Rounds(2) {
		tree := one.tree(t)
		for i := range files {
			must(t, os.WriteFile(filepath.Join(tree, fmt.Sprintf("f%03d", i)), []byte("old\n"), 0o666))
		}
		rigs := [2]*rig{one, one}
		if round%2 == 1 {
			rigs[1] = two
		}
		var ids [2]string
		for i, r := range rigs {
			ids[i] = r.session(t, r.admin, client.SessionCreate{Worktree: client.Worktree{Source: tree, Mode: client.WorktreeOverlay}}).ID
			if c := bash(t, r.admin, ids[i], fmt.Sprintf("for f in f*; do echo %d >$f; done", i)); c.IsError {
				t.Fatalf("%+v", c)
			}
			if current.name == "runsc" { // which takes no mount into a running sandbox: afterwards
				_, err := r.admin.EndSession(t.Context(), ids[i], client.EndOptions{Force: true})
				must(t, err)
			}
		}
		var errs [2]error
		var wait sync.WaitGroup
		for i, r := range rigs {
			wait.Go(func() { _, errs[i] = r.admin.Apply(t.Context(), ids[i], client.ApplyRequest{}) })
		}
		killed := round%4 == 1 || round%4 == 2
		if killed {
			time.Sleep(time.Duration(random.IntN(150_000)) * time.Microsecond)
			one.kill(t)
		}
		wait.Wait()
		if killed {
			one.start(t)
			// What one of them had decided on is carried out before anything else looks there.
			_, err := one.admin.Apply(t.Context(), ids[0], client.ApplyRequest{DryRun: true})
			if e, ok := errors.AsType[*client.Error](err); err != nil && (!ok || e.Code != client.CodeConflict) {
				t.Errorf("round %d: afterwards: %v", round, err)
			}
		}
		has := make(map[string]int)
		for i := range files {
			has[read(filepath.Join(tree, fmt.Sprintf("f%03d", i)))]++
		}
		what := fmt.Sprintf("round %d of seed %d, killed %t: %v: the source has %v", round, seed, killed, errs, has)
		if len(has) != 1 || !killed && has["old\n"] > 0 {
			t.Errorf("%s: of more than one", what)
		}
		for i, err := range errs {
			e, refused := errors.AsType[*client.Error](err)
			applied := has[fmt.Sprintf("%d\n", i)] == files
			switch {
			case err == nil && applied, killed:
			case !refused || e.Code != client.CodeConflict || !strings.Contains(e.Message, "nothing was applied") || applied:
				t.Errorf("%s: session %d", what, i)
			}
		}
		for content := range has {
			outcomes[strings.TrimSpace(content)]++
		}
		for i, r := range rigs {
			_, err := r.admin.Discard(t.Context(), ids[i], client.DiscardRequest{})
			must(t, err)
			_, err = r.admin.EndSession(t.Context(), ids[i], client.EndOptions{Force: true})
			must(t, err)
		}
	}
	t.Logf("%d rounds, the source had afterwards: %v", testrig.Rounds(2), outcomes)
}
