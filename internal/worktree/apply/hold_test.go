package apply

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hostlock"
	"github.com/toold/toold/internal/testrig"
)

// at is a session over the source of another one, or over a directory in it.
func (g *rig) at(dir string) *rig {
	g.t.Helper()
	o := begin(g.t, filepath.Join(g.source, dir))
	o.job.Since = g.job.Since
	return o
}

// both applies two sessions at once.
func both(one, two *rig) (errs [2]error) {
	one.t.Helper()
	archives := [2][]byte{archiveOf(one.t, one.source, one.work), archiveOf(two.t, two.source, two.work)}
	start := make(chan struct{})
	var wait sync.WaitGroup
	for i, g := range []*rig{one, two} {
		wait.Go(func() {
			<-start
			_, errs[i] = g.applyArchive(client.ApplyRequest{}, archives[i])
		})
	}
	close(start)
	wait.Wait()
	return errs
}

// Of two jobs that change the same files of a source at once, one is applied whole and the
// other refused whole; two that change others are both applied. So it is where the source of
// one lies in that of the other.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	seed := uint64(9)
	for round := range testrig.Rounds(20) {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		files := make(map[string]string)
		for i := range 2 + r.IntN(150) {
			files[fmt.Sprintf("sub/%d/%d", i%7, i)] = "old"
		}
		one := begin(t, tree(t, files))
		below := []string{".", "sub", "sub/1"}[r.IntN(3)]
		two := one.at(below)
		meet := false
		for name := range files {
			if r.IntN(3) > 0 {
				write(t, one.work, map[string]string{name: "one"})
			}
			rel, in := strings.CutPrefix(name, below+"/")
			if in = in || below == "."; !in || r.IntN(3) == 0 {
				continue
			}
			if b, _ := os.ReadFile(filepath.Join(one.work, name)); string(b) == "one" && r.IntN(4) > 0 {
				meet = true
				write(t, two.work, map[string]string{rel: "two"})
			} else if string(b) == "old" {
				write(t, two.work, map[string]string{rel: "two"})
			}
		}
		// What only one of them was applied of.
		first, second := look(t, one.work), look(t, one.source)
		for rel, v := range look(t, two.work) {
			second[filepath.Join(below, rel)] = v
		}
		errs := both(one, two)
		now := look(t, one.source)
		what := fmt.Sprintf("seed %d round %d, the second in %s: %v", seed, round, below, errs)
		switch {
		case !meet:
			if errs[0] != nil || errs[1] != nil {
				t.Fatalf("%s, of other files", what)
			}
		case errs[0] == nil && len(conflictsOf(errs[1])) > 0:
			if diffs := differ(now, first); diffs != nil {
				t.Fatalf("%s: not the whole of the first: %q", what, diffs)
			}
		case errs[1] == nil && len(conflictsOf(errs[0])) > 0:
			if diffs := differ(now, second); diffs != nil {
				t.Fatalf("%s: not the whole of the second: %q", what, diffs)
			}
		default:
			t.Fatal(what)
		}
		tidy(t, one.job.Dir)
		tidy(t, two.job.Dir)
	}
}

