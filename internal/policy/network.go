package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/strictjson"
)

// The permissions of what leaves a sandbox. A rule is about them only where it names them
// just so. Their patterns are no wildcards: package endpoint has them.
const (
	// PermissionNetwork is for opening a connection; the text is host:port.
	PermissionNetwork = "network"
	// PermissionHTTP is for each request that can be seen; the text is METHOD URL.
	PermissionHTTP = "http"
)

// outgoing are the permissions of connections and requests, which are no calls.
var outgoing = []string{PermissionNetwork, PermissionHTTP}

// Connection is the request to open a connection to e.
func Connection(e endpoint.Endpoint) Request {
	save := e.String()
	if e.Port == 80 || e.Port == 443 {
		save = strings.TrimSuffix(save, fmt.Sprintf(":%d", e.Port))
	}
	return Request{Permission: PermissionNetwork, Pattern: e.String(), Save: save, to: &e}
}

// HTTP is the request to send r over a connection that is open.
func HTTP(r endpoint.Request) Request {
	bare := r
	bare.Path = "/*"
	return Request{Permission: PermissionHTTP, Pattern: r.String(), Save: bare.String(), http: &r}
}

// Address is the request to dial e, an address that the host of a connection led to. It is judged by
// lines with an address or a CIDR alone, of which the last that matches decides; where there is
// none, it is allowed by default.
func Address(e endpoint.Endpoint) Request {
	q := Connection(e)
	q.dialled = true
	return q
}

// readings are what else a request may be taken for: a literal address is dialled, and may lead to
// one of IPv4 that is in it, and a lenient server reads a URL in another way. The strictest verdict
// counts.
func (q *Request) readings() []Request {
	other := *q
	switch {
	case q.to != nil:
		a, literal := q.to.Host.Addr()
		if !literal {
			return nil
		}
		other.dialled, other.within = true, q.to
		var all []Request
		for _, a := range endpoint.Readings(a) {
			other.to = &endpoint.Endpoint{Host: endpoint.HostOf(a), Port: q.to.Port}
			all = append(all, other)
		}
		return all
	case q.http != nil:
		if plain := q.http.Plain(); plain.Path != q.http.Path {
			other.http, other.plain = &plain, true
			return []Request{other}
		}
	}
	return nil
}

// outgoingInput is how a connection or a request stands in an explanation or a [[test]].
type outgoingInput struct {
	Address string `json:"address"` // of network: host:port
	Request string `json:"request"` // of http: METHOD URL
}

// Outgoing makes the request of a connection or an HTTP request that is written like the
// call of a tool: of the tool "network" with {"address": "HOST:PORT"}, or "http" with
// {"request": "METHOD URL"}. ok is false for every other name.
func Outgoing(name string, input json.RawMessage) (all []Request, ok bool, err error) {
	if !slices.Contains(outgoing, name) {
		return nil, false, nil
	}
	var in outgoingInput
	if err := strictjson.Decode(input, &in); err != nil {
		return nil, true, fmt.Errorf(`the input of %s does not fit: it is {"address": "HOST:PORT"} for network, {"request": "METHOD URL"} for http: %w`, name, err)
	}
	if name == PermissionNetwork {
		e, err := endpoint.Parse(in.Address)
		if err != nil {
			return nil, true, fmt.Errorf(`address: %w`, err)
		}
		return []Request{Connection(e)}, true, nil
	}
	method, url, found := strings.Cut(in.Request, " ")
	if !found {
		return nil, true, fmt.Errorf(`request: %q is not METHOD URL: write "GET https://example.com/"`, in.Request)
	}
	r, err := endpoint.ParseRequest(method, url)
	if err != nil {
		return nil, true, fmt.Errorf("request: %w", err)
	}
	return []Request{HTTP(r)}, true, nil
}

// OutgoingInput is the input of Outgoing that a text stands for.
func OutgoingInput(name, text string) (input json.RawMessage, ok bool) {
	in := map[string]string{"address": text}
	switch name {
	case PermissionNetwork:
	case PermissionHTTP:
		in = map[string]string{"request": text}
	default:
		return nil, false
	}
	b, err := json.Marshal(in)
	return b, err == nil
}

// outward is the compiled pattern of a rule about connections or requests.
type outward struct {
	host *endpoint.Pattern
	http *endpoint.RequestPattern
}

// compileOutward compiles the pattern of a rule for network or http; nil for other rules. A
// pattern that does not parse, which no rule has that was checked, is about nothing.
func compileOutward(r *Rule) *outward {
	switch r.Permission {
	case PermissionNetwork:
		if p, err := endpoint.ParsePattern(r.Pattern); err == nil {
			return &outward{host: &p}
		}
		return &outward{}
	case PermissionHTTP:
		if p, err := endpoint.ParseRequestPattern(r.Pattern); err == nil {
			return &outward{http: &p}
		}
		return &outward{}
	}
	return nil
}

