package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/worktree/layers"
)

// newOverlaid is a daemon with a directory, over which sessions may lay overlays.
func newOverlaid(t *testing.T) (h *house, dir string) {
	t.Helper()
	h, dir = newHouse(t), t.TempDir()
	h.set.WorktreeRoots = []string{dir}
	<-h.open().Collector.swept
	return h, dir
}

// changed makes a session that has changed something, as its sandbox would.
func (h *house) changed(dir string, r client.SessionCreate) *client.Session {
	h.t.Helper()
	r.Worktree = client.Worktree{Source: dir, Mode: client.WorktreeOverlay}
	s := h.create(mounter, r)
	h.change(s.ID)
	return s
}

const changedBytes = 8192

func (h *house) change(session string) {
	h.t.Helper()
	tree, err := h.trees.Get(session)
	if err == nil {
		root := filepath.Join(h.dir, "worktrees", "layers", tree.Upper, "root")
		err = errors.Join(os.MkdirAll(root, 0o755), os.WriteFile(filepath.Join(root, "file"), make([]byte, changedBytes), 0o600))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) finish(session string) *client.Session {
	h.t.Helper()
	s, err := h.m.End(h.t.Context(), mounter, session, client.EndOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *house) layers() []string {
	h.t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.dir, "worktrees", "layers"))
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (h *house) has(session string) bool {
	_, err := h.trees.Get(session)
	if err != nil && !errors.Is(err, layers.ErrNone) {
		h.t.Fatal(err)
	}
	return err == nil
}

// TestChangesAreSwept: what a session changed stays after its end for as long as the
// configuration says, and what one does that lives stays in any case.
func TestChangesAreSwept(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	live, over, none := h.changed(dir, client.SessionCreate{}), h.changed(dir, client.SessionCreate{}), h.create(mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeOverlay}})
	h.finish(over.ID)
	h.finish(none.ID)
	if h.has(none.ID) {
		t.Error("a session without changes has left some")
	}
	keep := func(d time.Duration) {
		set := h.set
		set.Worktrees.Keep = d
		h.m.Reload(set)
		h.m.Collector.sweep(t.Context())
	}
	keep(30 * time.Minute)
	if !h.has(live.ID) || !h.has(over.ID) || len(h.layers()) != 2 {
		t.Errorf("too early: %v", h.layers())
	}
	if err := h.trees.Begin(&layers.Tree{Session: "ses_stray"}); err != nil {
		t.Fatal(err)
	}
	keep(time.Nanosecond)
	if h.has("ses_stray") || h.has(over.ID) || !h.has(live.ID) || len(h.layers()) != 1 {
		t.Errorf("after the time: of the ended one %v, of the live one %v, layers %v", h.has(over.ID), h.has(live.ID), h.layers())
	}
}

// TestChangesGoWithTheirRecord: whose session nobody can name any more nobody can ask for.
func TestChangesGoWithTheirRecord(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	s := h.changed(dir, client.SessionCreate{})
	h.finish(s.ID)
	set := h.set
	set.Retention = time.Nanosecond
	h.m.Reload(set)
	h.m.Collector.sweep(t.Context()) // the changes first
	if h.has(s.ID) || len(h.layers()) != 0 {
		t.Errorf("they stayed: %v", h.layers())
	}
}

