package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session/lease"
	"github.com/toold/toold/internal/session/trees"
)

// Manager holds all sessions of a daemon. It is a life, which is a roster, which is a
// daemon: each adds what it guards and uses what lies below it, never above, so that what is
// given only a part of them can reach no more.
type Manager struct {
	*life

	// What else a client can do, each of its own type.
	Approvals *Approvals
	Policy    *Policy
	Files     *Files
	Events    *Events
	Images    *ImageStore
	Tools     *Toolbox
	Usage     *Usage
	Collector *Collector
	Networks  *Networks
	Caches    *Caches
	Door      *Door

	records *records
	drives  drives
	drain   time.Duration // how long Close waits for calls, which tests replace: drainTime
	stuck   time.Duration // and then for what does not end: stuckTime
}

// New makes a Manager. Start must be called before anything else.
func New(cfg Config) (*Manager, error) {
	if _, ok := cfg.Drivers[cfg.Driver]; !ok {
		return nil, fmt.Errorf("default driver %q is none of the given ones", cfg.Driver)
	}
	r := newRoster(newDaemon(cfg))
	records := &records{roster: r, outputs: outputs{roster: r}}
	r.calls = r.newCalls(records)
	if err := os.MkdirAll(cfg.OutputDir, 0o700); err != nil {
		return nil, fmt.Errorf("output directory: %w", err)
	}
	// Only the daemon may list or enter it: the directories of the sessions in
	// it are readable for all, because they are mounted into sandboxes.
	if err := os.Chmod(cfg.OutputDir, 0o700); err != nil {
		return nil, fmt.Errorf("output directory: %w", err)
	}
	if err := r.emptyUploads(); err != nil {
		return nil, fmt.Errorf("directory of uploads: %w", err)
	}
	var err error
	if r.leases, err = lease.Open(cfg.UIDClaims, cfg.UIDBase, cfg.Store); err != nil {
		return nil, fmt.Errorf("ranges of host uids are shared with other daemons by a file, which cannot be used: %w", err)
	}
	l := &life{roster: r, parts: partsOf(r)}
	m := &Manager{
		life: l, records: records, drain: drainTime, stuck: stuckTime,
		Approvals: &Approvals{r}, Policy: &Policy{r}, Files: &Files{r}, Events: &Events{r}, Images: &ImageStore{r.daemon},
		Tools: &Toolbox{r}, Usage: &Usage{roster: r}, Networks: &Networks{r}, Caches: &Caches{r}, Door: &Door{r}, Collector: &Collector{life: l, records: records, swept: make(chan struct{})},
	}
	cfg.Caches.Writes = r.diskWork
	type writer interface {
		AskRoom(room func(bytes int64) error)
	} // others write elsewhere, or nothing
	for name, driver := range cfg.Drivers {
		for _, x := range []any{driver, cfg.Images[name]} {
			if w, ok := x.(writer); ok {
				w.AskRoom(r.diskRoom)
			}
		}
	}
	r.trees = trees.New(cfg.Trees, overlaid{m}, r.log, &r.work)
	return m, nil
}

