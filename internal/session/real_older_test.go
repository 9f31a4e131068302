package session

import (
	"log/slog"
	"strings"

	"github.com/toold/toold/client"
)

// olderDatabase: a daemon that gets the database of an hour ago leaves the sandbox, the mounts and the
// changes alone of a session that it does not know, says so, and has it again with the right database.
func (r *treeRig) olderDatabase() {
	t := r.t
	t.Helper()
	older, newer, id := t.TempDir(), t.TempDir(), ""
	database(t, r.h.Dir, older)
	r.daemon(func(m *Manager) {
		s, err := m.Create(t.Context(), owner, client.SessionCreate{
			Name: "late", Worktree: client.Worktree{Source: r.src, Mode: client.WorktreeOverlay}, IdleTimeout: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID
		r.seen[id] = true
		r.bash(m, "echo one >one")
		r.late(m, "echo late >late; echo home >~/home; cat late", "late")
	})
	database(t, r.h.Dir, newer)

	database(t, older, r.h.Dir)
	log := new(logLines)
	m, stop, err := r.h.open(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	<-m.Collector.swept
	for _, dry := range []bool{true, false} {
		all, err := m.Collector.GC(t.Context(), owner, client.GCRequest{DryRun: dry})
		named := false
		for _, g := range all {
			named = named || g.Session == id
			if g.Removed {
				t.Errorf("with the older database: %+v is removed", g)
			}
		}
		if err != nil || !named {
			t.Errorf("with the older database, dry %v, gc names %+v, %v", dry, all, err)
		}
	}
	if ready := m.Ready(t.Context()); ready.Status != "ok" || len(ready.Warnings) == 0 {
		t.Errorf("with the older database ready says %+v", ready)
	}
	if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, id) {
		t.Errorf("with the older database the log has:\n%s", text)
	}
	if got := r.bash(m, "cat one"); got != "one" {
		t.Errorf("with the older database the session that it knows has %q", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	database(t, newer, r.h.Dir)
	r.daemon(func(m *Manager) {
		r.late(m, "cat late ~/home; echo again >again; cat again", "late\nhome\nagain")
		if _, err := m.End(t.Context(), owner, id, client.EndOptions{Discard: true}); err != nil {
			t.Error(err)
		}
	})
}

// late runs a command in the session that an older database does not know.
func (r *treeRig) late(m *Manager, command, want string) {
	r.t.Helper()
	c := realCall(r.t, m, "late", "bash", object{"command": command})
	if c.IsError || c.Error != nil || strings.TrimSpace(c.Output) != want {
		r.t.Errorf("%s: %+v", command, c)
	}
}
