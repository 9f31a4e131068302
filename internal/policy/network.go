package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	case q.to != nil && o.host != nil:
		return o.host.Match(*q.to, opens)
	case q.http != nil && o.http != nil:
		return o.http.Match(*q.http, opens)
	}
	return !opens
}

// covers reports whether the pattern of a rule is about all that another's is about.
func (o *outward) covers(a Action, narrow *outward, b Action) bool {
	switch {
	case o.host != nil && narrow.host != nil:
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

// Opens reports whether a line of the rules with this address, or with a CIDR that it is in,
// allows connections to it, and no ceiling denies them: only then may addresses be dialled
// that are not public. asked says that somebody was asked about this very address and has
// allowed it; then a line that asks will do.
func (s *Stack) Opens(a netip.Addr, port uint16, asked bool) bool {
	q := Connection(endpoint.Endpoint{Host: endpoint.HostOf(a), Port: port})
	r := decider(s.list, s.above, &q)
	if r == nil || r.outward == nil || r.outward.host == nil {
		return false
	}
	if _, ok := r.outward.host.Prefix(); !ok || r.Action != Allow && (r.Action != Ask || !asked) {
		return false
	}
	d := s.decide(&q)
	return d.action == Allow || d.action == Ask && asked
}

// maxPieces bounds the answer of Private.
const maxPieces = 1000

// Private are the addresses to which lines with an address or a CIDR allow connections on a
// port, and no ceiling denies them (see Opens). Where there are more pieces than a bound, the
// others are left closed.
func (s *Stack) Private(port uint16) []netip.Prefix {
	lists := [][]*rule{s.list}
	for _, c := range s.ceilings {
		lists = append(lists, c.rules)
	}
	var all []netip.Prefix
	for _, r := range slices.Concat(lists...) {
		if r.outward == nil || r.outward.host == nil {
			continue
		}
		if p, ok := r.outward.host.Prefix(); ok && !slices.Contains(all, p) && len(all) < maxPieces {
			all = append(all, p)
		}
	}
	// Each is cut so that none has another in it: then one address speaks for all of a piece.
	var open []netip.Prefix
	for _, p := range all {
		for _, piece := range without(p, all) {
			if len(open) < maxPieces && s.Opens(piece.Addr(), port, false) {
				open = append(open, piece)
			}
		}
	}
	return open
}

// without is what is left of p beside those of others that are smaller and in it.
func without(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	pieces := []netip.Prefix{p}
	for _, o := range others {
		if o.Bits() <= p.Bits() || !p.Contains(o.Addr()) {
			continue
		}
		var next []netip.Prefix
		for _, piece := range pieces {
			next = append(next, cut(piece, o)...)
			if len(next) > maxPieces {
				return nil
			}
		}
		pieces = next
	}
	return pieces
}

// cut is p without o: for each bit that o has more, the half that o is not in.
func cut(p, o netip.Prefix) []netip.Prefix {
	switch {
	case !p.Overlaps(o):
		return []netip.Prefix{p}
	case o.Bits() <= p.Bits():
		return nil
	}
	var all []netip.Prefix
	for bits := p.Bits() + 1; bits <= o.Bits(); bits++ {
		b := o.Addr().AsSlice()
		b[(bits-1)/8] ^= 0x80 >> ((bits - 1) % 8)
		a, _ := netip.AddrFromSlice(b)
		all = append(all, netip.PrefixFrom(a, bits).Masked())
	}
	return all
}