// A copy that comes back from elsewhere waits for an apply of the same source, and one for it: of the
// files that both have changed, all are as one of them has them. What is in the way of the copy is left
// alone, so that it is the apply alone which is refused.
func TestCopyAtOnce(t *testing.T) {
	t.Parallel()
	first := 0
	for round := range testrig.Rounds(10) {
		files := make(map[string]string)
		for i := range 40 {
			files[fmt.Sprintf("sub/%d/%d", i%7, i)] = "old"
		}
		one := begin(t, tree(t, files))
		was := entriesOf(t, one.source)
		below := []string{".", "sub", "sub/1"}[round%3]
		two := one.at(below)
		for name := range files {
			write(t, one.work, map[string]string{name: "one"})
			if rel, in := strings.CutPrefix(name, below+"/"); in {
				write(t, two.work, map[string]string{rel: "two"})
			} else if below == "." {
				write(t, two.work, map[string]string{name: "two"})
			}
		}
		back, archive := one.copied(was), archiveOf(t, two.source, two.work)
		var errs [2]error
		start := make(chan struct{})
		var wait sync.WaitGroup
		wait.Go(func() {
			<-start
			_, errs[0] = back.Run(t.Context(), nil)
		})
		wait.Go(func() {
			<-start
			_, errs[1] = two.applyArchive(client.ApplyRequest{}, archive)
		})
		close(start)
		wait.Wait()
		what := fmt.Sprintf("round %d, the apply in %s: %v", round, below, errs)
		if errs[0] != nil && len(conflictsOf(errs[0])) == 0 || errs[1] != nil && len(conflictsOf(errs[1])) == 0 {
			t.Fatal(what)
		}
		want := "one"
		if errs[1] == nil {
			want = "two"
			first++
		}
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("%s: either is in the way of the other", what)
		}
		for name := range files {
			both := below == "." || strings.HasPrefix(name, below+"/")
			got, err := os.ReadFile(filepath.Join(one.source, name))
			if err != nil || both && string(got) != want || !both && string(got) != "one" {
				t.Fatalf("%s: %s has %q, %v", what, name, got, err)
			}
		}
		tidy(t, back.Dir)
		tidy(t, two.job.Dir)
	}
	t.Logf("the apply was first in %d rounds", first)
}

// What a killed job was about to write is written by the next job of that source, of whatever
// directory, before that looks at it; what it had not decided on is not.
func TestKilledBeforeAnother(t *testing.T) {
	t.Parallel()
	base := tree(t, map[string]string{"sub/a": "old", "sub/b": "old", "c": "old"})
	every := max(1, 60/testrig.Rounds(20))
	for n, done := 1, 0; ; n += every {
		one := begin(t, copyTree(t, base)) // which keeps its owner
		below := []string{".", "sub"}[n%2]
		two := one.at(below)
		write(t, one.work, map[string]string{"sub/a": "one", "sub/b": "one", "c": "one", "d": "one"})
		write(t, two.work, map[string]string{"a": "two"})
		if below == "." {
			remove(t, two.work, "a")
			write(t, two.work, map[string]string{"sub/a": "two"})
		}
		old, first := look(t, one.source), look(t, one.work)
		archive := filepath.Join(t.TempDir(), "archive")
		must(t, os.WriteFile(archive, archiveOf(t, one.source, one.work), 0o600))
		theirs := archiveOf(t, two.source, two.work)
		killed := child{State: one.job.Dir, Source: one.source, Archive: archive, Since: one.job.Since, Kill: n}.run(t)
		_, err := two.applyArchive(client.ApplyRequest{}, theirs)
		now := look(t, one.source)
		for name := range now { // files of a plan that was dropped, until its directory is seen to
			if strings.HasPrefix(filepath.Base(name), ".toold-") {
				delete(now, name)
			}
		}
		old["sub/a"] = strings.Replace(old["sub/a"], "old", "two", 1)
		want := first
		if err == nil {
			want = old
		} else {
			done++
		}
		if diffs := differ(now, want); diffs != nil {
			t.Fatalf("killed at step %d, the next in %s: %v: %q", n, below, err, diffs)
		}
		if _, err := Recover(t.Context(), one.job.Dir); err != nil {
			t.Fatal(err)
		}
		if diffs := differ(look(t, one.source), want); diffs != nil {
			t.Fatalf("killed at step %d, recovered: %q", n, diffs)
		}
		if !killed {
			if done == 0 {
				t.Error("the first was never applied")
			}
			return
		}
	}
}

