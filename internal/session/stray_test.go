package session

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
)

// database copies the files of the database from one directory to another; those that
// were there go.
func database(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"toold.db", "toold.db-wal", "toold.db-shm", "toold.db.journal"} {
		if err := os.Remove(filepath.Join(to, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// besideDatabase lists all else that is in the state directory.
func (h *house) besideDatabase() (all []string) {
	h.t.Helper()
	err := filepath.WalkDir(h.dir, func(path string, _ fs.DirEntry, err error) error {
		if !strings.HasPrefix(filepath.Base(path), "toold.db") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// TestOlderDatabase: a daemon that gets an older database, or one that has lost the end of
// its log, leaves all that it does not know as it is, says so, and goes on with it when the
// right database is back.
func TestOlderDatabase(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	older, newer := t.TempDir(), t.TempDir()
	h.stop()
	database(t, h.dir, older)
	h.open()
	s := h.changed(dir, client.SessionCreate{})
	c := h.call(s.ID, bashCall("big 100000"))
	over := h.changed(dir, client.SessionCreate{})
	h.finish(over.ID) // which the older database does not know either
	h.kill()
	database(t, h.dir, newer)
	before := h.besideDatabase()

	database(t, older, h.dir)
	h.open()
	h.m.Collector.sweep(t.Context())
	if now := h.besideDatabase(); !slices.Equal(now, before) {
		t.Errorf("with the older database there is\n%q\nbefore there was\n%q", now, before)
	}
	if h.host.box(s.ID) == nil {
		t.Fatal("the sandbox is gone")
	}
	ready := h.m.Ready(t.Context())
	if ready.Status != "ok" || len(ready.Warnings) != 1 || !strings.Contains(ready.Warnings[0], "2 sessions") {
		t.Errorf("ready: %+v", ready)
	}
	if check := h.m.Collector.Check(); check.Status != client.CheckFail || check.Hint == "" {
		t.Errorf("doctor: %+v", check)
	}
	for _, dry := range []bool{true, false} {
		all, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{DryRun: dry})
		kinds := map[string]bool{}
		for _, g := range all {
			kinds[g.Kind] = true
			if g.Removed || g.KeptUntil == nil || g.Error == "" {
				t.Errorf("dry %v: %+v", dry, g)
			}
		}
		if err != nil || !kinds["container"] || !kinds["worktree"] || !kinds["output"] {
			t.Errorf("dry %v: %+v, %v", dry, all, err)
		}
	}
	h.create(alice, client.SessionCreate{}) // which gets another range of uids
	h.endAll()

	h.kill()
	database(t, newer, h.dir)
	h.open()
	if got, err := h.m.Get(t.Context(), mounter, s.ID); err != nil || got.State != client.SessionReady {
		t.Errorf("with the right database the session is %+v, %v", got, err)
	}
	if n := len(h.output(c.ID)); n != 100000 {
		t.Errorf("%d bytes of its output are there", n)
	}
	if c := h.call(s.ID, bashCall("echo again")); c.Output != "again\n" {
		t.Errorf("call: %+v", c)
	}
	if !h.has(over.ID) || len(h.m.Ready(t.Context()).Warnings) != 0 || h.m.Collector.Check().Status != client.CheckOK {
		t.Errorf("with the right database: %+v", h.m.Ready(t.Context()))
	}
}

// TestStraysGo: what sessions have that are not on record goes when its time is over,
// which a restart does not begin anew, and when an administrator asks for it.
func TestStraysGo(t *testing.T) {
	needs.OpenAt2(t)
	for name, remove := range map[string]func(h *house){
		"by request": func(h *house) {
			if _, err := h.m.Collector.GC(h.t.Context(), root, client.GCRequest{Unknown: true}); err != nil {
				h.t.Error(err)
			}
		},
		"by time": func(h *house) {
			h.stop()
			h.set.Worktrees.Keep = time.Nanosecond
			h.open()
			h.m.Collector.sweep(h.t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, dir := newOverlaid(t)
			older := t.TempDir()
			h.stop()
			database(t, h.dir, older)
			h.open()
			s := h.changed(dir, client.SessionCreate{})
			h.call(s.ID, bashCall("big 100000"))
			h.kill()
			database(t, older, h.dir)
			h.open()
			remove(h)
			if h.host.box(s.ID) != nil || h.has(s.ID) || len(h.layers()) != 0 {
				t.Error("something of it is left")
			}
			if _, err := os.Stat(filepath.Join(h.dir, "output", s.ID)); err == nil {
				t.Error("its outputs are left")
			}
			noted, err := h.store.Strays(t.Context())
			if w := h.m.Ready(t.Context()).Warnings; len(w) != 0 || len(noted) != 0 || err != nil {
				t.Errorf("it is still known: %q, %v, %v", w, noted, err)
			}
		})
	}
}

// TestRecordsGoLast: what a session has kept goes before its record, so that nothing is
// taken for a stray that only was too old.
func TestRecordsGoLast(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	s := h.changed(dir, client.SessionCreate{})
	h.call(s.ID, bashCall("big 100000"))
	if _, err := h.m.End(t.Context(), mounter, s.ID, client.EndOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	h.set.Retention = time.Nanosecond
	h.m.Reload(h.set)
	testrig.Eventually(t, "its record is gone", func() bool { // which is older than a millisecond then
		h.m.Collector.sweep(t.Context())
		_, err := h.m.Get(t.Context(), mounter, s.ID)
		return codeOfErr(err) == client.CodeNotFound
	})
	if _, err := os.Stat(filepath.Join(h.dir, "output", s.ID)); err == nil || h.has(s.ID) {
		t.Errorf("what it kept is left: %v", err)
	}
	if w := h.m.Ready(t.Context()).Warnings; len(w) != 0 {
		t.Errorf("it is taken for one that is not on record: %q", w)
	}
}
