package treediff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool/run/ignore"
)

// ignoredIn are the paths of a tree that git ignores. It looks at a copy: the tree may be
// mounted nowhere.
func ignoredIn(t testing.TB, repository, tree string) map[string]bool {
	t.Helper()
	all, dir := make(map[string]bool), t.TempDir()
	copyTree(t, tree, dir)
	names := paths(t, dir)
	if len(names) == 0 {
		return all
	}
	in := strings.Join(names, "\x00") + "\x00"
	out, err := gitIn(t, dir, []byte(in), "--git-dir="+repository, "--work-tree="+dir, "check-ignore", "--no-index", "-z", "--stdin")
	if err != nil && !strings.HasPrefix(err.Error(), "exit status 1:") {
		t.Fatal(err)
	}
	for p := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		all[p] = true
	}
	return all
}

// omission says of each path what is left out, from what git says of the two sides.
type omission struct {
	old, new               map[string]seen
	oldIgnored, newIgnored map[string]bool
	exclude                ignore.List
}

// of goes down to a path.
func (o *omission) of(p string) (excluded, hidden bool) {
	for i := range len(p) + 1 {
		if i < len(p) && p[i] != '/' {
			continue
		}
		at := p[:i]
		old, was := o.old[at]
		now, is := o.new[at]
		excluded = excluded || o.exclude.Has(at, now.kind == Dir || !is && old.kind == Dir)
		speaks := path.Base(at) == ".gitignore"
		if up := path.Dir(at); is {
			speaks = speaks && !o.newIgnored[up]
		} else {
			speaks = speaks && !o.oldIgnored[up]
		}
		hidden = (was || is) && (!was || o.oldIgnored[at]) && (!is || o.newIgnored[at]) && !speaks
		if old.kind == Dir && is && now.kind != Dir && !excluded && !hidden {
			return false, false
		}
	}
	return excluded, hidden
}

// With patterns and .gitignore files a list has exactly what git does not ignore, counts the
// rest, and git makes of the base with the patch the tree without what was left out.
func TestOmitAsGit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(77, 1))
	pieces := []string{"a", "b", "c", "a*", "*.txt", "b/", "/c", "!a", "!b/", "**/b", "a/**", "*", "!*/", "#a", "x y", "é", "\\#"}
	lines := func(most int) (all []string) {
		for range rnd.IntN(most + 1) {
			all = append(all, pieces[rnd.IntN(len(pieces))])
		}
		return all
	}
	prepare := func(t testing.TB, dir string) {
		for _, p := range append(paths(t, dir), ".") {
			info, err := os.Lstat(filepath.Join(dir, p))
			if err != nil || !info.IsDir() || rnd.IntN(3) > 0 {
				continue
			}
			end := []string{"\n", "\r\n"}[rnd.IntN(2)]
			file := filepath.Join(dir, p, ".gitignore")
			_ = os.RemoveAll(file)
			if err := os.WriteFile(file, []byte([]string{"", "\ufeff"}[rnd.IntN(2)]+strings.Join(lines(3), end)+end), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		sayable(t, dir)
	}
	repository := t.TempDir()
	if _, err := gitIn(t, repository, nil, "init", "-q", "--bare", "."); err != nil {
		t.Fatal(err)
	}
	omittedSome := 0
	eachPrepared(t, 78, 60, prepare, func(t *testing.T, _ *rand.Rand, r *rig) {
		patterns := lines(2)
		exclude, err := ignore.New(patterns)
		if err != nil {
			t.Fatal(err)
		}
		o := &omission{
			old: snapshot(t, r.base), new: snapshot(t, r.tree), exclude: exclude,
			oldIgnored: ignoredIn(t, repository, r.base), newIgnored: ignoredIn(t, repository, r.tree),
		}
		var want []string
		excludes, hides := 0, 0
		for p := range expected(o.old, o.new) {
			switch excluded, hidden := o.of(p); {
			case excluded:
				excludes++
			case hidden:
				hides++
			default:
				want = append(want, p)
			}
		}
		slices.Sort(want)
		omittedSome += excludes + hides
		write := func(f Format) ([]byte, Totals) {
			q := r.options(t, f)
			q.Exclude, q.NoIgnored = exclude, true
			return writeAll(t, q)
		}
		text, totals := write(List)
		var got []string
		for line := range bytes.Lines(text) {
			var l Line
			if err := json.Unmarshal(line, &l); err != nil {
				t.Fatal(err)
			}
			if l.Status != "" {
				got = append(got, cmp.Or(string(l.Bytes), l.Path))
			}
		}
		if !slices.Equal(got, want) || totals.Excluded != excludes || totals.Ignored != hides || totals.Files != len(want) {
			t.Fatalf("without %q: %q, %+v\nwant %q, %d excluded, %d ignored", patterns, got, totals, want, excludes, hides)
		}
		patch, same := write(Patch)
		checkTotals(t, same, totals)
		if len(patch) == 0 || loopsBecomeDirectories(r.base, r.tree) {
			return
		}
		copied := t.TempDir()
		copyTree(t, r.base, copied)
		if _, err := gitIn(t, copied, patch, "apply", "--binary", "--whitespace=nowarn"); err != nil {
			t.Fatal(err)
		}
		whole := make(map[string]seen)
		for p, s := range o.old {
			if excluded, hidden := o.of(p); excluded || hidden {
				whole[p] = s
			}
		}
		for p, s := range o.new {
			if excluded, hidden := o.of(p); !excluded && !hidden {
				whole[p] = s
			}
		}
		sameTree(t, asGit(snapshot(t, copied)), asGit(whole))
	})
	if omittedSome == 0 {
		t.Error("nothing was left out of any tree")
	}
}

// What was in a directory comes with what has taken its place, whatever the patterns say: git
// would refuse the file while something stays.
func TestOmitReplaced(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	err := errors.Join(os.WriteFile(r.base+"/.gitignore", []byte("*.o\n"), 0o644), os.MkdirAll(r.base+"/d/e", 0o755),
		os.WriteFile(r.base+"/d/e/a.o", nil, 0o644), os.WriteFile(r.base+"/d/b.txt", nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	copyTree(t, r.base, r.tree)
	if err := errors.Join(os.RemoveAll(r.tree+"/d"), os.Symlink("x", r.tree+"/d")); err != nil {
		t.Fatal(err)
	}
	q := r.options(t, Patch)
	q.NoIgnored = true
	if q.Exclude, err = ignore.New([]string{"*.txt"}); err != nil {
		t.Fatal(err)
	}
	patch, totals := writeAll(t, q)
	if totals.Excluded+totals.Ignored != 0 {
		t.Errorf("%+v", totals)
	}
	if _, err := gitIn(t, r.base, patch, "apply"); err != nil {
		t.Fatal(err)
	}
	sameTree(t, asGit(snapshot(t, r.base)), asGit(snapshot(t, r.tree)))
}