// TestBesideRecovery: a job of another directory lets the one finish which a killed one has left and somebody
// works at, and one of the same directory waits for that.
func TestBesideRecovery(t *testing.T) {
	one := begin(t, tree(t, map[string]string{"a": "old", "b": "old"}))
	two := one.at(".")
	write(t, one.work, map[string]string{"a": "one"})
	write(t, two.work, map[string]string{"b": "two"})
	archive := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(archive, archiveOf(t, one.source, one.work), 0o600))
	c := child{State: one.job.Dir, Source: one.source, Archive: archive, Since: one.job.Since, At: "committed renamed"}
	if !c.run(t) {
		t.Fatal("it was not killed")
	}
	write(t, one.work, map[string]string{"c": "one"})
	d, err := tryState(one.job.Dir)
	must(t, err)
	held, errs := make(chan struct{}), make(chan error, 2)
	at(t, "held", func() { close(held) })
	theirs, more := archiveOf(t, two.source, two.work), archiveOf(t, one.base, one.work)
	go func() {
		_, err := two.applyArchive(client.ApplyRequest{}, theirs)
		errs <- err
	}()
	<-held
	go func() {
		_, err := one.applyArchive(client.ApplyRequest{}, more)
		errs <- err
	}()
	r, err := d.recover(t.Context())
	d.close()
	if err != nil || r.Applied == nil || r.Applied.WrittenCount != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	for range 2 {
		must(t, <-errs)
	}
	want := map[string]string{"a": "file 644 one", "b": "file 644 two", "c": "file 644 one"}
	if diffs := differ(look(t, one.source), want); diffs != nil {
		t.Errorf("%q", diffs)
	}
}

// A job that cannot have the lock says so and has changed nothing.
func TestHeld(t *testing.T) {
	t.Parallel()
	one := begin(t, tree(t, map[string]string{"sub/a": "old"}))
	write(t, one.work, map[string]string{"sub/a": "one"})
	n, err := namesOf(pin(t, filepath.Join(one.source, "sub")))
	must(t, err)
	must(t, os.MkdirAll(hostlock.Dir(), 0o700))
	f, err := hostlock.Open(filepath.Join(hostlock.Dir(), "sources"))
	must(t, err)
	defer f.Close()
	h := hold{file: f, sourceNames: n}
	if ok, err := h.lock(); !ok {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "sub"} {
		if ok, err := tryHold(filepath.Join(one.source, dir)); ok || err != nil {
			t.Errorf("%s is locked twice: %v", dir, err)
		}
	}
	if os.Geteuid() == 0 { // by another way
		other := t.TempDir()
		must(t, unix.Mount(filepath.Join(one.source, "sub"), other, "", unix.MS_BIND, ""))
		defer func() { must(t, unix.Unmount(other, unix.MNT_DETACH)) }()
		if ok, err := tryHold(other); ok || err != nil {
			t.Errorf("it is locked twice by a mount: %v", err)
		}
		must(t, os.Mkdir(filepath.Join(other, "below"), 0o755))
		if ok, err := tryHold(filepath.Join(other, "below")); ok || err != nil {
			t.Errorf("what lies below is locked by a mount: %v", err)
		}
		must(t, os.Remove(filepath.Join(other, "below")))
	}
	if ok, err := tryHold(t.TempDir()); !ok {
		t.Errorf("a neighbour: %v", err)
	}
	must(t, f.Close())
	if _, err := one.apply(client.ApplyRequest{}); err != nil {
		t.Error(err)
	}
}

// tryHold tries to get the lock on a directory once.
func tryHold(dir string) (bool, error) {
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer d.Close()
	n, err := namesOf(d)
	if err != nil {
		return false, err
	}
	f, err := hostlock.Open(filepath.Join(hostlock.Dir(), "sources"))
	if err != nil {
		return false, err
	}
	defer f.Close()
	return (&hold{file: f, sourceNames: n}).lock()
}

// What a job writes to a source is no change of another session, whichever side it is seen on.
func TestNoChangesWhileApplying(t *testing.T) {
	t.Parallel()
	g := begin(t, tree(t, map[string]string{"a": "old"}))
	p := &plan{Token: cryptorand.Text()}
	write(t, g.work, map[string]string{"a": "new", p.temp(0): "x", p.temp(17): "y"})
	write(t, g.source, map[string]string{p.temp(1): "x", p.temp(17): "z"})
	a, err := g.applyArchive(client.ApplyRequest{}, g.agents())
	if err != nil || a.WrittenCount != 1 || a.RemovedCount != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestGivenUp: who does not wait any longer is told that somebody else has the directory: what is in it
// is in use.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := openState(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openState(ctx, dir); !errors.Is(err, ErrHeld) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
