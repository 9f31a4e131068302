package apply

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// What is applied to a copy of the base makes it the worktree, byte for byte and with all
// modes: random trees, random changes, archives of agents and of the tests' own.
func TestRandomTrees(t *testing.T) {
	rounds, seed := testrig.Rounds(200), uint64(7)
	tasks := 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		source := tree(t, nil)
		grow(t, r, source, 5+r.IntN(25))
		give(t, source)
		g := begin(t, source)
		disturb(t, r, g.work, 1+r.IntN(15))
		give(t, g.work)
		archive := g.agents()
		if round%2 == 0 {
			archive = archiveOf(t, source, g.work)
		}
		a, err := g.applyArchive(client.ApplyRequest{}, archive)
		if err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		tasks += a.WrittenCount + a.RemovedCount
		if diffs := differ(look(t, source), look(t, g.work)); diffs != nil {
			t.Fatalf("seed %d round %d: %q", seed, round, diffs)
		}
		tidy(t, g.job.Dir)
		for _, dir := range []string{source, g.base, g.work} {
			wipe(t, dir)
		}
	}
	t.Logf("%d trees, seed %d: %d changes", rounds, seed, tasks)
}

// Changes are applied in parts, one after the other, with more changes in between: what
// was written before is in the way of nothing.
func TestParts(t *testing.T) {
	rounds, seed := testrig.Rounds(40), uint64(8)
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		source := tree(t, nil)
		grow(t, r, source, 5+r.IntN(20))
		give(t, source)
		g := begin(t, source)
		for range 4 {
			disturb(t, r, g.work, 1+r.IntN(8))
			give(t, g.work)
			entries := changesOf(t, source, g.work)
			var q client.ApplyRequest
			for _, e := range entries {
				if r.IntN(3) == 0 {
					q.Paths = append(q.Paths, e.Name)
				}
			}
			if len(q.Paths) == 0 {
				continue
			}
			if _, err := g.applyArchive(q, g.agents(q.Paths...)); err != nil {
				t.Fatalf("seed %d round %d: %q: %v", seed, round, q.Paths, err)
			}
			for _, e := range changesOf(t, source, g.work) {
				if slices.Contains(q.Paths, e.Name) {
					t.Fatalf("seed %d round %d: %q is not applied", seed, round, e.Name)
				}
			}
		}
		if _, err := g.apply(client.ApplyRequest{}); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		if diffs := differ(look(t, source), look(t, g.work)); diffs != nil {
			t.Fatalf("seed %d round %d: %q", seed, round, diffs)
		}
		for _, dir := range []string{source, g.base, g.work} {
			wipe(t, dir)
		}
	}
	t.Logf("%d sessions, seed %d", rounds, seed)
}

func TestDryRun(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"edit": "old", "gone/x": "x", "Makefile": "all:", "keep": "k"}))
	write(t, g.work, map[string]string{"edit": "new", "dir/f": "f", "Makefile": "all: x", ".envrc": "x", "link": "-> edit"})
	remove(t, g.work, "gone")
	want := &client.Applied{
		Written: []string{"Makefile", "dir", "dir/f", "edit", "link"}, Removed: []string{"gone", "gone/x"}, Build: []string{"Makefile"},
		Sensitive: []string{".envrc"}, WrittenCount: 5, RemovedCount: 2, SensitiveCount: 1,
	}
	before := look(t, g.source)
	for _, dry := range []bool{true, false} {
		want.DryRun = dry
		got := g.mustApply(client.ApplyRequest{DryRun: dry})
		if !equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if changed := differ(look(t, g.source), before) != nil; changed == dry {
			t.Errorf("dry %v: changed %v", dry, changed)
		}
		tidy(t, g.job.Dir)
	}
	if _, err := os.Lstat(filepath.Join(g.source, ".envrc")); err == nil {
		t.Error("the sensitive file is there")
	}
	if got := g.mustApply(client.ApplyRequest{IncludeSensitive: true}); !slices.Equal(got.Written, []string{".envrc"}) {
		t.Errorf("got %+v", got)
	}
	if diffs := differ(look(t, g.source), look(t, g.work)); diffs != nil {
		t.Error(diffs)
	}
}

// What is no file, directory or link is not written, removed or replaced.
func TestSkipped(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"dir/f": "f", "file": "f", "a": "a"}))
	for _, p := range []string{g.source + "/dir/old", g.work + "/new", g.work + "/replaced"} {
		must(t, unix.Mkfifo(p, 0o644))
	}
	remove(t, g.work, "dir", "file")
	must(t, unix.Mkfifo(g.work+"/file", 0o644))
	write(t, g.work, map[string]string{"a": "b"})
	a := g.mustApply(client.ApplyRequest{})
	if want := []string{"dir", "dir/old", "file", "new", "replaced"}; !slices.Equal(a.Skipped, want) || a.SkippedCount != len(want) {
		t.Errorf("got %+v", a)
	}
	want := map[string]string{"dir": inSource, "dir/old": inSource, "file": special, "new": special, "replaced": special}
	if !maps.Equal(a.SkippedKinds, want) {
		t.Errorf("got %v", a.SkippedKinds)
	}
	got := look(t, g.source)
	if got["a"] != "file 644 b" || got["file"] != "file 644 f" || got["dir/old"] == "" || got["dir/f"] != "" {
		t.Errorf("got %q", got)
	}
	tidy(t, g.job.Dir)
}

func equal(a, b *client.Applied) bool {
	return slices.Equal(a.Written, b.Written) && slices.Equal(a.Removed, b.Removed) && slices.Equal(a.Merged, b.Merged) &&
		slices.Equal(a.Sensitive, b.Sensitive) && slices.Equal(a.Build, b.Build) && slices.Equal(a.Skipped, b.Skipped) &&
		a.WrittenCount == b.WrittenCount && a.RemovedCount == b.RemovedCount && a.SensitiveCount == b.SensitiveCount &&
		a.SkippedCount == b.SkippedCount && a.DryRun == b.DryRun
}
