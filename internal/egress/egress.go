// Package egress is the way out of a session's network: what programs in its network
// namespace connect to arrives here, and goes on where its Gate allows it.
//
// The namespace has no device but its loopback. Every IPv4 address is made local to it, and
// listeners of the daemon's wait there on the ports that rules name, so that a connection to
// any address arrives at one of them, and the daemon sees where it was to go. A resolver in
// the namespace answers each name with a placeholder address, which is how the daemon learns
// the name. Nothing is resolved, dialled or sent for a connection before its Gate has allowed
// it, and the address that was dialled is judged again (see package guard).
//
// Everything that comes from a session is hostile. An error of any kind closes the connection.
package egress

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/toold/toold/internal/sandbox"
)

// Request is a connection that a session wants, or a request on one.
type Request struct {
	// Calls are those that may have opened the connection, the likeliest first: one where
	// Exact, else all that ran.
	Calls []string
	// Exact says that the kernel named the call.
	Exact bool
	// Host is a name or a literal address in its canonical form; Port is never 0.
	Host string
	Port uint16
	// Method and URL are those of a request that can be seen, "" for a connection. The URL is
	// absolute; it has no user, no fragment, and a port only where that is not its scheme's.
	Method, URL string
	// Address is set where Host led to it and it is to be dialled: it is judged by itself then.
	Address netip.Addr
	// Standing is for what was allowed before and is still open: nobody is asked.
	Standing bool
}

// Verdict is the answer to a Request.
type Verdict struct {
	Allow bool
	// Rule says where the decision comes from, such as config.toml:12 (network "*"); Reason is
	// one sentence for who asked.
	Rule, Reason string
	// Told is Rule as it may be shown inside the session, where that is less: of an address that
	// a name led to, the line alone. "" for all of Rule.
	Told string
}

// Inside is what may be shown inside the session of where the decision comes from.
func (v *Verdict) Inside() string { return cmp.Or(v.Told, v.Rule) }

// Opening says whether an address may be dialled.
type Opening int

// Openings. No rule names an address that is Public: it may be dialled if it is one.
const (
	Refused Opening = iota
	Asked           // Gate.Connect decides
	Public
	Named
)

// Reading says how connections to a place are read.
type Reading struct {
	// Requests: what begins as an HTTP request is read as such, so that each is judged.
	Requests bool
	// Only: nothing else passes, for Rule is about requests there; on ports of TLS that is so where
	// ByPort is set, for a rule that has the port's number and is about plain HTTP alone.
	Only, ByPort bool
	Rule         string
	// TLS denies TLS, which cannot be read; nil: it may pass.
	TLS *Verdict
}

// Gate decides what may pass. Its methods are called from many goroutines at once.
type Gate interface {
	// Connect decides on a connection, HTTP on a request of an allowed one. Both may wait for a
	// person, at most until ctx ends, as it does when the client hangs up: nothing is allowed then.
	Connect(ctx context.Context, r Request) Verdict
	HTTP(ctx context.Context, r Request) Verdict
	// Opens decides on r.Address without waiting. Verdict has the rule.
	Opens(r Request) (Verdict, Opening)
	// Reads says how a connection is read.
	Reads(r Request) Reading
	// Revision changes with the rules. What is open is judged again then.
	Revision() uint64
	// Done is told once of every connection and of every request that was judged, when it
	// is over. It must not block.
	Done(r Record)
}

// Record says what became of a Request.
type Record struct {
	Request
	Verdict
	// Error says in a few words why an allowed one failed, or which limit refused it: a name
	// that does not resolve, an address that no rule allows. "" when it went through.
	Error string
	// Address is what was dialled last, invalid for none.
	Address netip.AddrPort
	Began   time.Time
	Took    time.Duration
	Dialed  time.Duration // until the far side was connected, with name lookup; 0 where it was not
	// Up and Down are bytes to and from the far side. A request's are in its connection's too.
	Up, Down int64
}

// Limits bound what one session uses. 0 is the default of each.
type Limits struct {
	Connections int           // at once, held ones included; 256
	PerSecond   int           // new connections a second, with a burst of as many; 200
	Bytes       int64         // of all connections together, both directions; no bound
	Idle        time.Duration // without a byte in either direction; 10 minutes
	Names       int           // that the resolver gives an address to; 10,000
}

// Config is what Open needs to know.
type Config struct {
	Session string
	// Namespace is the session's network namespace, which Open uses and does not keep. nil
	// where it cannot be entered: only Relay is served then.
	Namespace *os.File
	// Relay gives the connections to ProxyPort and SocksPort that the session's agent passes on;
	// nil where there is none. Open takes it over.
	Relay sandbox.Relay
	// Names keeps the names that the session has looked up for the next daemon: a file of the
	// caller's, which Open does not close. nil: they end with this one.
	Names *os.File
	// Held are listeners of an earlier daemon in this namespace (see Network.Held), and whatever
	// an agent gave in their place. Open takes them over.
	Held []*os.File
	// Ports are those that rules name. 80 and 443 are there without it, and never more than
	// MaxPorts.
	Ports []uint16
	// TLS are ports besides 443 on which nothing but TLS passes, to the name that was asked for.
	TLS  []uint16
	Gate Gate
	// Calls gives the session's running calls, the oldest first. Call names the one whose programs
	// are in a v2 cgroup, by its id; a call that does not run is not believed. nil where cgroups
	// are not known.
	Calls func() []string
	Call  func(cgroup uint64) (id string, ok bool)
	// Resolver resolves allowed names; nil is the host's.
	Resolver *net.Resolver
	Limits   Limits
	Share    *Share // with the other sessions of the tenant; nil for none
	Log      *slog.Logger
}

// MaxPorts bounds the listeners of one session.
const MaxPorts = 64

// Ports and addresses inside a session. Nothing else of its loopback is the daemon's.
const (
	ProxyPort = 3128 // HTTP and CONNECT, on 127.0.0.1
	SocksPort = 1080 // SOCKS5, on 127.0.0.1
)
