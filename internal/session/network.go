package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/gate"
	"github.com/toold/toold/internal/store"
)

// network is the part of a session that is its way out: for mode "rules" what programs
// connect to arrives at the daemon, which dials what the rules allow.
type network struct{ roster *roster }

// wayOut is that of one session.
type wayOut struct {
	net   *egress.Network
	gate  *gate.Gate
	names *os.File         // that it has looked up
	in    *sandbox.Network // of the sandbox, as far as net has not taken it over
	ports []uint16         // that are listened at
	relay bool             // its namespace cannot be entered: the agent passes on what its proxies get
}

// claim settles the mode: a session can be stricter than the configuration, never less.
func (n network) claim(_ context.Context, pl *plan) error {
	most := pl.set.network(pl.p.Tenant).Mode
	mode := &pl.req.Network.Mode
	asked := *mode != ""
	switch *mode {
	case client.NetworkNone:
		return nil
	case client.NetworkRules:
		if most != client.NetworkRules && !pl.set.free(pl.p) {
			return fault.Forbidden.Errorf(`network.mode "rules": [network] mode is "none" for this tenant`).
				Next(`leave it out; an administrator can set [network] mode = "rules"`)
		}
	case "":
		*mode = cmp.Or(most, client.NetworkNone)
	default:
		return fault.In(fault.Invalid.Errorf("network.mode %q: use none or rules", shown(*mode)), "network", "mode")
	}
	if *mode == client.NetworkNone {
		return nil
	}
	d, ok := pl.driver.(sandbox.Networking)
	err := sandbox.ErrUnsupported
	if ok {
		err = d.Networking(cmp.Or(pl.req.Runtime, n.roster.cfg.Runtime))
	}
	switch {
	case err == nil:
		return nil
	case asked:
		return fault.In(fault.Invalid.Errorf(`network.mode "rules" is not possible with driver %s: %v`, pl.driver.Name(), err).
			Next(`use "none", or another runtime`), "network", "mode")
	}
	*mode = client.NetworkNone
	pl.notes = append(pl.notes, fmt.Sprintf("network: rules are not possible with this runtime, so there is none (%v)", err))
	return nil
}

func (n network) open(ctx context.Context, s *Session, _ *plan) error { return n.connect(ctx, s) }

func (n network) adopt(ctx context.Context, s *Session) error { return n.connect(ctx, s) }

// connect opens the way out, or takes over that of an earlier daemon.
func (n network) connect(ctx context.Context, s *Session) error {
	row := s.Row()
	if row.Network.Mode != client.NetworkRules {
		return nil
	}
	nw, ok := s.sandbox().(sandbox.Networked)
	if !ok {
		return fmt.Errorf("network of session %s: %w", s.id, sandbox.ErrUnsupported)
	}
	in, err := nw.Network()
	if err != nil {
		return fmt.Errorf("network of session %s: %w", s.id, err)
	}
	names, err := n.openNames(s.id)
	if err != nil {
		return errors.Join(fmt.Errorf("network of session %s: %w", s.id, err), in.Close())
	}
	w := &wayOut{gate: n.gateOf(s), names: names, in: in, relay: in.Relay != nil}
	w.ports = portsOf(s.judge.Rules(row.Profile).Stack())
	set := n.roster.settings.Load().network(row.Tenant)
	w.net, err = egress.Open(ctx, egress.Config{
		Session: s.id, Namespace: in.Namespace, Relay: in.Relay, Held: in.Held, Names: names, Call: in.Call,
		Ports: w.ports, TLS: set.TLS, Gate: w.gate, Calls: s.calls.RunningIDs,
		Limits: set.Limits, Share: s.tenant.egress, Log: s.log,
	})
	in.Held, in.Relay = nil, nil // taken over
	if err != nil {
		w.gate.Close()
		return errors.Join(fmt.Errorf("network of session %s: %w", s.id, err), names.Close(), in.Close())
	}
	s.mu.Lock()
	s.way = w
	s.mu.Unlock()
	return nil
}

// dir has a file for each session with the names that it has looked up. It lies beside the
// outputs, which are shown inside.
func (n network) dir() string { return filepath.Join(filepath.Dir(n.roster.cfg.OutputDir), "network") }

// openNames opens the file of a session.
func (n network) openNames(session string) (*os.File, error) {
	if err := os.MkdirAll(n.dir(), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(n.dir(), session), os.O_RDWR|os.O_CREATE, 0o600)
}

