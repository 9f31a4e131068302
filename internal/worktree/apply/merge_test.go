package apply

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// pair is two sessions over one source. What the first one applies is in the way of the
// second.
type pair struct {
	first, second *rig
	merged        []string // by the second
}

// numbers are lines that can be told apart.
const numbers = "1\n2\n3\n4\n5\n6\n"

func beginPair(t *testing.T, files map[string]string) *pair {
	t.Helper()
	source := tree(t, files)
	p := &pair{first: begin(t, source), second: begin(t, source)}
	p.first.job.Others = []Other{{Dir: p.second.job.Dir, Since: p.second.job.Since}}
	p.second.job.Others = []Other{{Dir: p.first.job.Dir, Since: p.first.job.Since}}
	p.second.job.Merged = func(path string) { p.merged = append(p.merged, path) }
	return p
}

// merge applies the second session, whose agent compares with the source as it is.
func (p *pair) merge() (*client.Applied, error) {
	return p.second.apply(client.ApplyRequest{Merge: true})
}

// give gives the second session what was merged.
func (p *pair) give(t *testing.T) {
	t.Helper()
	for _, name := range p.merged {
		b, err := os.ReadFile(filepath.Join(p.second.source, name))
		must(t, err)
		write(t, p.second.work, map[string]string{name: string(b)})
	}
	must(t, Given(t.Context(), p.second.job.Dir))
}

// Two sessions change lines of one file; what the second has changed comes in too, once,
// and both go on.
func TestMerge(t *testing.T) {
	p := beginPair(t, map[string]string{"both": numbers, "mine": "m", "mode": numbers})
	write(t, p.first.work, map[string]string{"both": "one\n2\n3\n4\n5\n6\n", "mode": "one\n2\n3\n4\n5\n6\n"})
	write(t, p.second.work, map[string]string{"both": "1\n2\n3\n4\n5\nsix\n", "mine": "n"})
	must(t, os.Chmod(p.second.work+"/mode", 0o755))
	p.first.mustApply(client.ApplyRequest{})
	tick()
	before := look(t, p.second.source)
	if _, err := p.second.apply(client.ApplyRequest{Exclude: []string{"mine"}}); !slices.Equal(conflictsOf(err), []string{"both", "mode"}) || !strings.Contains(whyOf(err, "both"), "since the session began") {
		t.Errorf("without merge: %v", err)
	}
	a, err := p.second.apply(client.ApplyRequest{Merge: true, DryRun: true})
	if err != nil || !slices.Equal(a.Merged, []string{"both", "mode"}) || p.merged != nil {
		t.Errorf("%+v, %v, told %q", a, err, p.merged)
	}
	if diffs := differ(look(t, p.second.source), before); diffs != nil {
		t.Errorf("a dry run has changed: %q", diffs)
	}
	a, err = p.merge()
	if err != nil || !slices.Equal(a.Merged, []string{"both", "mode"}) || !slices.Equal(p.merged, a.Merged) || a.WrittenCount != 3 {
		t.Errorf("%+v, %v, told %q", a, err, p.merged)
	}
	want := map[string]string{"both": "file 644 one\n2\n3\n4\n5\nsix\n", "mine": "file 644 n", "mode": "file 755 one\n2\n3\n4\n5\n6\n"}
	if diffs := differ(look(t, p.second.source), want); diffs != nil {
		t.Error(diffs)
	}
	// Until the session has it, its own version must not go over it.
	p.merged = nil
	for _, r := range []client.ApplyRequest{{}, {Merge: true}} {
		if a, err := p.second.apply(r); err != nil || a.WrittenCount != 0 {
			t.Errorf("again: %+v, %v", a, err)
		}
	}
	if diffs := differ(look(t, p.second.source), want); diffs != nil {
		t.Error(diffs)
	}
	write(t, p.second.work, map[string]string{"both": "1\n2\n3\nfour\n5\nsix\n"})
	if _, err := p.second.apply(client.ApplyRequest{}); !slices.Equal(conflictsOf(err), []string{"both"}) {
		t.Errorf("what was merged is gone: %v", err)
	}
	if _, err := p.merge(); err != nil {
		t.Error(err)
	}
	want["both"] = "file 644 one\n2\n3\nfour\n5\nsix\n"
	if diffs := differ(look(t, p.second.source), want); diffs != nil {
		t.Error(diffs)
	}
	p.give(t)
	must(t, os.Chmod(p.second.work+"/mode", 0o755))
	write(t, p.second.work, map[string]string{"both": "one\ntwo\n3\nfour\n5\nsix\n"})
	p.second.mustApply(client.ApplyRequest{})
	want["both"] = "file 644 one\ntwo\n3\nfour\n5\nsix\n"
	if diffs := differ(look(t, p.second.source), want); diffs != nil {
		t.Error(diffs)
	}
	// What it began with is no base any more.
	tick()
	must(t, os.WriteFile(p.second.source+"/both", []byte("one\ntwo\n3\nfour\n5\nsix\nmine\n"), 0o644))
	write(t, p.second.work, map[string]string{"both": "1\ntwo\n3\nfour\n5\nsix\n"})
	if _, err := p.merge(); !strings.Contains(whyOf(err, "both"), string(errNoBase)) {
		t.Errorf("got %v", err)
	}
	tidy(t, p.second.job.Dir)
}

