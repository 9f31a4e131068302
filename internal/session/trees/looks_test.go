package trees

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/layers"
)

// looker is a live session with files, and the agent in its sandbox, which compares them with the
// source as that is. It counts what it is asked for, beside what the daemon looks at.
type looker struct {
	*one
	errand.Conn

	source string
	files  map[string]string // what the session has
	mu     sync.Mutex        // guards the field below
	asked  map[string]int
	amid   func() // is called in the middle of an answer
}

func (l *looker) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[what]++
}

// counted gives what was asked for since the last time.
func (l *looker) counted() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(l.asked)) {
		all = append(all, fmt.Sprint(what, " ", l.asked[what]))
	}
	l.asked = make(map[string]int)
	return strings.Join(all, ", ")
}

func (l *looker) Find(context.Context, auth.Principal, string) (*store.Session, Live, error) {
	row := &store.Session{}
	row.ID, row.Worktree.Mode = "ses_2", client.WorktreeOverlay
	return row, l, nil
}

func (l *looker) Sensitive() []string     { return nil }
func (l *looker) Room(int64) error        { return nil }
func (l *looker) Ack(string, int64) error { return nil }
func (l *looker) Forget(string) error     { return nil }

func (l *looker) Abort(string, run.Reason) error { return nil }

func (l *looker) Errand() (errand.Errand, error) {
	return errand.Errand{Conn: l, NewID: func() string { return "call_1" }}, nil
}

// Run implements errand.Conn.
func (l *looker) Run(ctx context.Context, r agent.Request, s agent.Sink) (*agent.Outcome, error) {
	var in struct {
		Format treediff.Format
		Paths  [][]byte
	}
	if err := json.Unmarshal(r.Input, &in); err != nil {
		return nil, err
	}
	l.count(string(in.Format))
	var totals treediff.Totals
	at := int64(0)
	say := func(p []byte) error {
		at += int64(len(p))
		return s.Output(at-int64(len(p)), false, p)
	}
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	paths := slices.Sorted(maps.Keys(l.files))
	for i, p := range paths {
		if len(in.Paths) > 0 && !slices.ContainsFunc(in.Paths, func(some []byte) bool { return string(some) == p }) {
			continue
		}
		pair := &treediff.Pair{Path: p, New: treediff.Side{Kind: treediff.File, Mode: 0o644, Data: []byte(l.files[p])}}
		if old, err := os.ReadFile(filepath.Join(l.source, p)); err == nil {
			pair.Old = treediff.Side{Kind: treediff.File, Mode: 0o644, Data: old}
		}
		line := pair.Line()
		if line == nil {
			continue
		}
		if i == len(paths)/2 && l.amid != nil {
			l.amid()
		}
		var text bytes.Buffer
		switch in.Format {
		case treediff.Patch:
			t, err := pair.WritePatch(ctx, &text)
			if err != nil {
				return nil, err
			}
			totals.Added, totals.Removed = totals.Added+t.Added, totals.Removed+t.Removed
		case treediff.Archive:
			err := tw.WriteHeader(&tar.Header{Name: p, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(l.files[p]))})
			if err == nil {
				_, err = io.WriteString(tw, l.files[p])
			}
			if err != nil {
				return nil, err
			}
		default:
			totals.Added, totals.Removed = totals.Added+line.Added, totals.Removed+line.Removed
			if err := json.NewEncoder(&text).Encode(line); err != nil {
				return nil, err
			}
		}
		totals.Files++
		if err := say(text.Bytes()); err != nil {
			return nil, err
		}
	}
	end, err := json.Marshal(totals)
	if err != nil {
		return nil, err
	}
	switch in.Format {
	case treediff.List:
		err = say(fmt.Appendf(nil, "{\"totals\":%s}\n", end))
	case treediff.Archive:
		if err = tw.Close(); err == nil {
			err = say(archive.Bytes())
		}
	}
	return &agent.Outcome{Result: &run.Result{Output: string(end)}}, err
}

// newLooker makes a session that has changed files of the source, of so many bytes each.
func newLooker(t *testing.T, count, size int) (*Service, *looker) {
	t.Helper()
	needs.OpenAt2(t)
	s, o := newOne(t)
	l := &looker{one: o, source: t.TempDir(), files: make(map[string]string), asked: make(map[string]int)}
	s.sessions, s.looks, s.work = l, l.count, new(crew.Crew)
	t.Cleanup(func() { testrig.Must(t, s.work.Close(context.WithoutCancel(t.Context()))) })
	write := func(dir, name, text string) {
		p := filepath.Join(dir, name)
		testrig.Must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		testrig.Must(t, os.WriteFile(p, []byte(text), 0o644))
	}
	for i := range count {
		name := fmt.Sprintf("d%d/f%d", i%7, i)
		l.files[name] = strings.Repeat("mine ", size/5) + "\n"
		write(l.source, name, "as begun\n")
	}
	f, err := os.Open(l.source)
	testrig.Must(t, err)
	defer f.Close()
	of, err := worktree.SourceOf(l.source, f)
	testrig.Must(t, err)
	layers.After(layers.Now())
	testrig.Must(t, o.store.Begin(&layers.Tree{Session: "ses_2", Source: of, Since: layers.Now(), UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}))
	tree, err := o.store.Get("ses_2")
	testrig.Must(t, err)
	for name, text := range l.files {
		write(filepath.Join(o.store.Dir(), "layers", tree.Upper, "root"), name, text)
	}
	return s, l
}

