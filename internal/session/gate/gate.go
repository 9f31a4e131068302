// Package gate decides for one session which of its connections pass, and tells of them: it is
// between the way out of its network (package egress) and the rules, approvals and records of
// its calls.
package gate

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
)

// Calls are those of the session; a *call.Group is some.
type Calls interface {
	// Outgoing says whether a connection or a request may pass. It may wait for a person.
	Outgoing(ctx context.Context, o *call.Outgoing) policy.Verdict
	// Blocked notes for the results of calls that something did not pass.
	Blocked(calls []string, n remark.Denial)
}

// Config is what a Gate needs.
type Config struct {
	Session, Tenant string
	Calls           Calls
	// Stack gives the rules of the moment for a connection that these calls may have opened; nil
	// where everything is denied.
	Stack func(calls []string) *policy.Stack
	// Revision changes with the rules.
	Revision func() uint64
	// Closed says why the session has no network any more; "" while it has.
	Closed func() string
	// Learn says whether what no line of the rules is about is allowed.
	Learn func() bool
	Store *store.Store
	// Observe is told of each connection, and not of requests: allow, deny, or failed. dial is
	// how long the far side took to connect, 0 where it did not.
	Observe func(verdict string, up, down int64, dial time.Duration)
	Log     *slog.Logger
}

// Records of a session are stored at this rate; those that come faster are counted in the
// next one.
const (
	recordsPerSecond = 20
	recordsAtOnce    = 500
)

// Gate implements egress.Gate for one session.
type Gate struct {
	cfg     Config
	rate    *rate.Limiter
	records chan egress.Record
	done    chan struct{} // closed when no record is written any more
	stop    context.CancelFunc
	lost    atomic.Int64  // records that nobody could take
	wake    chan struct{} // when there are lost ones that write may not know of
}

// New makes a Gate, which is to be closed.
func New(cfg Config) *Gate {
	ctx, stop := context.WithCancel(context.Background())
	g := &Gate{
		cfg: cfg, rate: rate.NewLimiter(recordsPerSecond, recordsAtOnce),
		records: make(chan egress.Record, recordsAtOnce), done: make(chan struct{}), stop: stop,
		wake: make(chan struct{}, 1),
	}
	go g.write(ctx)
	return g
}

// Close stores what was told before and returns when that is done. No record comes after it.
func (g *Gate) Close() {
	g.stop()
	<-g.done
}

// Connect implements egress.Gate.
func (g *Gate) Connect(ctx context.Context, r egress.Request) egress.Verdict {
	host, err := endpoint.ParseHost(r.Host)
	if err != nil {
		return egress.Verdict{Rule: "default", Reason: err.Error()}
	}
	to := endpoint.Endpoint{Host: host, Port: r.Port}
	q := policy.Connection(to)
	if r.Address.IsValid() {
		q = address(&r)
	}
	return g.judge(ctx, r, q)
}

func address(r *egress.Request) policy.Request {
	return policy.Address(endpoint.Endpoint{Host: endpoint.HostOf(r.Address), Port: r.Port})
}

// Opens implements egress.Gate. Where nobody has named an address, it has to be public.
func (g *Gate) Opens(r egress.Request) (egress.Verdict, egress.Opening) {
	st := g.cfg.Stack(r.Calls)
	if st == nil {
		return egress.Verdict{}, egress.Refused
	}
	q := address(&r)
	v := st.JudgeOne(&q)
	out := verdict(&r, &v)
	switch {
	case v.Action == policy.Ask:
		return out, egress.Asked
	case v.Action != policy.Allow:
		return out, egress.Refused
	case v.Pattern == "":
		return out, egress.Public
	}
	return out, egress.Named
}

// Reads implements egress.Gate.
func (g *Gate) Reads(r egress.Request) egress.Reading {
	host, err := endpoint.ParseHost(r.Host)
	st := g.cfg.Stack(r.Calls)
	if err != nil || st == nil {
		return egress.Reading{Requests: true, Only: true} // it is denied anyway
	}
	read := st.Reads(endpoint.Endpoint{Host: host, Port: r.Port})
	out := egress.Reading{Requests: read.Requests, Only: read.Only, ByPort: read.ByPort, Rule: read.Rule}
	if read.TLS != nil {
		v := verdict(&r, read.TLS)
		out.TLS = &v
	}
	return out
}

