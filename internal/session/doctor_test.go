package session

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/doctor"
)

// doctor is what a daemon has, over its sessions.
func (h *house) doctor() *doctor.Doctor { return doctorOf(h.m) }

func doctorOf(m *Manager) *doctor.Doctor {
	return doctor.New(doctor.Config{Sessions: m, Drivers: m.cfg.Drivers, Driver: m.cfg.Driver})
}

// TestDoctorNotices is the control of the probes: in a sandbox where no limit
// and no defence holds, none may be reported as holding.
func TestDoctorNotices(t *testing.T) {
	h := newHouse(t)
	h.set.Limits.CPUs, h.set.MaxLimits = 0, client.Limits{}
	h.open()
	d, err := h.doctor().Doctor(t.Context(), root, false)
	if err != nil || len(d.Checks) != 1 || d.Checks[0].Name != "fake" {
		t.Errorf("without probe: %+v, %v", d, err)
	}
	if d, err = h.doctor().Doctor(t.Context(), root, true); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range d.Checks {
		if c.Group == "runtime" || !c.Probed {
			continue
		}
		if c.Group == "network" { // its sandboxes have none, and that is said
			if c.Status != client.CheckWarn || c.Detail == "" {
				t.Errorf("%s %s: %s %s", c.Group, c.Name, c.Status, c.Detail)
			}
			continue
		}
		n++
		if c.Status != client.CheckFail || c.Detail == "" {
			t.Errorf("%s %s: %s %s", c.Group, c.Name, c.Status, c.Detail)
		}
	}
	if n == 0 || n%2 != 0 { // of two runtimes
		t.Errorf("%d checks", n)
	}
	if len(h.m.live()) != 0 {
		t.Error("a session of a probe is left")
	}
	h.host.fail("create", errors.New("boom"))
	d, err = h.doctor().Doctor(t.Context(), root, true)
	if err != nil || !slices.ContainsFunc(d.Checks, func(c client.Check) bool {
		return c.Group == "runtime" && c.Status == client.CheckFail && strings.Contains(c.Detail, "could not be made")
	}) {
		t.Errorf("a runtime that makes no sessions: %+v, %v", d, err)
	}
	h.host.fail("create", nil)
}

// Where sessions must have an image, those of probes have one.
func TestDoctorWithRequiredImage(t *testing.T) {
	h, g := imageHouse(t)
	h.set.RequireImage = true
	h.open()
	made := func() client.Check {
		d, err := h.doctor().Doctor(t.Context(), root, true)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(d.Checks, func(c client.Check) bool { return c.Group == "runtime" })
		return d.Checks[i]
	}
	if c := made(); c.Status != client.CheckOK || !strings.Contains(c.Detail, galleryDigest) {
		t.Errorf("%+v", c)
	}
	if g.holders() != 0 {
		t.Error("a probe still holds its image")
	}
	delete(g.held, "tools:1")
	if c := made(); c.Status != client.CheckFail || !strings.Contains(c.Detail, "toolctl image") {
		t.Errorf("without images: %+v", c)
	}
}