func (l *looker) diff(t *testing.T, s *Service) (patch string, of *streamed) {
	t.Helper()
	r, err := s.Diff(t.Context(), auth.Principal{Admin: true}, "ses_2", client.DiffQuery{})
	testrig.Must(t, err)
	text, err := io.ReadAll(r)
	testrig.Must(t, err)
	testrig.Must(t, r.Close())
	return string(text), r.(*streamed)
}

// theirs is somebody's change of the source.
func (l *looker) theirs(t *testing.T, name string) {
	t.Helper()
	testrig.Must(t, os.WriteFile(filepath.Join(l.source, name), []byte("theirs\n"), 0o644))
}

// TestLooks: a diff goes through the layers once and looks at the source as often as it has to, however
// many files have changed: once behind a patch that is held until then, once more before one that is
// not, and where somebody has changed the source once for its survey and once in the end.
func TestLooks(t *testing.T) {
	t.Parallel()
	for _, o := range []struct {
		name         string
		count, size  int
		theirs       bool
		patch, stats string
		again        string // "" for patch
	}{
		{name: "few", count: 3, size: 5, patch: "patch 1, source 1, walk 1", stats: "changes 1, source 1, walk 1"},
		{name: "many", count: 1000, size: 5, patch: "patch 1, source 1, walk 1", stats: "changes 1, source 1, walk 1"},
		{name: "large", count: 60, size: 200_000, patch: "patch 1, source 2, walk 1", stats: "changes 1, source 1, walk 1"},
		{
			name: "of a changed source", count: 300, size: 5, theirs: true,
			patch: "archive 1, changes 1, patch 2, source 4, walk 1", stats: "archive 1, changes 1, source 3, walk 1",
			again: "archive 1, changes 1, patch 1, source 4, walk 1",
		},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			s, l := newLooker(t, o.count, o.size)
			l.diff(t, s) // what the session began with is kept
			l.counted()
			if o.theirs {
				l.theirs(t, "d1/f1")
			}
			patch, of := l.diff(t, s)
			if n := strings.Count(patch, "diff --git"); n != o.count || of.Stale() != 0 || strings.Contains(patch, "theirs") {
				t.Errorf("the patch has %d files, %d are stale", n, of.Stale())
			}
			if got := l.counted(); got != o.patch {
				t.Errorf("for the patch: %s; want %s", got, o.patch)
			}
			l.diff(t, s)
			if got := l.counted(); got != cmp.Or(o.again, o.patch) {
				t.Errorf("for another one: %s; want %s", got, cmp.Or(o.again, o.patch))
			}
			c, err := s.Changes(t.Context(), auth.Principal{Admin: true}, "ses_2", client.DiffQuery{Limit: o.count})
			if err != nil || c.Files != o.count {
				t.Fatalf("%+v, %v", c, err)
			}
			if got := l.counted(); got != o.stats {
				t.Errorf("for the list: %s; want %s", got, o.stats)
			}
		})
	}
}

// TestChangedMeanwhile: what somebody does to the source while the sandbox compares is in no patch, as
// long as that is held, and is said to be where it is not.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, o := range []struct {
		name        string
		count, size int
		gone        bool
		held        bool
	}{
		{name: "held", count: 50, size: 5, held: true},
		{name: "held, and removed", count: 50, size: 5, gone: true, held: true},
		{name: "passed on", count: 60, size: 200_000},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			s, l := newLooker(t, o.count, o.size)
			last := slices.Max(slices.Collect(maps.Keys(l.files)))
			once := sync.OnceFunc(func() {
				if o.gone {
					testrig.Must(t, os.Remove(filepath.Join(l.source, last)))
				} else {
					l.theirs(t, last)
				}
			})
			l.diff(t, s) // what the session began with is kept
			l.amid = once
			patch, of := l.diff(t, s)
			bad := strings.Contains(patch, "-theirs") || strings.Contains(patch, "new file")
			if n := strings.Count(patch, "diff --git"); n != o.count || bad == o.held || o.held && of.SourceChanged() != 1 || !o.held && of.Stale() != 1 {
				t.Errorf("%d files, %d stale, %d told against what the session began with; taken back: %v", n, of.Stale(), of.SourceChanged(), bad)
			}
		})
	}
}

// TestDiffBesideKeep: the sandbox compares while what a call has written is still looked at. What that
// keeps is known to the patch, and nobody else has the session's tree before both are over.
func TestDiffBesideKeep(t *testing.T) {
	t.Parallel()
	s, l := newLooker(t, 3, 5)
	row, _, err := l.Find(t.Context(), auth.Principal{}, "ses_2")
	testrig.Must(t, err)
	x, err := s.have(t.Context(), row, nil)
	testrig.Must(t, err)
	end := keepingOf(x)
	l.amid = sync.OnceFunc(func() {
		s.keepOf(t.Context(), x.tree, false)
		testrig.Must(t, os.Remove(filepath.Join(l.source, "d1/f1")))
		if mine, _ := s.locks.try("ses_2"); mine != nil {
			t.Error("the tree is anybody's")
			mine()
		}
		end()
	})
	patch, of := l.diff(t, s)
	if strings.Count(patch, "diff --git") != 3 || strings.Contains(patch, "new file") || of.SourceChanged() != 1 {
		t.Errorf("%d are told against what the session began with:\n%s", of.SourceChanged(), patch)
	}
	release, err := s.locks.take(t.Context(), "ses_2")
	testrig.Must(t, err)
	release()
	if _, err := s.Changes(t.Context(), auth.Principal{Admin: true}, "ses_2", client.DiffQuery{}); err != nil {
		t.Error("nobody joins what is over: ", err)
	}
}