// whyOf is why a path is in conflict.
func whyOf(err error, path string) string {
	if e, ok := errors.AsType[*ConflictError](err); ok {
		for _, c := range e.Conflicts {
			if c.Path == path {
				return c.Why
			}
		}
	}
	return ""
}

// What cannot be merged is a conflict, and says why; then nothing is written.
func TestNotMerged(t *testing.T) {
	edit := func(text string) func(*testing.T, *rig) {
		return func(t *testing.T, g *rig) { write(t, g.work, map[string]string{"f": text}) }
	}
	chmod := func(perm os.FileMode) func(*testing.T, *rig) {
		return func(t *testing.T, g *rig) {
			write(t, g.work, map[string]string{"f": numbers + "7\n"})
			must(t, os.Chmod(g.work+"/f", perm))
		}
	}
	gone := func(t *testing.T, g *rig) { remove(t, g.work, "f") }
	for _, tt := range []struct {
		name          string
		first, second func(*testing.T, *rig)
		source        func(*testing.T, string) // before both
		why           string
	}{
		{"same lines", edit("one\n2\n3\n4\n5\n6\n"), edit("uno\n2\n3\n4\n5\n6\n"), nil, string(errSameLines)},
		{"binary", edit("one\n2\n3\n4\n5\n6\n"), edit("1\n2\n3\n4\n5\n6\x00\n"), nil, string(errBinary)},
		{"binary there", edit("1\x00\n2\n3\n4\n5\n6\n"), edit("1\n2\n3\n4\n5\nsix\n"), nil, string(errBinary)},
		{"large", edit("one\n2\n3\n4\n5\n6\n"), edit(numbers + strings.Repeat("x", maxMerge)), nil, string(errBinary)},
		{"large there", edit(numbers + strings.Repeat("x", maxMerge)), edit("one\n2\n3\n4\n5\n6\n"), nil, string(errBinary)},
		{"many lines", edit(numbers + strings.Repeat("x\n", maxMergeLines)), edit("one\n2\n3\n4\n5\n6\n"), nil, string(errBinary)},
		{"modes", chmod(0o600), chmod(0o755), nil, string(errBothModes)},
		{"removed there", gone, edit("one\n2\n3\n4\n5\n6\n"), nil, "it was removed since the session began"},
		{"removed here", edit("one\n2\n3\n4\n5\n6\n"), gone, nil, "since the session began"},
		{"link there", edit("-> x"), edit("one\n2\n3\n4\n5\n6\n"), nil, "since the session began"},
		{"link here", edit("one\n2\n3\n4\n5\n6\n"), edit("-> x"), nil, "since the session began"},
		{"changed by hand before", edit("one\n2\n3\n4\n5\n6\n"), edit("1\n2\n3\n4\n5\nsix\n"), func(t *testing.T, source string) {
			write(t, source, map[string]string{"f": "1\n2\ndrei\n4\n5\n6\n"})
		}, string(errNoBase)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := beginPair(t, map[string]string{"f": numbers})
			tt.first(t, p.first)
			tt.second(t, p.second)
			if tt.source != nil {
				tt.source(t, p.first.source)
			}
			_, err := p.first.apply(client.ApplyRequest{Force: true})
			must(t, err)
			tick()
			write(t, p.second.work, map[string]string{"new": "n"})
			before := look(t, p.second.source)
			_, err = p.merge()
			if why := whyOf(err, "f"); !strings.Contains(why, tt.why) || !errors.Is(err, fault.Conflict) {
				t.Errorf("got %v: %q", err, why)
			}
			if diffs := differ(look(t, p.second.source), before); diffs != nil || p.merged != nil {
				t.Errorf("changed: %q, told %q", diffs, p.merged)
			}
			tidy(t, p.second.job.Dir)
		})
	}
}

// Somebody who changes the file after the first session is merged with too, from what the
// second one began with; a base that is torn is none.
func TestMergedByHand(t *testing.T) {
	for _, torn := range []bool{false, true} {
		p := beginPair(t, map[string]string{"f": numbers})
		write(t, p.first.work, map[string]string{"f": "one\n2\n3\n4\n5\n6\n"})
		write(t, p.second.work, map[string]string{"f": "1\n2\n3\n4\n5\nsix\n"})
		p.first.mustApply(client.ApplyRequest{})
		tick()
		must(t, os.WriteFile(p.first.source+"/f", []byte("one\n2\ndrei\n4\n5\n6\n"), 0o644))
		found, err := filepath.Glob(p.second.job.Dir + "/" + baseDir + "/*")
		if err != nil || len(found) != 1 {
			t.Fatalf("bases: %q, %v", found, err)
		}
		if torn {
			must(t, os.Truncate(found[0], 100))
		}
		_, err = p.merge()
		if torn {
			if whyOf(err, "f") == "" {
				t.Errorf("got %v", err)
			}
			continue
		}
		must(t, err)
		if got := look(t, p.first.source)["f"]; got != "file 644 one\n2\ndrei\n4\n5\nsix\n" {
			t.Errorf("got %q", got)
		}
	}
}

// What is forgotten is finished first, and gone.
func TestForget(t *testing.T) {
	p := beginPair(t, map[string]string{"f": numbers})
	write(t, p.first.work, map[string]string{"f": "new"})
	p.first.mustApply(client.ApplyRequest{})
	for _, dir := range []string{p.first.job.Dir, p.second.job.Dir, p.second.job.Dir} {
		must(t, Forget(t.Context(), dir))
		if _, err := os.Lstat(dir); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
