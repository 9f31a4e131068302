package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
// A session that lives had a checkpoint "first" when it had nothing but the file kept.
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
	"discard of a path": func(ctx context.Context, c *client.Client, s string) error {
		_, err := c.Discard(ctx, s, client.DiscardRequest{Paths: []string{"f0"}})
		return err
	},
	"end": func(ctx context.Context, c *client.Client, s string) error {
		_, err := c.EndSession(ctx, s, client.EndOptions{Force: true, Discard: true})
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

// chaosRequest is one of treeRequests, of a session that lives or of one that is over.
type chaosRequest struct {
	name string
	over bool
}

// String implements fmt.Stringer.
func (q chaosRequest) String() string {
	if q.over {
		return q.name + " of one that is over"
	}
	return q.name
}

// laid are the requests that give a session that lives its worktree anew.
var laid = []string{"apply", "checkpoint", "discard", "fork", "restore", "undo"}

// fair reports whether a refusal is all that can be had here: nothing is left to undo, or gVisor takes
// no mount into a sandbox that runs. Any other one hides a request that should have been carried out.
func (q chaosRequest) fair(e *client.Error) bool {
	if q.name == "undo" && e.Code == client.CodeNotFound {
		return true
	}
	return current.program == "runsc" && !q.over && slices.Contains(laid, q.name) && e.Code == client.CodeConflict &&
		strings.Contains(e.Message, "gVisor takes no mount into a running sandbox")
}

// chaosRequests are all that can be asked of a session that goes on, and of one that is over. The
// seed alone says in which order.
func chaosRequests() (all []chaosRequest) {
	for _, name := range slices.Sorted(maps.Keys(treeRequests)) {
		if name != "end" {
			all = append(all, chaosRequest{name, false})
		}
	}
	for _, name := range []string{"apply", "changes", "diff", "discard", "discard of a path", "end", "fork"} {
		all = append(all, chaosRequest{name, true})
	}
	return all
}

// overSession makes a session over a source of its own, has it write f0 and d/g, and ends it.
func (r *rig) overSession(t *testing.T, text string) (id, tree string) {
	t.Helper()
	tree, err := os.MkdirTemp(r.trees, "over-")
	must(t, err)
	must(t, os.Chmod(tree, 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "kept"), []byte("kept\n"), 0o666))
	id = r.session(t, r.admin, client.SessionCreate{Worktree: client.Worktree{Source: tree, Mode: client.WorktreeOverlay}}).ID
	if c := bash(t, r.admin, id, fmt.Sprintf("echo %s >f0; mkdir d; echo %[1]s >d/g; cat kept", text)); c.Output != "kept\n" {
		t.Fatalf("%+v", c)
	}
	_, err = r.admin.EndSession(t.Context(), id, client.EndOptions{Force: true})
	must(t, err)
	return id, tree
}

// checkOver sees what a request has made of a session by overSession: all of it, or nothing else.
func (r *rig) checkOver(t *testing.T, what string, q chaosRequest, id, tree, text string) {
	t.Helper()
	var changed []string
	all, err := r.admin.Changes(t.Context(), id, client.DiffQuery{Limit: 1000})
	e, answered := errors.AsType[*client.Error](err)
	switch {
	case q.name == "end" && answered && e.Code == client.CodeNotFound:
	case err != nil:
		t.Errorf("%s, afterwards: %v", what, err)
		return
	default:
		for _, c := range all.Items {
			changed = append(changed, c.Path)
		}
	}
	want := []string{"d", "d/g", "f0"}
	switch q.name {
	case "apply", "discard", "end":
		want = nil
	case "discard of a path":
		want = want[:2]
	}
	if !slices.Equal(changed, want) {
		t.Errorf("%s, afterwards: changes are %q, want %q", what, changed, want)
	}
	source := ""
	for _, name := range []string{"f0", "d/g", "kept"} {
		b, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		source += string(b)
	}
	if want := "kept\n"; source != want && (q.name != "apply" || source != text+"\n"+text+"\n"+want) || q.name == "apply" && source == want {
		t.Errorf("%s, afterwards: the source has %q", what, source)
	}
}

// tally counts what became of requests.
type tally map[string]*struct{ done, refused int }

func (y tally) add(q chaosRequest, err error) {
	if y[q.String()] == nil {
		y[q.String()] = new(struct{ done, refused int })
	}
	if err == nil {
		y[q.String()].done++
	} else {
		y[q.String()].refused++
	}
}

// String implements fmt.Stringer.
func (y tally) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(y)) {
		all = append(all, fmt.Sprintf("%s %d+%d", name, y[name].done, y[name].refused))
	}
	return strings.Join(all, ", ")
}

