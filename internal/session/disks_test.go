package session

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/fault"
)

// diskless is the fake host where no disk can be made.
type diskless struct{ *fakeHost }

func (diskless) Disks() error { return errors.New("no loop devices") }

// TestNoDisksIsSaid: where a host has no disks for sessions, a note says what lies in memory for that, and why; the brief has
// the size of /tmp, and who asks for a disk is told which field.
func TestNoDisksIsSaid(t *testing.T) {
	h := newHouse(t)
	h.set.Limits.Tmp = 0
	h.open()
	h.m.roster.cfg.Drivers["fake"] = diskless{h.host}
	s := h.create(alice, client.SessionCreate{})
	if !slices.Contains(s.Notes, "this host has no disks for sessions (no loop devices): the home directory and /tmp are in memory") {
		t.Errorf("notes %q", s.Notes)
	}
	live, err := h.m.Get(t.Context(), alice, s.ID)
	if err != nil || live.Limits.Tmp != 0 {
		t.Errorf("%+v, %v", live, err)
	}
	all := h.m.live()
	row := all[0].Row()
	if sizes := strings.Join(remark.Sizes(&row, false), ", "); row.HomeDisk || !strings.Contains(sizes, " in /tmp") {
		t.Errorf("on a disk %t, sizes %s", row.HomeDisk, sizes)
	}
	_, err = h.m.Create(t.Context(), alice, client.SessionCreate{Limits: client.Limits{Disk: 1 << 20}})
	checkPlace(t, "POST /v1/sessions", "limits", err)
	if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "no loop devices") {
		t.Errorf("%v", err)
	}
}
