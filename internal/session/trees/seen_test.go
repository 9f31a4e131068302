package trees

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/layers"
)

func (o *one) Room(int64) error { return nil }

func (o *one) Writes(ctx context.Context, _ int64) (context.Context, func(), error) {
	return ctx, func() {}, nil
}

// over gives another session of the store over a source of its own, and the root of its upper layer.
func (o *one) over(t *testing.T, session string) (tree *layers.Tree, source, upper string) {
	t.Helper()
	source = t.TempDir()
	f, err := os.Open(source)
	testrig.Must(t, err)
	defer f.Close()
	of, err := worktree.SourceOf(source, f)
	testrig.Must(t, err)
	tree = &layers.Tree{Session: session, Source: of, Since: layers.Now()}
	testrig.Must(t, o.store.Begin(tree))
	tree, err = o.store.Get(session)
	testrig.Must(t, err)
	upper = filepath.Join(o.store.Dir(), "layers", tree.Upper, "root")
	testrig.Must(t, os.MkdirAll(upper, 0o755))
	return tree, source, upper
}

// heap is how much is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSeenOfLongNames: a session whose files and directories have the longest paths takes no more
// memory of the daemon than one with short ones, nor do many sessions.
func TestSeenOfLongNames(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to open directories by their handles takes root")
	}
	needs.OpenAt2(t)
	s, o := newOne(t)
	var trees []*layers.Tree
	for i := range 2 {
		tree, _, upper := o.over(t, fmt.Sprintf("ses_long%d", i))
		deep := filepath.Join(append([]string{upper}, strings.Split(strings.Repeat(strings.Repeat("d", 250)+"/", 13), "/")...)...)
		testrig.Must(t, os.MkdirAll(deep, 0o755))
		at, err := os.OpenRoot(deep)
		testrig.Must(t, err)
		testrig.Must(t, at.WriteFile("file", nil, 0o644))
		for n := range 3000 {
			name := fmt.Sprintf("%0250d", n)
			if n%8 == 0 {
				testrig.Must(t, at.Mkdir(name, 0o755))
			} else {
				testrig.Must(t, at.Link("file", name))
			}
		}
		testrig.Must(t, at.Close())
		trees = append(trees, tree)
	}
	before := heap()
	for _, tree := range trees {
		for range 2 {
			s.keep(t.Context(), tree)
		}
	}
	took := heap() - before
	t.Logf("%d bytes, %d by its own account", took, s.seen.sum)
	if took > 4<<20 || s.seen.sum == 0 || took > 2*s.seen.sum+1<<20 {
		t.Errorf("what is known of them takes %d bytes, %d by its own account", took, s.seen.sum)
	}
	for _, tree := range trees {
		s.Over(tree.Session)
	}
	if s.seen.sum != 0 || len(s.seen.all) != 0 {
		t.Errorf("%d bytes are left when all are over, %v", s.seen.sum, s.seen.all)
	}
}

// TestSeenOfAll: what is known of all sessions is bounded: of those that have the most it is forgotten.
func TestSeenOfAll(t *testing.T) {
	t.Parallel()
	var s seens
	fill := func(session string, names int) {
		k := s.of(session)
		k.paths, k.kept = map[pathKey]struct{}{}, 7
		below := make([]string, names)
		for i := range below {
			below[i] = strings.Repeat("n", 255)
		}
		k.dirs = map[pathKey]*seenDir{keyOf(""): {below: below}}
		s.looked(session, k)
	}
	fill("small", 10)
	for i := range 30 {
		fill(fmt.Sprintf("large%d", i), 20_000)
		if s.sum > maxAllSeen {
			t.Fatalf("%d bytes after %d", s.sum, i)
		}
	}
	if s.of("small").paths == nil {
		t.Error("nothing is known of a session that has written little")
	}
	forgotten := 0
	for session, e := range s.all {
		if e.paths == nil {
			forgotten++
		}
		if e.kept != 7 {
			t.Errorf("%s: it is not known how much was kept for it", session)
		}
	}
	if forgotten == 0 || forgotten > 29 {
		t.Errorf("of %d sessions nothing is known", forgotten)
	}
	for session := range s.all {
		s.drop(session)
	}
	if s.sum != 0 || len(s.all) != 0 {
		t.Errorf("%d bytes are left", s.sum)
	}
}