// Start takes over what an earlier daemon left (see recover.go) and then lets
// sessions and calls begin.
func (m *Manager) Start(ctx context.Context) error {
	m.store.OnEvents(m.hub.Publish)
	if err := m.approvals.Load(ctx); err != nil {
		return fmt.Errorf("read saved approvals: %w", err)
	}
	if m.shows.Load() != nil {
		return nil
	}
	if err := m.recover(ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	m.work.Go("recovery of worktrees", func() { m.trees.RecoverAll(m.ctx) })
	if err := m.approvals.EndLost(ctx); err != nil {
		return fmt.Errorf("end approvals that nothing waits for: %w", err)
	}
	m.keepClock()
	m.work.Go("sweeper", m.Collector.sweeper)
	m.work.Go("watch of the host's disk", diskWatch{m.roster}.watch)
	m.work.Go("watch of worktrees' disks", diskWatch{m.roster}.watchSources)
	m.work.Go("watch of the host's memory", memoryWatch{m.roster}.watch)
	busy := make(chan struct{}, 1)
	m.work.Go("watch of sockets", (&socketWatch{roster: m.roster, much: map[*Session]bool{}, silent: map[*Session]bool{}, busy: busy}).watch)
	m.work.Go("watch of locks", (&lockWatch{roster: m.roster, late: map[*Session]time.Duration{}, busy: busy}).watch)
	looked := make(chan struct{})
	m.work.Go("watch for what disks have lost", func() { diskWatch{m.roster}.watchLosses(looked) })
	select {
	case <-looked: // or the first calls would write to a disk that has lost something
	case <-time.After(lossesTime):
	}
	m.state.CompareAndSwap(int32(managerStarting), int32(managerReady))
	return nil
}

// Show makes a daemon of this one that takes over nothing and changes nothing, and shows what is on
// record: the disk of the state directory takes no writes, which why says. What is about a
// session's sandbox or worktree is refused as while a daemon starts. It is called before Start.
func (m *Manager) Show(why error) { m.shows.Store(&why) }

// MayChange refuses what would change something, in a daemon that only shows.
func (m *Manager) MayChange() error { return m.showing() }

// adoptAtOnce bounds how many sessions are taken over at a time.
const adoptAtOnce = 16

// recover takes over what an earlier daemon left: it adopts the sessions whose
// sandbox is alive and goes on with their calls, ends the others, and removes
// what is nobody's.
func (m *Manager) recover(ctx context.Context) error {
	if err := m.records.countRecords(ctx); err != nil {
		return err
	}
	if err := m.Door.restore(ctx); err != nil {
		return err
	}
	held, err := m.leases.Restore(ctx, uids{roster: m.roster}.mine(ctx))
	if err != nil {
		return err
	}
	rows, err := m.store.Sessions(ctx, store.SessionFilter{Live: true})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(adoptAtOnce)
	for _, row := range rows {
		g.Go(func() error {
			if err := m.adopt(ctx, *row); err != nil {
				return fmt.Errorf("session %s: %w", row.ID, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	garbage, err := m.Collector.collect(ctx, client.GCRequest{})
	if err != nil {
		m.log.Error("look for leftovers", "error", err)
	}
	for _, x := range garbage {
		if x.KeptUntil != nil {
			m.log.Error("kept what a session has that is not on record", "kind", x.Kind, "name", x.Name, "session", x.Session, "until", x.KeptUntil)
			continue
		}
		m.log.Warn("removed a leftover", "kind", x.Kind, "name", x.Name, "removed", x.Removed, "error", x.Error)
	}
	uids{roster: m.roster}.dropDeadLeases(held)
	return nil
}

// Reload replaces the settings for sessions and calls that begin afterwards. Calls
// that wait for approval are judged again.
func (m *Manager) Reload(s Settings) {
	before := make(map[*Session]*tool.Set)
	for _, v := range m.live() {
		before[v] = v.toolSet()
	}
	m.settings.Store(&s)
	warnOfSkills(m.log, s.Skills)
	m.court.Configure(s.court())
	m.approvals.Rejudge("")
	for _, v := range m.live() {
		v.rulesChanged(s.network(v.tenant.Name).TLS)
	}
	for v, set := range before {
		v.tellTools(set)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tenants {
		t.places.Move() // there may be more places
	}
}

// drainTime is how long Close waits for calls that are about to end anyway.
const drainTime = 2 * time.Second

// stuckTime is how long it waits for the rest, all of which has been told to end.
const stuckTime = 15 * time.Second

// Close lets go of everything and leaves the sessions and their calls running,
// for the next daemon. New work is refused at once; short calls may end first.
func (m *Manager) Close(ctx context.Context) error {
	ready := managerState(m.state.Swap(int32(managerDraining))) == managerReady
	idle, cancel := context.WithTimeout(ctx, m.drain)
	m.calls.AwaitIdle(idle)
	cancel()
	m.leave(call.ErrLeaving)
	m.hub.Close()
	// What else is at work ends by itself, unless a file system does not answer.
	ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), m.stuck, fmt.Errorf("it has not ended within %s", m.stuck))
	defer cancel()
	if ready { // else there may be sessions that it has not taken over
		m.Door.closing()
	}
	for _, s := range m.live() {
		m.work.Go("leave of "+s.id, func() { s.detach(ctx) })
	}
	err := m.work.Close(ctx)
	m.keepClock()
	err = errors.Join(err, m.mounts.Close())
	// The ranges of what goes on stay marked, for the next daemon to claim.
	if lerr := m.leases.Close(); !errors.Is(lerr, os.ErrClosed) {
		err = errors.Join(err, lerr)
	}
	return err
}

// EndAll ends every session, for daemons that live no longer than one command. What runs in
// them is asked to end first. It refuses new ones from then on.
func (m *Manager) EndAll(ctx context.Context) error {
	m.state.Store(int32(managerDraining))
	live := m.live()
	errs := make([]error, len(live))
	var wg sync.WaitGroup
	for i, s := range live {
		wg.Go(func() {
			errs[i] = s.end(ctx, ending{state: client.SessionEnded, reason: "the daemon ended"})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Ready implements server.Health.
func (m *Manager) Ready(ctx context.Context) client.Health {
	if status, why := m.phase(); status != "" {
		return client.Health{Status: status, Reasons: []string{why}}
	}
	var reasons, warnings []string
	for _, c := range m.Checks(ctx) {
		switch c.Status {
		case client.CheckFail:
			reasons = append(reasons, c.Detail)
		case client.CheckWarn:
			warnings = append(warnings, c.Detail+": "+c.Hint)
		case client.CheckOK, client.CheckNA:
		}
	}
	if len(reasons) > 0 {
		return client.Health{Status: "failing", Reasons: reasons}
	}
	return client.Health{Status: "ok", Warnings: append(warnings, m.Collector.strays.warnings(m.keepTime())...)}
}

// phase is the status of a daemon that starts or stops, and what it does then; "" in between.
func (m *Manager) phase() (status, why string) {
	switch managerState(m.state.Load()) {
	case managerStarting:
		if why := m.shows.Load(); why != nil {
			return "failing", "only what is on record is shown: " + (*why).Error()
		}
		return "starting", "sessions of the last run are being taken over"
	case managerDraining:
		return "draining", "the daemon is stopping"
	case managerReady:
		if m.drained.Load() {
			return "draining", "no new session begins: an administrator drains this daemon, until toolctl drain --off; calls go on"
		}
	}
	return "", ""
}

// Checks say for doctor whether sessions and calls can be made. Ready is made of them, so that
// both say the same.
func (m *Manager) Checks(ctx context.Context) (checks []client.Check) {
	add := func(name, fine, failing, hint string) {
		c := client.Check{Group: "daemon", Name: name, Status: client.CheckOK, Detail: fine}
		if failing != "" {
			c.Status, c.Detail, c.Hint = client.CheckFail, failing, hint
		}
		checks = append(checks, c)
	}
	_, phase := m.phase()
	hint := "wait until toolctl ready says ok"
	if m.shows.Load() != nil {
		hint = goesOn
	}
	add("takes work", "it has taken over the sessions of the last run", phase, hint)
	const fine = "the disk of the state directory has as much as must stay free"
	least := m.settings.Load().MinFree
	free, enough, err := m.room(ctx)
	lacks := fmt.Sprintf("only %s are free on the disk of the state directory, and %s must stay: outputs are not kept", client.Size(free), client.Size(least))
	switch {
	case err != nil:
		add("room for records", fine, err.Error(), freesSpace)
	case !enough:
		add("room for records", fine, lacks+", and large inputs refused", freesSpace)
	case free < least: // the database has room inside of its file
		checks = append(checks, client.Check{Group: "daemon", Name: "room for records", Status: client.CheckWarn, Detail: lacks, Hint: freesSpace})
	default:
		add("room for records", fine, "", "")
	}
	add("records", "they are stored", failingWith("records cannot be stored", m.store.Ready()), "the daemon's log has the cause; "+freesSpace)
	if m.cfg.Auditor != nil {
		add("audit log", "it refuses no call", failingWith("the audit log refuses calls", m.cfg.Auditor.Ready()),
			"look who changed it (toolctl audit verify), keep what is left of it, and restart toold; or free space on its disk")
		if c, noticed := &checks[len(checks)-1], m.cfg.Auditor.Noticed(); c.Status == client.CheckOK && noticed != "" {
			c.Status, c.Detail = client.CheckWarn, "the audit log is not as toold left it: "+noticed
			c.Hint = "look who did that (toolctl audit verify), and keep its files elsewhere; moved away while toold is stopped, they are not looked at again"
		}
	}
	add("driver "+m.cfg.Driver, "it answers", failingWith(fmt.Sprintf("the driver %s does not answer", m.cfg.Driver), m.drives.ask(ctx, m)),
		"see whether what it talks to runs; the daemon's log has the cause")
	checks = append(checks, trees.CheckApplies())
	return checks
}

// failingWith is what an error keeps from being done; "" for none.
func failingWith(what string, err error) string {
	if err == nil {
		return ""
	}
	return what + ": " + err.Error()
}

// driverFresh is how old the answer of a driver may be, and driverTime how long it
// may take: a Docker Engine may be far away.
const (
	driverFresh = 5 * time.Second
	driverTime  = 5 * time.Second
)

// drives keeps the last answer of the default driver.
type drives struct {
	mu  sync.Mutex // held while it is asked; guards the fields below
	at  time.Time
	err error
}

func (d *drives) ask(ctx context.Context, m *Manager) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || time.Since(d.at) >= driverFresh {
		// For whoever asks next, too: it does not end with this request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driverTime)
		defer cancel()
		_, d.err = m.cfg.Drivers[m.cfg.Driver].List(ctx, m.cfg.Owner)
		d.at = time.Now()
	}
	return d.err
}

// AllCalls are the calls of all sessions.
func (m *Manager) AllCalls() *call.Service { return m.calls }
