package replay

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
)

// eventPage is how many events are read at a time.
const eventPage = 500

// connection is what is judged once, however often it was wanted.
type connection struct{ session, permission, to string }

// connections judges what sessions reached by network, or wanted to, as far as it is on record:
// each host of a session once, as it was judged first.
func (y *replay) connections(ctx context.Context, f store.RecentFilter) error {
	seen := make(map[connection]bool)
	e := store.EventFilter{Tenant: f.Tenant, Session: f.Session, Type: "network.*", Limit: eventPage}
	for read := 0; read < f.Limit; read += eventPage {
		page, err := y.Store.Events(ctx, e)
		if err != nil {
			return fmt.Errorf("read connections: %w", err)
		}
		for i := range page {
			if page[i].Time.Before(f.Since) {
				continue
			}
			if err := y.connection(ctx, &page[i], seen); err != nil {
				return err
			}
		}
		if len(page) < eventPage {
			return nil
		}
		e.After = page[len(page)-1].ID
	}
	y.out.Notes = append(y.out.Notes, fmt.Sprintf("only the first %d connections on record were judged: ask for one session, or raise limit", f.Limit))
	return nil
}

func (y *replay) connection(ctx context.Context, e *client.Event, seen map[connection]bool) error {
	var r client.NetworkRecord
	if json.Unmarshal(e.Data, &r) != nil {
		return nil // of another version
	}
	key := connection{e.Session, r.Permission, r.To}
	input, ok := policy.OutgoingInput(r.Permission, r.To)
	if !ok || seen[key] {
		return nil
	}
	seen[key] = true
	requests, _, err := policy.Outgoing(r.Permission, input)
	if err != nil {
		y.passed++
		return nil // the host had no spelling: nothing can allow it
	}
	in, err := y.rulesOf(ctx, &store.Call{Call: client.Call{SessionID: e.Session}, Tenant: e.Tenant})
	if err != nil {
		return err
	}
	if in.rules == nil {
		y.passed++
		return nil
	}
	y.out.Calls++
	now, _ := in.rules.Judge(requests)
	return y.changed(client.PolicyChange{
		CallID: e.Call, SessionID: e.Session, Tool: r.Permission, Input: input, Time: e.Time, Was: r.Verdict, WasRule: r.Rule,
	}, now)
}