// Revision implements egress.Gate.
func (g *Gate) Revision() uint64 { return g.cfg.Revision() }

// verdict is the answer to r. Where a name leads, and which addresses a rule is about, is none of the
// session's business.
func verdict(r *egress.Request, v *policy.Verdict) egress.Verdict {
	out := egress.Verdict{Allow: v.Action == policy.Allow, Rule: ruleText(v), Reason: v.Reason}
	if r.Address.IsValid() {
		host, err := endpoint.ParseHost(r.Host)
		if _, literal := host.Addr(); err != nil || !literal {
			out.Told = v.Rule
		}
	}
	return out
}

// HTTP implements egress.Gate.
func (g *Gate) HTTP(ctx context.Context, r egress.Request) egress.Verdict {
	q, err := endpoint.ParseRequest(r.Method, r.URL)
	if err != nil {
		return egress.Verdict{Rule: "default", Reason: err.Error()}
	}
	return g.judge(ctx, r, policy.HTTP(q))
}

func (g *Gate) judge(ctx context.Context, r egress.Request, q policy.Request) egress.Verdict {
	if why := g.cfg.Closed(); why != "" {
		return egress.Verdict{Rule: "[network] mode", Reason: why}
	}
	v := g.cfg.Calls.Outgoing(ctx, &call.Outgoing{Request: q, Calls: r.Calls, Exact: r.Exact, Learn: g.cfg.Learn(), Standing: r.Standing})
	return verdict(&r, &v)
}

// ruleText names the rule that decided, as config.toml:12 (network "*").
func ruleText(v *policy.Verdict) string {
	if v.Pattern == "" {
		return v.Rule
	}
	return v.Rule + " (" + v.Pattern + ")"
}

