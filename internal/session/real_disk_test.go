package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// own are the loop devices of the disks of a house's sessions.
func (h *realHouse) own(t *testing.T) (all []string) {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if f, err := os.ReadFile(n); err == nil && strings.HasPrefix(string(f), h.Dir+"/driver/disks/own-") {
			all = append(all, strings.TrimSpace(string(f)))
		}
	}
	return all
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
}

// TestRealHome: the home directory is on a disk that comes with the first call that may write,
// is bounded, is found again by the next daemon, and goes with the session.
func TestRealHome(t *testing.T) {
	h := newRealHouse(t)
	m, stop, err := h.open(quiet())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 3 {
		s, err := m.Create(t.Context(), alice, client.SessionCreate{})
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, s.ID); s.Limits.Disk != 32<<20 {
			t.Errorf("limits are %+v", s.Limits)
		}
	}
	tool := func(session, name string, in object, want string) {
		t.Helper()
		if c := realCall(t, m, session, name, in); c.Error != nil || c.IsError || !strings.Contains(c.Output, want) {
			t.Errorf("%s %v: %q, error %v; want %q", name, in, c.Output, c.Error, want)
		}
	}
	one, two := ids[0], ids[1]
	promised := func(session string, want int64) {
		t.Helper()
		if n := m.liveByID(session).promised.Load(); n != want {
			t.Errorf("session %s is promised %d bytes, want %d", session, n, want)
		}
	}
	promised(one, 32<<20)
	tool(one, "glob", object{"pattern": "*"}, "")
	tool(one, "list", object{}, "")
	if all := h.own(t); len(all) > 0 {
		t.Errorf("sessions that have not written have %q", all)
	}
	tool(one, "write", object{"file_path": "/home/tool/.cache/x", "content": "first\n"}, "")
	tool(one, "bash", object{"command": "cat ~/.cache/x; touch /home/tool/mine; df -B1 --output=size ~ | tail -1"}, "first\n")
	if all := h.own(t); len(all) != 1 || !strings.HasSuffix(all[0], "own-"+one+" (deleted)") {
		t.Errorf("there are %q", all)
	}
	if c := realCall(t, m, one, "bash", object{"command": "cat /dev/zero >~/big"}); c.Metadata["reason"] != "disk" || c.Metadata["full"] != "/home/tool" {
		t.Errorf("a full home directory: %v, %q", c.Metadata, c.Output)
	}
	tool(two, "bash", object{"command": "head -c 8M /dev/zero >~/x; sync; ls ~"}, "x\n")

	if err := stop(); err != nil { // as if it was killed: it closes nothing of a session's
		t.Fatal(err)
	}
	if m, stop, err = h.open(quiet()); err != nil {
		t.Fatal(err)
	}
	promised(one, 0)
	promised(ids[2], 32<<20)
	tool(one, "bash", object{"command": "cat ~/.cache/x; ls ~"}, "first\nbig\nmine\n")
	if all := h.own(t); len(all) != 2 {
		t.Errorf("after a restart there are %q", all)
	}
	if err := errors.Join(m.EndAll(context.Background()), stop()); err != nil {
		t.Fatal(err)
	}
	for len(h.own(t)) > 0 { // the kernel lets go of them a moment later
		if t.Context().Err() != nil {
			t.Fatal("disks are left")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(h.Dir, "driver/disks/own-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
