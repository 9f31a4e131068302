package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
)

// strays are sessions of which something is here, and that are not on record: a live
// sandbox, changes of a worktree, outputs. A session is on record before anything is made
// for it, and its record goes after all that it left, so that the database must be damaged
// or an older copy. Nothing of a stray is touched until [worktrees] keep is over: it goes on
// when the right database is put back.
type strays struct {
	mu   sync.Mutex           // guards when
	when map[string]time.Time // it was noticed, by session
}

const strayAdvice = "its session is not on record: the database is damaged or an older copy; stop the daemon and put the right one back, " +
	"and the session goes on; toolctl gc --unknown removes it now"

// look reports whether a session is a stray, and until when it is kept. Names that are no
// ids of sessions are of nobody.
func (x *strays) look(ctx context.Context, r *roster, session string) (until time.Time, stray bool, err error) {
	if !store.ValidID("ses_", session) {
		return until, false, nil
	}
	_, err = r.store.Session(ctx, session)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !errors.Is(err, store.ErrNotFound) {
		delete(x.when, session)
		return until, false, err
	}
	keep := r.keepTime()
	if when, ok := x.when[session]; ok {
		return when.Add(keep), true, nil
	}
	now, _ := r.clock.Now()
	noted := store.Stray{Session: session, When: now}
	known, err := r.store.Strays(ctx)
	if err != nil {
		return until, true, err
	}
	if i := slices.IndexFunc(known, func(k store.Stray) bool { return k.Session == session }); i >= 0 {
		noted = known[i]
	} else if err := r.store.Write(func(tx *store.Tx) error { return tx.NoteStray(noted) }); err != nil {
		return until, true, err
	}
	if x.when == nil {
		x.when = map[string]time.Time{}
	}
	x.when[session], until = noted.When, noted.When.Add(keep)
	r.log.Error("a session is not on record: the database is damaged or an older copy; what the session has here is kept for the right one",
		"session", session, "until", until)
	return until, true, nil
}

func (x *strays) any() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.when) > 0
}

// seen forgets those of which nothing was found any more.
func (x *strays) seen(r *roster, found []client.Garbage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.when {
		if slices.ContainsFunc(found, func(g client.Garbage) bool { return g.Session == id && !g.Removed }) {
			continue
		}
		if err := r.store.Write(func(tx *store.Tx) error { return tx.DropStray(id) }); err != nil {
			r.log.Error("forget a session that is not on record", "session", id, "error", err)
			continue
		}
		delete(x.when, id)
	}
}

// warnings say what there is of them, for an administrator.
func (x *strays) warnings(keep time.Duration) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.when) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(x.when))
	first := slices.MinFunc(ids, func(a, b string) int { return cmp.Or(x.when[a].Compare(x.when[b]), strings.Compare(a, b)) })
	return []string{fmt.Sprintf("%s something here, the first until %s (%s): the database is damaged or an older copy; "+
		"toolctl gc --dry-run lists what there is", plain.Count(len(ids), "session that is not on record has", "sessions that are not on record have"), x.when[first].Add(keep).UTC().Format(time.RFC3339), first)}
}

// Check says for doctor whether all that is here is on record.
func (c *Collector) Check() client.Check {
	check := client.Check{Group: "host", Name: "records of sessions", Status: client.CheckOK, Detail: "what is here belongs to sessions that are on record"}
	if w := c.strays.warnings(c.keepTime()); len(w) > 0 {
		check.Status, check.Detail = client.CheckFail, w[0]
		check.Hint = "stop the daemon and put the right database back, and these sessions go on; or remove what they have: toolctl gc --unknown"
	}
	return check
}