// Done implements egress.Gate.
func (g *Gate) Done(r egress.Record) {
	if r.Port == 0 && r.Error == "" {
		return
	}
	verdict := verdictOf(&r)
	if r.Method == "" {
		g.cfg.Observe(verdict, r.Up, r.Down, r.Dialed)
	}
	if verdict != "allow" {
		n := remark.Denial{To: cmp.Or(toOf(&r.Request), "a connection"), Rule: r.Inside(), Reason: r.Reason}
		if verdict == "failed" {
			n.Rule, n.Reason = "", r.Error
		}
		g.cfg.Calls.Blocked(r.Calls, n)
	}
	select {
	case g.records <- r:
	default: // the disk is slower than the session
		g.lost.Add(1)
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// verdictOf is what became of a connection: allow, deny, or failed, for what was allowed.
func verdictOf(r *egress.Record) string {
	switch {
	case !r.Allow && r.Error == "" || !r.Allow && r.Rule != "":
		return "deny"
	case r.Error != "":
		return "failed"
	}
	return "allow"
}

// toOf is what was wanted, in the words of rules.
func toOf(r *egress.Request) string {
	if r.Method != "" {
		return r.Method + " " + r.URL
	}
	host, err := endpoint.ParseHost(r.Host)
	if err != nil {
		return r.Host
	}
	return endpoint.Endpoint{Host: host, Port: r.Port}.String()
}

// write stores records, one after the other, and how many were left out, a second later
// where no record comes that says so. It sleeps while there is neither.
func (g *Gate) write(ctx context.Context) {
	defer close(g.done)
	var quiet <-chan time.Time
	for {
		if quiet == nil && g.lost.Load() > 0 {
			quiet = time.After(time.Second)
		}
		select {
		case r := <-g.records:
			g.record(&r)
		case <-g.wake:
		case <-quiet:
			quiet = nil
			g.tellLost()
		case <-ctx.Done():
			for len(g.records) > 0 {
				r := <-g.records
				g.record(&r)
			}
			g.tellLost()
			return
		}
	}
}

// record stores one, if there is room for it.
func (g *Gate) record(r *egress.Record) {
	if !g.rate.Allow() {
		g.lost.Add(1)
		return
	}
	lost := g.lost.Swap(0)
	g.store(typeOf(r), first(r.Calls), RecordOf(r, lost), lost+1)
}

// tellLost stores how many were left out, where no other record has said so.
func (g *Gate) tellLost() {
	if lost := g.lost.Swap(0); lost > 0 {
		g.store(client.EventNetworkLost, "", client.NetworkRecord{Permission: policy.PermissionNetwork, LeftOut: lost}, lost)
	}
}

// store stores an event; lost is what is lost with it.
func (g *Gate) store(typ, call string, v client.NetworkRecord, lost int64) {
	e := event.New(typ, g.cfg.Tenant, g.cfg.Session, call, v)
	if err := g.cfg.Store.Write(func(tx *store.Tx) error { tx.AddEvent(e); return nil }); err != nil {
		g.cfg.Log.Error("store the record of a connection", "session", g.cfg.Session, "error", err)
		g.lost.Add(lost)
	}
}

func typeOf(r *egress.Record) string {
	if verdictOf(r) == "deny" {
		return client.EventNetworkDenied
	}
	return client.EventNetworkAllowed
}

func first(calls []string) string {
	if len(calls) == 0 {
		return ""
	}
	return calls[0]
}

// RecordOf is a record as events have it.
func RecordOf(r *egress.Record, leftOut int64) client.NetworkRecord {
	v := client.NetworkRecord{
		Permission: policy.PermissionNetwork, To: toOf(&r.Request), Verdict: string(policy.Deny), Rule: r.Rule, Reason: r.Reason, Error: r.Error,
		Calls: r.Calls, Exact: r.Exact, Up: r.Up, Down: r.Down, DurationMillis: r.Took.Milliseconds(), LeftOut: leftOut,
	}
	if r.Method != "" {
		v.Permission = policy.PermissionHTTP
	}
	if r.Allow {
		v.Verdict = string(policy.Allow)
	}
	if r.Address.IsValid() {
		v.Address = r.Address.String()
	}
	return v
}

// Hosts sums records up by host and verdict, at most MaxHosts of them.
type Hosts struct {
	index map[hostKey]int
	list  []client.NetworkHost
	// LeftOut counts records of others, and those that were not stored.
	LeftOut int64
}

type hostKey struct{ permission, to, verdict, rule string }

// MaxHosts bounds what Hosts lists.
const MaxHosts = 1000

// Add adds the record of an event.
func (h *Hosts) Add(at time.Time, r *client.NetworkRecord) {
	h.LeftOut += r.LeftOut
	if r.Verdict == string(policy.Ask) || r.To == "" {
		return // it is told again when it is answered; or it says what was left out alone
	}
	key := hostKey{r.Permission, hostOf(r), r.Verdict, r.Rule}
	i, ok := h.index[key]
	if !ok {
		if len(h.list) == MaxHosts {
			h.LeftOut++
			return
		}
		if h.index == nil {
			h.index = make(map[hostKey]int)
		}
		i = len(h.list)
		h.index[key] = i
		h.list = append(h.list, client.NetworkHost{Permission: key.permission, To: key.to, Verdict: key.verdict, Rule: key.rule})
	}
	e := &h.list[i]
	e.Count++
	e.Up, e.Down, e.Last = e.Up+r.Up, e.Down+r.Down, at
	if r.Error != "" {
		e.Failed++
	}
}

// List gives them in the order in which they were first seen; never nil.
func (h *Hosts) List() []client.NetworkHost { return append([]client.NetworkHost{}, h.list...) }

// hostOf is the host of a record, without the path of a request.
func hostOf(r *client.NetworkRecord) string {
	if r.Permission != policy.PermissionHTTP {
		return r.To
	}
	method, url, _ := strings.Cut(r.To, " ")
	q, err := endpoint.ParseRequest(method, url)
	if err != nil {
		return r.To
	}
	return method + " " + strings.TrimSuffix(q.URL(), q.Path)
}