// TestSeenAgain: where what is known of a session was forgotten, what was kept of its source stays
// what the session began with; and of a session that is over nothing is remembered.
func TestSeenAgain(t *testing.T) {
	needs.OpenAt2(t)
	s, o := newOne(t)
	source := t.TempDir()
	testrig.Must(t, os.WriteFile(filepath.Join(source, "f"), []byte("as begun"), 0o644))
	f, err := os.Open(source)
	testrig.Must(t, err)
	defer f.Close()
	of, err := worktree.SourceOf(source, f)
	testrig.Must(t, err)
	layers.After(layers.Now())
	testrig.Must(t, o.store.Begin(&layers.Tree{Session: "ses_2", Source: of, Since: layers.Now(), UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}))
	tree, err := o.store.Get("ses_2")
	testrig.Must(t, err)
	upper := filepath.Join(o.store.Dir(), "layers", tree.Upper, "root")
	testrig.Must(t, os.MkdirAll(upper, 0o755))
	testrig.Must(t, os.WriteFile(filepath.Join(upper, "f"), []byte("changed"), 0o644))
	s.keep(t.Context(), tree)
	kept := s.seen.of("ses_2").kept
	base := s.sourceLook(tree, f).Base("f")
	if kept == 0 || base == nil || string(base.Content) != "as begun" {
		t.Fatalf("kept %d bytes, %+v", kept, base)
	}
	testrig.Must(t, os.WriteFile(filepath.Join(source, "f"), []byte("another's"), 0o644))
	s.Over("ses_2")
	s.keep(t.Context(), tree)
	if k := s.seen.of("ses_2"); k.paths == nil || k.kept != kept {
		t.Errorf("after it was forgotten: %+v", k)
	}
	if again := s.sourceLook(tree, f).Base("f"); again == nil || string(again.Content) != "as begun" {
		t.Errorf("after it was forgotten: %+v", again)
	}
	row := &store.Session{}
	row.ID, row.State = "ses_2", client.SessionEnded
	x, err := s.have(t.Context(), row, nil)
	testrig.Must(t, err)
	s.keep(t.Context(), x.tree)
	x.release()
	if k := s.seen.of("ses_2"); k.paths != nil {
		t.Errorf("it is over, and still known: %+v", k)
	}
	testrig.Must(t, s.Forget(t.Context(), "ses_2"))
	if len(s.seen.all) != 0 {
		t.Errorf("without a tree: %v", s.seen.all)
	}
}

// TestTouchedLongNames: what layers name is not all listed where the names are long.
func TestTouchedLongNames(t *testing.T) {
	needs.OpenAt2(t)
	layer := t.TempDir()
	deep := filepath.Join(append([]string{layer, "root"}, strings.Split(strings.Repeat(strings.Repeat("d", 250)+"/", 13), "/")...)...)
	testrig.Must(t, os.MkdirAll(deep, 0o755))
	at, err := os.OpenRoot(deep)
	testrig.Must(t, err)
	defer at.Close()
	testrig.Must(t, at.WriteFile("file", nil, 0o644))
	for n := range maxTouchedBytes / 3500 {
		testrig.Must(t, at.Link("file", fmt.Sprintf("%0250d", n)))
	}
	f, err := os.Open(layer)
	testrig.Must(t, err)
	defer f.Close()
	if k, err := touched(t.Context(), []*os.File{f}, true); !errors.Is(err, errHides) {
		t.Errorf("%+v, %v", k, err)
	}
	for n := range 1000 {
		testrig.Must(t, at.Remove(fmt.Sprintf("%0250d", n)))
	}
	if k, err := touched(t.Context(), []*os.File{f}, true); err != nil || len(k.places) < 1000 {
		t.Errorf("where they are fewer: %d places, %v", len(k.places), err)
	}
}