// TestChaosTrees: a daemon is killed at any moment of a request about a worktree, and asked the
// same again while it starts. No session is lost, and no answer says that files were deleted
// which nobody has deleted. What is asked of a session that is over is carried out as a whole, on
// gVisor too, which refuses most of it of a session that lives.
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
	requests := chaosRequests()
	const few = 10 // also with -short: on other tiers another part of them each time
	rounds := max(few, testrig.Rounds(few))
	lost, again, became := 0, 0, make(tally)
	for round := range rounds {
		at := round % len(requests)
		if at == 0 {
			random.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		}
		q := requests[at]
		do := treeRequests[q.name]
		what := fmt.Sprintf("round %d, %s", round, q)
		if c := bash(t, r.admin, x.ID, fmt.Sprintf("echo %d >f%d; mkdir -p d; echo %[1]d >d/g; echo %[1]d >/caches/notes/a && cp /caches/notes/a /caches/notes/b; cat kept", round, round%5)); c.Output != "kept\n" {
			t.Fatalf("%s: before it: %+v", what, c)
		}
		asked, tree, text, within := x.ID, "", fmt.Sprint(round), 30*time.Millisecond
		if q.over { // a sandbox is made for most of it, which takes its time
			asked, tree = r.overSession(t, text)
			if within *= 10; current.program == "runsc" {
				within *= 8
			}
		}
		done := make(chan error, 1)
		c := client.New(client.Options{Socket: r.socket, HTTPTimeout: patience})
		go func() { done <- do(context.Background(), c, asked) }()
		time.Sleep(time.Duration(random.Int64N(int64(within))))
		r.kill(t)
		if err := <-done; errors.Is(err, errDeletes) {
			t.Errorf("%s, as it was killed: %v", what, err)
		}
		c.Close()
		r.launch(t)
		for wait := time.Now().Add(patience); ; again++ {
			err := do(t.Context(), r.admin, asked)
			_, down := errors.AsType[*client.UnreachableError](err)
			e, answered := errors.AsType[*client.Error](err)
			if (down || answered && e.Code == client.CodeOverloaded) && time.Now().Before(wait) {
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil && (!answered || !q.fair(e)) {
				t.Errorf("%s, while it started: %v", what, err)
			}
			became.add(q, err)
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
		switch {
		case q.over:
			r.checkOver(t, what, q, asked, tree, text)
			r.endOthers(t, x.ID) // a fork that was made, and of which nobody was told
			_, err := r.admin.EndSession(t.Context(), asked, client.EndOptions{Force: true, Discard: true})
			must(t, err)
		case q.name == "apply": // from before which no checkpoint is
			_, err := r.admin.EndSession(t.Context(), x.ID, client.EndOptions{Force: true, Discard: true})
			must(t, err)
			begin()
		case q.name == "promote":
			later := r.session(t, r.admin, client.SessionCreate{Caches: notes})
			if c := bash(t, r.admin, later.ID, "cd /caches/notes && [ -s a ] && [ \"$(cat a)\" = \"$(cat b)\" ] && echo same"); c.Output != "same\n" {
				t.Errorf("%s: a later session has of the cache %+v", what, c)
			}
			_, err := r.admin.EndSession(t.Context(), later.ID, client.EndOptions{Force: true})
			must(t, err)
		case q.name == "fork":
			r.endOthers(t, x.ID)
		}
	}
	t.Logf("%d rounds, %d sessions lost, %d times refused while it started; done + refused: %s", rounds, lost, again, became)
}

// endOthers ends all sessions but one.
func (r *rig) endOthers(t *testing.T, but string) {
	t.Helper()
	list, err := r.admin.ListSessions(t.Context(), client.SessionQuery{})
	must(t, err)
	for _, s := range list.Items {
		if s.ID != but {
			_, err := r.admin.EndSession(t.Context(), s.ID, client.EndOptions{Force: true, Discard: true})
			if e, answered := errors.AsType[*client.Error](err); err != nil && (!answered || e.Code != client.CodeNotFound) {
				t.Errorf("end %s: %v", s.ID, err)
			}
		}
	}
}

// hands are how the two of a round of TestChaosSource come to one source.
type hands struct{ two, nested, killed bool }

// chaosHands are all kinds of rounds, the usual ones first.
var chaosHands = []hands{
	{two: true},
	{},
	{two: true, nested: true},
	{killed: true},
	{nested: true},
	{two: true, killed: true},
	{},
	{two: true, nested: true, killed: true},
}

// TestChaosSource: two sessions over one source, or one in the other's, of one daemon and of two, change the same 300
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
	rounds := max(2, testrig.Rounds(4))
	for round := range rounds {
		kind := chaosHands[round%len(chaosHands)]
		killed := kind.killed
		sources := [2]string{one.tree(t)}
		sources[1] = sources[0]
		tree, below := sources[0], "."
		if kind.nested {
			below = "sub"
			tree = filepath.Join(tree, below)
			must(t, os.Mkdir(tree, 0o755))
			sources[1] = tree
		}
		for i := range files {
			must(t, os.WriteFile(filepath.Join(tree, fmt.Sprintf("f%03d", i)), []byte("old\n"), 0o666))
		}
		rigs := [2]*rig{one, one}
		if kind.two {
			rigs[1] = two
		}
		var ids [2]string
		for i, r := range rigs {
			ids[i] = r.session(t, r.admin, client.SessionCreate{Worktree: client.Worktree{Source: sources[i], Mode: client.WorktreeOverlay}}).ID
			dir := "."
			if i == 0 {
				dir = below
			}
			if c := bash(t, r.admin, ids[i], fmt.Sprintf("cd %s && for f in f*; do echo %d >$f; done", dir, i)); c.IsError {
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
		what := fmt.Sprintf("round %d of seed %d, %+v: %v: the source has %v", round, seed, kind, errs, has)
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
	t.Logf("%d rounds, the source had afterwards: %v", rounds, outcomes)
}