func (n network) gateOf(s *Session) *gate.Gate {
	return gate.New(gate.Config{
		Session: s.id, Tenant: s.tenant.Name, Calls: s.calls, Store: n.roster.store, Log: s.log,
		Stack:    s.calls.Stack,
		Revision: s.judge.Revision, Closed: n.closed(s.tenant.Name),
		Learn: func() bool { return n.roster.settings.Load().network(s.tenant.Name).Learn },
		Observe: func(verdict string, up, down int64, dial time.Duration) {
			n.roster.observe(func(o Observer) { o.Connection(verdict, up, down, dial) })
		},
	})
}

// closed gives the function that says why a live session has no network any more: the configuration
// gives none now. A session of a daemon of one user may have been made with one all the same.
func (n network) closed(tenant string) func() string {
	none := func() (*Settings, bool) {
		set := n.roster.settings.Load()
		return set, set.network(tenant).Mode != client.NetworkRules
	}
	set, already := none()
	asked := already && set.Private
	return func() string {
		if _, now := none(); now && !asked {
			return `it is "none" now`
		}
		return ""
	}
}

// portsOf are the ports that rules open.
func portsOf(st *policy.Stack) []uint16 {
	if st == nil {
		return nil
	}
	return st.Listened()
}

// close closes the way out. Its records are in the store then.
func (n network) close(s *Session, _ ending, _ error) (notes []string, err error) {
	err = s.closeWay()
	if rmErr := os.Remove(filepath.Join(n.dir(), s.id)); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) {
		err = errors.Join(err, rmErr)
	}
	return nil, err
}

// leftovers are files of sessions that are over.
func (n network) leftovers(context.Context) ([]leftover, error) {
	return leftIn(n.roster.liveByID, n.dir(), "network", func(id string) error { return os.Remove(filepath.Join(n.dir(), id)) })
}

// closeWay closes the daemon's end of the way out; the sandbox lives on.
func (s *Session) closeWay() error {
	s.mu.Lock()
	w := s.way
	s.way = nil
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	err := errors.Join(w.net.Close(), w.names.Close(), w.in.Close())
	w.gate.Close()
	return err
}

// alsoBefore adds ports that were listened at before, as far as there is room: the agent holds them
// until it is greeted again, so that they could not be listened at once more.
func alsoBefore(ports, before []uint16) []uint16 {
	for _, p := range before {
		if len(ports) < egress.MaxPorts && !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// rulesChanged listens at the ports of the rules of the moment, and at tls.
func (s *Session) rulesChanged(tls []uint16) {
	ports := portsOf(s.judge.Rules(s.Row().Profile).Stack())
	s.mu.Lock()
	w := s.way
	if w != nil {
		ports = alsoBefore(ports, w.ports)
		w.ports = ports
	}
	s.mu.Unlock()
	if w == nil {
		return
	}
	if err := w.net.SetPorts(ports, tls); err != nil {
		s.log.Warn("listen at the ports of the rules", "error", err)
	}
	w.net.Rejudge()
}

// Networks tells what sessions reached.
type Networks struct{ *roster }

// eventPage is how many events are read at a time.
const eventPage = 500

// Network sums up what a session of p's reached, or wanted to, from the stored events.
func (n *Networks) Network(ctx context.Context, p auth.Principal, session string) (*client.SessionNetwork, error) {
	row, err := n.rowOf(ctx, p, session)
	if err != nil {
		return nil, err
	}
	set := n.settings.Load().network(row.Tenant)
	var sum gate.Hosts
	f := store.EventFilter{Tenant: row.Tenant, Session: row.ID, Type: "network.*", Limit: eventPage}
	for {
		page, err := n.store.Events(ctx, f)
		if err != nil {
			return nil, n.internal("read the connections of a session", err)
		}
		for i := range page {
			var r client.NetworkRecord
			if err := json.Unmarshal(page[i].Data, &r); err != nil {
				return nil, n.internal("read the record of a connection", err)
			}
			sum.Add(page[i].Time, &r)
		}
		if len(page) < f.Limit {
			break
		}
		f.After = page[len(page)-1].ID
	}
	v := &client.SessionNetwork{Mode: row.Network.Mode, Hosts: sum.List(), LeftOut: sum.LeftOut}
	v.Learn = v.Mode == client.NetworkRules && set.Learn
	return v, nil
}
