package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/sandbox"
)

var root = auth.Principal{Tenant: "a", Admin: true}

// fake has sessions in which nothing is as it should be.
type fake struct {
	sandbox.Driver
	refuse, full, unknown error
	broken                map[string]error
}

func (f *fake) Runtimes(context.Context) ([]string, error) { return []string{"one", "two"}, f.unknown }

func (f *fake) Try(_ context.Context, name string) error { return f.broken[name] }

func (fake) Networking(string) error { return nil }

func (f *fake) Accepting() error { return f.refuse }

func (f *fake) Throwaway(_ context.Context, _ auth.Principal, r client.SessionCreate, use func(*client.Session, Call)) error {
	if f.full != nil {
		return f.full
	}
	use(&client.Session{Notes: []string{"a note of " + r.Runtime}}, func(client.CallCreate) (*client.Call, error) { return &client.Call{}, nil })
	return nil
}

func of(f *fake) *Doctor {
	return New(Config{
		Sessions: f, Drivers: map[string]sandbox.Driver{"fake": f}, Driver: "fake",
		Host: func(context.Context) []client.Check { return []client.Check{{Group: "hardening", Name: "one more"}} },
	})
}

func TestDoctorAsksForTheHost(t *testing.T) {
	d, err := of(&fake{}).Doctor(t.Context(), root, false)
	if err != nil || len(d.Checks) != 1 || d.Checks[0].Name != "one more" {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestNothingHolds is the control of the probes: where no limit and no defence holds,
// none may be reported as holding.
func TestNothingHolds(t *testing.T) {
	d, err := of(&fake{}).Doctor(t.Context(), root, true)
	if err != nil {
		t.Fatal(err)
	}
	probes, notes, second := 0, 0, 0
	for _, c := range d.Checks {
		switch {
		case c.Group == "runtime" && c.Status == client.CheckWarn:
			notes++
		case c.Group != "runtime" && c.Probed:
			probes++
			if c.Status != client.CheckFail || c.Detail == "" {
				t.Errorf("%s %s: %s %s", c.Group, c.Name, c.Status, c.Detail)
			}
			if strings.HasSuffix(c.Name, " (two)") {
				second++
			}
		}
	}
	if want := len(limitProbes()) + len(defenceProbes()) + 1; probes != 2*want || second != want || notes != 2 {
		t.Errorf("%d checks, %d of the second runtime, %d notes; want %d, %d, 2", probes, second, notes, 2*want, want)
	}
}

func TestNoSessions(t *testing.T) {
	d, err := of(&fake{full: errors.New("boom")}).Doctor(t.Context(), root, true)
	if err != nil || !slices.ContainsFunc(d.Checks, func(c client.Check) bool {
		return c.Group == "runtime" && c.Status == client.CheckFail && strings.Contains(c.Detail, "could not be made: boom")
	}) {
		t.Errorf("%+v, %v", d, err)
	}
	starting := errors.New("starting")
	if _, err := of(&fake{refuse: starting}).Doctor(t.Context(), root, true); !errors.Is(err, starting) {
		t.Errorf("a daemon that starts: %v", err)
	}
	if _, err := of(&fake{}).Doctor(t.Context(), auth.Principal{Tenant: "a"}, false); err == nil {
		t.Error("everybody may ask")
	}
}

// TestUnknownRuntimes: a runtime that cannot be looked at from inside is named, with the reason,
// and so is a driver that does not say which it has.
func TestUnknownRuntimes(t *testing.T) {
	d, err := of(&fake{broken: map[string]error{"one": errors.New("boom")}, unknown: errors.New("silence")}).Doctor(t.Context(), root, true)
	if err != nil {
		t.Fatal(err)
	}
	said, first := "", 0
	for _, c := range d.Checks {
		if c.Group == "runtime" && !c.Probed {
			said += c.Name + ": " + c.Detail + "\n"
		}
		if c.Probed && c.Group != "runtime" && !strings.HasSuffix(c.Name, " (two)") {
			first++
		}
	}
	if want := "fake: not looked at from inside, since its runtimes are not known: silence\none: not looked at from inside, since it does not work now: boom\n"; said != want || first != 0 {
		t.Errorf("said %q, %d checks of what does not work", said, first)
	}
}

func TestProbesStayInTheSandbox(t *testing.T) {
	for _, p := range slices.Concat(limitProbes(), defenceProbes()) {
		if !strings.HasPrefix(p.script, guard) {
			t.Errorf("%s has no guard", p.name)
		}
	}
}
