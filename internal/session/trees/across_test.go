package trees

import (
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/apply"
)

// what is at a path of a random list.
type listed struct {
	client.Change

	stale bool // the source has something else there, and there is no base
	base  *apply.Base
	drop  bool // it is the source's own doing
}

// randomList is a list of changes whose names stand between a directory and what is in it.
func randomList(r *rand.Rand) map[string]*listed {
	const file, dir = string(treediff.File), string(treediff.Dir)
	all := make(map[string]*listed)
	name := func() string {
		for {
			var b strings.Builder
			for range 1 + r.IntN(3) {
				b.WriteByte("a- ."[r.IntN(4)])
			}
			if s := b.String(); s != "." && s != ".." {
				return s
			}
		}
	}
	var fill func(dirname string, depth int, plain bool)
	fill = func(dirname string, depth int, plain bool) {
		for range 1 + r.IntN(6) {
			p := path.Join(dirname, name())
			if all[p] != nil {
				continue
			}
			l := &listed{Change: client.Change{Path: p, Status: client.ChangeAdded, Kind: file}}
			all[p] = l
			if depth == 0 || r.IntN(3) == 0 {
				continue
			}
			l.Kind = dir
			in := func() *listed {
				q := path.Join(p, name())
				all[q] = &listed{Change: client.Change{Path: q, Status: client.ChangeAdded, Kind: file}}
				return all[q]
			}
			switch what := r.IntN(5); {
			case plain || what == 0:
				fill(p, depth-1, plain)
			case what == 1: // a file of the source is there by now
				l.Status, l.OldKind, l.stale = client.ChangeType, file, true
				fill(p, depth-1, true)
			case what == 2: // it takes the place of a file
				l.Status, l.OldKind = client.ChangeType, file
				fill(p, depth-1, true)
			case what == 3: // the source has lost it
				in().base = &apply.Base{File: true}
			default: // the source has put it in the place of a file
				l.Status, l.Kind, l.OldKind, l.base = client.ChangeType, file, dir, &apply.Base{File: true}
				gone := in()
				gone.Status, gone.Kind, gone.OldKind, gone.drop = client.ChangeDeleted, "", file, true
			}
		}
	}
	fill("", 3, false)
	for p, l := range all {
		for d := path.Dir(p); d != "." && l.base != nil; d = path.Dir(d) {
			if above := all[d]; above.Kind == dir && above.Status == client.ChangeAdded {
				above.drop = true // it was there when the session began
			}
		}
	}
	return all
}

// A change is stale, comes with the directory above it or is the source's own doing by what is said of
// that directory, whatever the list has between them, and wherever its pages end.
func TestAcrossPages(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range testrig.Rounds(2000) {
		all := randomList(r)
		inside := func(p string, is func(*listed) bool) (n int) {
			for d := path.Dir(p); d != "."; d = path.Dir(d) {
				if l := all[d]; l != nil && is(l) {
					n++
				}
			}
			return n
		}
		var pages [][]client.Change
		var names [][]string
		for rest := slices.Sorted(maps.Keys(all)); len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			var page []client.Change
			for _, p := range rest[:n] {
				page = append(page, all[p].Change)
			}
			pages, names, rest = append(pages, page), append(names, rest[:n]), rest[n:]
		}
		across := newAcross()
		judge := func(page []client.Change) *judged {
			verdicts := make([]apply.Verdict, len(page))
			for i := range page {
				l := all[page[i].Path]
				verdicts[i] = apply.Verdict{Changed: l.stale || l.base != nil, Known: l.base != nil}
			}
			j, err := across.judge(t.Context(), page, verdicts, func(p string) *apply.Base { return new(*all[p].base) })
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		for _, page := range pages {
			across.survey(page, judge(page))
		}
		out := &patch{told: make(map[pathKey]bool), whole: make(dirs)}
		var chosen []string
		shown := make(map[string]*client.Change)
		for _, page := range pages {
			j := judge(page)
			lines := make(map[string]*treediff.Line)
			for p := range j.base {
				lines[p] = &treediff.Line{Path: p, Status: treediff.Modified, Kind: treediff.File}
			}
			chosen = append(chosen, out.choose(j, page)...)
			c := &client.Changes{Items: page}
			j.tell(c, lines)
			for i := range c.Items {
				shown[c.Items[i].Path] = &c.Items[i]
			}
		}
		stale := 0
		for p, l := range all {
			is := l.stale || inside(p, func(l *listed) bool { return l.stale }) > 0
			if is {
				stale++
			}
			if c := shown[p]; (c == nil) != l.drop || c != nil && c.Stale != is {
				t.Fatalf("%q: listed as %+v, want dropped %v, stale %v; pages %q", p, c, l.drop, is, names)
			}
			if l.Kind == string(treediff.Dir) || l.drop {
				continue
			}
			n := 0
			for _, c := range chosen {
				if c == p || strings.HasPrefix(p, c+"/") {
					n++
				}
			}
			want := 1
			if is || l.base != nil {
				want = 0
			}
			if n != want {
				t.Fatalf("%q is %d times in the patch, want %d; chosen %q of %q", p, n, want, chosen, names)
			}
		}
		if out.stale != stale {
			t.Fatalf("%d are stale, want %d; pages %q", out.stale, stale, names)
		}
	}
}