// match reports whether the rule is about a connection or a request. One whose target is not
// known is matched by what denies only.
func (o *outward) match(q *Request, a Action) bool {
	opens := a == Allow || a == Ask
	switch {
	case q.dialled && o.host != nil:
		_, literal := o.host.Prefix()
		return literal && o.host.Match(*q.to, opens)
	case q.to != nil && o.host != nil:
		return o.host.Match(*q.to, opens)
	case q.http != nil && o.http != nil && a == Allow && o.http.Spelling() != nil:
		return false // as ever: no request is spelled so
	case q.http != nil && q.plain && o.http != nil:
		return o.http.MatchPlain(*q.http, opens)
	case q.http != nil && o.http != nil:
		return o.http.Match(*q.http, opens)
	}
	return !opens
}

// covers reports whether the pattern of a rule is about all that another's is about.
func (o *outward) covers(a Action, narrow *outward, b Action) bool {
	switch {
	case o.host != nil && narrow.host != nil:
		_, literal := o.host.Prefix()
		if _, dialled := narrow.host.Prefix(); dialled && !literal && b != Allow {
			return false // that line decides about what is dialled
		}
		return o.host.Covers(a != Deny, *narrow.host, b != Deny)
	case o.http != nil && narrow.http != nil:
		return o.http.String() == "*" || o.http.String() == narrow.http.String() && a == b
	}
	return false
}

// checkOutward checks the pattern of a rule for network or http.
func checkOutward(r *Rule) error {
	var err error
	if r.Permission == PermissionNetwork {
		_, err = endpoint.ParsePattern(r.Pattern)
	} else {
		_, err = endpoint.ParseRequestPattern(r.Pattern)
	}
	return err
}

// spelling says where the pattern of a rule for http is spelled as no request is.
func spelling(r *Rule) error {
	if r.Permission != PermissionHTTP {
		return nil
	}
	p, err := endpoint.ParseRequestPattern(r.Pattern)
	if err != nil {
		return nil // checkOutward says so
	}
	return p.Spelling()
}

// CheckSpelling refuses rules of a new session whose patterns are spelled as no request is. Rules
// that were stored before are about what was meant.
func CheckSpelling(name string, rules []client.RuleOf) error {
	var errs []error
	for i, r := range rules {
		if err := spelling(&Rule{Permission: r.Permission, Pattern: r.Pattern}); err != nil && len(errs) < maxProblems {
			errs = append(errs, fmt.Errorf("%s rule %d: %w", name, i+1, err))
		}
	}
	return errors.Join(errs...)
}

// Reading says how connections to a place are to be read for the rules of requests.
type Reading struct {
	// Requests: some request may be denied or asked about, so that what begins as one is read as
	// such, wherever it goes.
	Requests bool
	// Only: a rule names the place, so that nothing but requests passes. Rule is that one. ByPort:
	// it has the number of the port and is about plain HTTP alone, so that this is so on a port of
	// TLS too.
	Only, ByPort bool
	Rule         string
	// OnlyTLS: it is a port on which nothing but TLS passes, to the name that was asked for, whatever
	// Only says.
	OnlyTLS bool
	// TLS is the verdict on TLS there, nil where the rules say nothing of it: what a rule for
	// https asks or denies cannot be told apart.
	TLS *Verdict
}

// Reads says how connections to e are to be read.
func (s *Stack) Reads(e endpoint.Endpoint) Reading {
	var all Reading
	for _, rules := range s.layers() {
		for _, r := range rules {
			if r.outward == nil || r.outward.http == nil {
				continue
			}
			p := r.outward.http
			if _, alone := p.HTTPS(); r.Action != Allow && !alone {
				all.Requests = true // to whatever place a request goes, it may be for a host of that rule
			}
		}
	}
	if r, byPort := s.only(e); r != nil {
		all.Only, all.ByPort, all.Rule = true, byPort, r.Source+" ("+r.label+")"
	}
	if r := s.unread(e); r != nil {
		all.TLS = &Verdict{Action: Deny, Rule: r.Source, Pattern: r.label, Reason: reasonUnread}
	}
	all.OnlyTLS = onlyTLS(s.tls, e.Port) && !all.ByPort
	return all
}

// onlyTLS reports whether a port is 443 or one of those that [network] tls names.
func onlyTLS(named []uint16, port uint16) bool { return port == 443 || slices.Contains(named, port) }

// tlsOf are the ports that a table [network] names as those of TLS. What is wrong with it is for
// those to say who read the rest of it.
func tlsOf(raw any) []uint16 {
	table, _ := raw.(map[string]any)
	list, _ := table["tls"].([]any)
	var ports []uint16
	for _, v := range list {
		if n, ok := v.(int64); ok && n > 0 && n <= math.MaxUint16 {
			ports = append(ports, uint16(n))
		}
	}
	return ports
}

// layers are the list, and the rules of each ceiling.
func (s *Stack) layers() [][]*rule {
	all := [][]*rule{s.list}
	for _, c := range s.ceilings {
		all = append(all, c.rules)
	}
	return all
}

const reasonUnread = "requests by https cannot be read, so that none passes where a rule asks about some or denies them"

