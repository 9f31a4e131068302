package session

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// TestClockSet: whatever is done to the clock of the host while a daemon runs, or while none
// does, nothing goes before its time, and nothing in the hour after that.
func TestClockSet(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newHouse(t), t.TempDir()
	h.set.WorktreeRoots = []string{dir}
	h.set.Retention, h.set.Worktrees.Keep, h.set.Truncate.Keep = 48*time.Hour, 24*time.Hour, 24*time.Hour
	off, up, boot := time.Duration(0), time.Duration(0), int64(0)
	open := func() {
		t.Helper()
		m := h.build()
		m.clock = steady.NewSlow(m.clock.Mark(), func() steady.Moment {
			now := steady.Now()
			now.Wall, now.Up, now.Boot = now.Wall.Add(off+up), now.Up+up, now.Boot+boot
			return now
		})
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	open()
	s := h.changed(dir, client.SessionCreate{})
	c := h.call(s.ID, bashCall("big 100000"))
	if _, err := h.m.End(t.Context(), mounter, s.ID, client.EndOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	older := t.TempDir()
	h.stop()
	database(t, h.dir, older)
	open()
	stray := h.changed(dir, client.SessionCreate{})
	h.kill()
	database(t, older, h.dir)
	open()
	there := func() (all []string) {
		h.m.Collector.sweep(t.Context())
		for name, ok := range map[string]bool{"changes": h.has(s.ID), "changes of a stray": h.has(stray.ID), "sandbox of a stray": h.host.box(stray.ID) != nil} {
			if ok {
				all = append(all, name)
			}
		}
		if _, err := os.Stat(filepath.Join(h.dir, "output", s.ID, c.ID)); err == nil {
			all = append(all, "output")
		}
		if _, err := h.m.Get(t.Context(), mounter, s.ID); err == nil {
			all = append(all, "record")
		}
		slices.Sort(all)
		return all
	}
	all := []string{"changes", "changes of a stray", "output", "record", "sandbox of a stray"}
	for _, step := range []struct {
		what      string
		set, pass time.Duration
		restart   bool
		want      []string
	}{
		{"set forward", 100 * time.Hour, 0, false, all},
		{"an hour later", 0, 2 * time.Hour, false, all},
		{"a restart", 0, 0, true, all},
		{"set back", -200 * time.Hour, 0, true, all},
		{"an hour later", 0, 2 * time.Hour, false, all},
		{"set right", 100 * time.Hour, 0, false, all},
		{"it is time, and the clock was set", 2 * time.Hour, 22 * time.Hour, false, all},
		{"an hour later", -2 * time.Hour, 0, false, all},
		{"an hour later", 0, time.Hour, false, []string{"record"}},
		{"the retention is over", 0, 24 * time.Hour, false, nil},
	} {
		off, up = off+step.set, up+step.pass
		if step.restart {
			h.stop()
			open()
		}
		if got := there(); !slices.Equal(got, step.want) {
			t.Errorf("%s: there are %q, want %q", step.what, got, step.want)
		}
	}
}

// TestTTLByTheKernel: a session ends when its time is over, whatever the clock of the host says.
func TestTTLByTheKernel(t *testing.T) {
	h := newHouse(t)
	h.open()
	back, forward := h.create(alice, client.SessionCreate{TTL: client.Duration(time.Hour)}), h.create(alice, client.SessionCreate{TTL: client.Duration(time.Hour)})
	for id, shift := range map[string]time.Duration{back.ID: 24 * time.Hour, forward.ID: -24 * time.Hour} {
		s := h.m.liveByID(id)
		err := s.write("", func(r *store.Session) error {
			*r.Expires = r.Expires.Add(shift)
			if id == back.ID {
				r.Until = steady.Now().In(0)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	h.kill()
	h.open()
	testrig.Eventually(t, "the session whose time is over has ended", func() bool {
		s, err := h.m.Get(t.Context(), alice, back.ID)
		return err == nil && s.State == client.SessionEnded
	})
	if s, err := h.m.Get(t.Context(), alice, forward.ID); err != nil || s.State != client.SessionReady {
		t.Errorf("the clock was set forward: %+v, %v", s, err)
	}
}
