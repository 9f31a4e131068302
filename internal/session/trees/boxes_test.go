package trees

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// maker makes sandboxes that do nothing.
type maker struct {
	*one
	there, most, made int
	fails             error
}

func (m *maker) Begin(context.Context, auth.Principal, client.SessionCreate, Seed) (*client.Session, Live, error) {
	if m.fails != nil {
		return nil, nil, m.fails
	}
	m.made++
	m.there++
	m.most = max(m.most, m.there)
	return &client.Session{ID: fmt.Sprint("ses_own", m.made)}, m, nil
}

func (m *maker) Errand() (errand.Errand, error) { return errand.Errand{}, nil }

func (m *maker) End(context.Context, auth.Principal, string) error {
	m.there--
	return nil
}

// TestOwnSandboxes: the daemon's own sandboxes, which look at sessions that are over, are bounded for a
// tenant and for all, whoever reads slowly. Who gets none may try again.
func TestOwnSandboxes(t *testing.T) {
	needs.OpenAt2(t)
	s, o := newOne(t)
	m := &maker{one: o}
	s.sessions, s.boxes.wait = m, time.Millisecond
	tree, err := o.store.Get("ses_1")
	testrig.Must(t, err)
	open := func(tenant string) (*view, error) {
		row := &store.Session{}
		row.ID, row.State, row.Tenant = "ses_1", client.SessionEnded, tenant
		x := &subject{shared: s.shared, row: row, tree: tree, shows: true}
		return x.look(t.Context(), auth.Principal{}, "")
	}
	full := func(tenant string) {
		t.Helper()
		_, err := open(tenant)
		if f, _ := errors.AsType[*fault.Error](err); f == nil || f.Kind != fault.Overloaded || f.Hint == "" {
			t.Errorf("one more of %s: %v", tenant, err)
		}
	}
	var views []*view
	for n := range maxBoxes {
		tenant := fmt.Sprint("tenant", n/maxTenantBoxes)
		v, err := open(tenant)
		testrig.Must(t, err)
		if views = append(views, v); len(views)%maxTenantBoxes == 0 {
			full(tenant)
		}
	}
	full("another")
	views[0].close()
	views[0].close() // once more is nothing
	full("tenant1")
	v, err := open("another")
	testrig.Must(t, err)
	full("tenant0")
	for _, v := range append(views[1:], v) {
		v.close()
	}
	m.fails = errors.New("no")
	for range 2 * maxBoxes {
		if _, err := open("tenant0"); !errors.Is(err, m.fails) {
			t.Fatal(err)
		}
	}
	m.fails = nil
	if v, err = open("tenant0"); err != nil {
		t.Fatalf("when all are closed: %v", err)
	}
	v.close()
	if m.most != maxBoxes || m.there != 0 {
		t.Errorf("there were %d at a time, and %d are left", m.most, m.there)
	}
}