// unread is a rule that asks about requests by https to e, or denies them; nil for none. Those of
// "*" are about what can be read alone.
func (s *Stack) unread(e endpoint.Endpoint) *rule {
	for _, rules := range s.layers() {
		if r := unreadIn(rules, e); r != nil {
			return r
		}
	}
	return nil
}

func unreadIn(rules []*rule, e endpoint.Endpoint) *rule {
	for _, r := range slices.Backward(rules) {
		if r.outward == nil || r.outward.http == nil || !r.outward.http.About("https", e, r.Action != Deny) {
			continue
		}
		switch p := r.outward.http; {
		case r.Action == Allow && p.Whole() && p.Spelling() == nil:
			return nil
		case r.Action != Allow && !p.Every():
			return r
		}
	}
	return nil
}

// closes is the decision about a connection on which nothing but https passes, where that may
// not, and about a plain request where nothing but TLS passes. On other ports it is seen when the
// connection begins (see Reading).
func (s *Stack) closes(q *Request) (decision, bool) {
	switch {
	case q.dialled || q.written:
	case q.http != nil && q.http.Scheme == "http" && onlyTLS(s.tls, q.http.Port):
		if _, byPort := s.only(q.http.Endpoint); !byPort {
			return unreadable(rulePorts, reasonTLS), true
		}
	case q.to != nil:
		r := s.unread(*q.to)
		if r == nil {
			break
		}
		_, alone := r.outward.http.HTTPS()
		if onlyTLS(s.tls, q.to.Port) || alone && r.outward.http.Names("https", *q.to) {
			return unreadable(r, reasonUnread), true
		}
	}
	return decision{}, false
}

// rulePorts stands for the setting that makes a port one of TLS.
var rulePorts = &rule{Rule: Rule{Source: "[network] tls", Action: Deny}}

func unreadable(r *rule, reason string) decision {
	return decision{action: Deny, rule: r, reason: Join(r.Reason, reason), layer: layerRules, unread: true}
}

const (
	reasonOnly   = "nothing but HTTP that can be read passes there ([network] tls names ports of TLS)"
	reasonTLS    = "nothing but TLS passes on that port, unless a rule of http has its number (http://HOST:PORT/)"
	reasonPasses = "requests by https cannot be read: it passes where network allows the connection"
)

// byHTTPS is the decision about a request by https, which nobody reads: what holds for TLS to its
// host and port holds for it.
func (s *Stack) byHTTPS(q *Request) (decision, bool) {
	if q.http == nil || q.http.Scheme != "https" || q.written {
		return decision{}, false
	}
	e := q.http.Endpoint
	if r := s.unread(e); r != nil {
		return unreadable(r, reasonUnread), true
	}
	switch r, byPort := s.only(e); {
	case r != nil && (byPort || !onlyTLS(s.tls, e.Port)):
		return unreadable(r, reasonOnly), true
	case e.Port == 80 && !onlyTLS(s.tls, e.Port):
		return decision{action: Deny, reason: reasonOnly, layer: layerRules, unread: true}, true
	}
	return decision{action: Allow, reason: reasonPasses, layer: layerRules, unread: true}, true
}

// only is a rule about requests that names e, so that nothing but requests passes there; nil for none.
// byPort is as Reading has it.
func (s *Stack) only(e endpoint.Endpoint) (named *rule, byPort bool) {
	for _, rules := range s.layers() {
		for _, r := range rules {
			if r.outward != nil && r.outward.http != nil && !byPort && r.outward.http.Names("http", e) {
				named, byPort = r, r.outward.http.PlainPort() != 0
			}
		}
	}
	return named, byPort
}

// commonPorts are listened at where a rule opens every port, or what no line is about is
// allowed: a port has to be listened at to be seen.
var commonPorts = []uint16{
	21, 22, 25, 53, 110, 143, 389, 465, 587, 636, 873, 993, 995, 1433, 1521, 2049, 2375, 2376, 3000, 3306, 4222, 5000, 5001, 5432, 5671, 5672,
	5900, 6379, 6443, 6667, 8000, 8080, 8081, 8443, 8883, 8888, 9000, 9090, 9092, 9200, 9418, 11211, 27017,
}

// Listened are the ports that some rule of the list or a saved approval opens, and where a rule opens
// all of them common ones behind those. A session's programs cannot listen on them.
func (s *Stack) Listened() []uint16 {
	ports, every := s.Ports()
	if every {
		ports = append(ports, slices.DeleteFunc(slices.Clone(commonPorts), func(p uint16) bool { return slices.Contains(ports, p) })...)
	}
	return ports
}

// Ports are the ports that some rule of the list or a saved approval opens, sorted. every
// says that a rule opens all of them; 80 and 443 are always there.
func (s *Stack) Ports() (ports []uint16, every bool) {
	ports = []uint16{80, 443}
	for _, r := range slices.Concat(s.list, s.saved) {
		if r.outward == nil || r.outward.host == nil || r.Action == Deny {
			continue
		}
		if p := r.outward.host.Port(); p != 0 {
			ports = append(ports, p)
		}
		every = every || r.outward.host.EveryPort(true)
	}
	slices.Sort(ports)
	return slices.Compact(ports), every
}