// TestCollectTrees: gc names trees whose session is not on record, with what goes with
// them, and layers of no tree.
func TestCollectTrees(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	s := h.changed(dir, client.SessionCreate{})
	tree, err := h.trees.Get(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	shared := tree.Upper
	h.finish(s.ID)
	stray := &layers.Tree{Session: "ses_stray", Source: tree.Source, Lower: []string{shared}}
	if err := h.trees.Begin(stray); err != nil {
		t.Fatal(err)
	}
	h.change("ses_stray")
	lost := filepath.Join(h.dir, "worktrees", "layers", "l_lost")
	if err := os.MkdirAll(filepath.Join(lost, "root"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lost, "root", "x"), make([]byte, changedBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(h.dir, "worktrees", "trees", ".new-1")
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		all, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		for kind, name := range map[string]string{"worktree": "ses_stray", "layer": "l_lost"} {
			i := slices.IndexFunc(all, func(g client.Garbage) bool { return g.Kind == kind && g.Name == name })
			if i < 0 || all[i].Removed == dry || all[i].Bytes < changedBytes || all[i].Bytes >= 2*changedBytes+4096 {
				t.Errorf("dry run %v: %s %s: %+v", dry, kind, name, all)
			}
		}
	}
	if got := h.layers(); !h.has(s.ID) || h.has("ses_stray") || !slices.Equal(got, []string{shared}) {
		t.Errorf("there are %v", got)
	}
	// It may be written just now, until another daemon begins.
	if _, err := layers.Open(filepath.Join(h.dir, "worktrees")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(half); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file that was being written stayed")
	}
}

// TestUnreadableTree: a tree that cannot be read is named with what to do, and until that is
// done no layer goes.
func TestUnreadableTree(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	s := h.changed(dir, client.SessionCreate{})
	h.finish(s.ID)
	file := filepath.Join(h.dir, "worktrees", "trees", s.ID+".json")
	tree, err := h.trees.Get(s.ID)
	if err == nil {
		err = os.WriteFile(file, []byte(`{"session": "ses_`), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		all, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 1 || all[0].Kind != "worktree" || all[0].Session != s.ID || all[0].Removed || !strings.Contains(all[0].Error, file) ||
			!strings.Contains(all[0].Error, "backup") {
			t.Errorf("dry run %v: %+v", dry, all)
		}
	}
	if !slices.Equal(h.layers(), []string{tree.Upper}) {
		t.Errorf("the layers are %v", h.layers())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{}); err != nil || len(h.layers()) != 0 {
		t.Errorf("when it is gone: %v, %v", h.layers(), err)
	}
}

// TestWorktreeBytes: a tenant's usage counts what its sessions changed, each layer once.
func TestWorktreeBytes(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	s := h.changed(dir, client.SessionCreate{})
	tree, err := h.trees.Get(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	other := h.create(mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeOverlay}})
	h.finish(s.ID)
	if err := h.trees.Put(&layers.Tree{Session: other.ID, Source: tree.Source, Lower: []string{tree.Upper}}); err != nil {
		t.Fatal(err)
	}
	if err := h.trees.Put(&layers.Tree{Session: "ses_stray", Source: tree.Source, Lower: []string{tree.Upper}}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(h.trees.ApplyDir(s.ID)); err != nil {
		t.Fatal(err)
	}
	all, tenants := h.m.Usage.countTrees(t.Context())
	if all < changedBytes || all >= 2*changedBytes+4096 || tenants[mounter.Tenant] != all || tenants[""] != all || len(tenants) != 2 {
		t.Errorf("%d, %v", all, tenants)
	}
	// What an apply keeps meanwhile is the session's too.
	const spool = 1 << 20
	if err := errors.Join(os.MkdirAll(h.trees.ApplyDir(s.ID), 0o700), os.WriteFile(h.trees.ApplyDir(s.ID)+"/content", make([]byte, spool), 0o600)); err != nil {
		t.Fatal(err)
	}
	more, of := h.m.Usage.countTrees(t.Context())
	if more < all+spool || more > all+spool+3*4096 || of[mounter.Tenant] != more || of[""] != all {
		t.Errorf("with an apply: %d, %v; before it %d", more, of, all)
	}
	all = more
	for {
		list, err := h.m.Usage.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(u client.TenantUsage) bool { return u.Tenant == mounter.Tenant })
		if i >= 0 && list[i].WorktreeBytes == all {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("usage does not say it")
		}
	}
}

// TestKeptUntil: a session that is over says until when its changes are kept, and its end
// with discard, also a second one, takes them along.
func TestKeptUntil(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	h.set.Worktrees.Keep = 30 * time.Minute
	h.m.Reload(h.set)
	s, gone := h.changed(dir, client.SessionCreate{}), h.changed(dir, client.SessionCreate{})
	unchanged := h.create(mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeOverlay}})
	if v, err := h.m.Get(t.Context(), mounter, s.ID); err != nil || v.Worktree.KeptUntil != nil {
		t.Errorf("while it lives: %+v, %v", v, err)
	}
	if v := h.finish(unchanged.ID); v.Worktree.KeptUntil != nil {
		t.Errorf("nothing is kept until %v", v.Worktree.KeptUntil)
	}
	v := h.finish(s.ID)
	if u := v.Worktree.KeptUntil; u == nil || !u.Equal(v.Ended.Add(30*time.Minute)) {
		t.Errorf("ended at %v, kept until %v", v.Ended, u)
	}
	for name, get := range map[string]func() (*client.Session, error){
		"get":   func() (*client.Session, error) { return h.m.Get(t.Context(), mounter, s.ID) },
		"again": func() (*client.Session, error) { return h.m.End(t.Context(), mounter, s.ID, client.EndOptions{}) },
		"list": func() (*client.Session, error) {
			l, err := h.m.List(t.Context(), mounter, client.SessionQuery{All: true})
			return &l.Items[slices.IndexFunc(l.Items, func(x client.Session) bool { return x.ID == s.ID })], err
		},
	} {
		if got, err := get(); err != nil || got.Worktree.KeptUntil == nil || !got.Worktree.KeptUntil.Equal(*v.Worktree.KeptUntil) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	stranger := mounter
	stranger.Tenant, stranger.Admin = "other", false
	if _, err := h.m.End(t.Context(), stranger, s.ID, client.EndOptions{Discard: true}); codeOfErr(err) != client.CodeNotFound || !h.has(s.ID) {
		t.Errorf("somebody else dropped them: %v", err)
	}
	for _, id := range []string{gone.ID, s.ID} { // one that lives, one that is over
		v, err := h.m.End(t.Context(), mounter, id, client.EndOptions{Discard: true})
		if err != nil || v.State != client.SessionEnded || v.Worktree.KeptUntil != nil || h.has(id) {
			t.Errorf("%+v, %v", v, err)
		}
	}
	if got := h.layers(); len(got) != 0 {
		t.Errorf("layers stayed: %v", got)
	}
	if _, err := h.m.End(t.Context(), mounter, s.ID, client.EndOptions{Discard: true}); err != nil {
		t.Error("once more:", err)
	}
}

// TestDiscardBesideASweep: changes that somebody drops and a sweep removes are gone, for both.
func TestDiscardBesideASweep(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	h.set.Worktrees.Keep = time.Nanosecond
	h.m.Reload(h.set)
	for range 20 {
		s := h.changed(dir, client.SessionCreate{})
		h.finish(s.ID)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := h.m.End(t.Context(), mounter, s.ID, client.EndOptions{Discard: true}); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := h.m.Collector.sweepTrees(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if h.has(s.ID) || len(h.layers()) != 0 {
			t.Fatalf("layers stayed: %v", h.layers())
		}
	}
}
