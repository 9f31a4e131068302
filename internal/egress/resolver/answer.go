// Package resolver is the resolver that sessions ask. It looks nothing up: each name gets an
// address of its own that stands for it, and who connects there is known to want that name.
package resolver

import (
	"errors"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/toold/toold/internal/endpoint"
)

// ttl of answers, in seconds. A name keeps its address for good.
const ttl = 60

// Answer gives the answer to a query, nil for what deserves none. addressOf gives the address
// that stands for a canonical name; refuse answers SERVFAIL in its place.
//
// Names have IPv4 addresses and nothing else: an empty answer to AAAA, HTTPS and SVCB lets
// programs use these at once.
func Answer(query []byte, refuse bool, addressOf func(name string) (netip.Addr, error)) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return failed(h, dnsmessage.RCodeFormatError)
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return failed(h, dnsmessage.RCodeFormatError)
	}
	if h.OpCode != 0 || q.Class != dnsmessage.ClassINET {
		return failed(h, dnsmessage.RCodeNotImplemented)
	}
	addr, code := lookUp(q, refuse, addressOf)
	return build(h, &q, code, addr)
}

// lookUp gives the address that the answer has, invalid for none.
func lookUp(q dnsmessage.Question, refuse bool, addressOf func(name string) (netip.Addr, error)) (netip.Addr, dnsmessage.RCode) {
	if refuse {
		return netip.Addr{}, dnsmessage.RCodeServerFailure
	}
	host, err := endpoint.ParseHost(q.Name.String())
	if _, literal := host.Addr(); err != nil || literal {
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	switch q.Type {
	case dnsmessage.TypePTR:
		return netip.Addr{}, dnsmessage.RCodeNameError
	case dnsmessage.TypeA:
	default:
		return netip.Addr{}, dnsmessage.RCodeSuccess
	}
	addr, err := addressOf(host.String())
	if err != nil {
		return netip.Addr{}, dnsmessage.RCodeServerFailure
	}
	return addr, dnsmessage.RCodeSuccess
}

func failed(h dnsmessage.Header, code dnsmessage.RCode) []byte {
	return build(h, nil, code, netip.Addr{})
}

func build(asked dnsmessage.Header, q *dnsmessage.Question, code dnsmessage.RCode, addr netip.Addr) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: asked.ID, Response: true, OpCode: asked.OpCode, RecursionDesired: asked.RecursionDesired, RecursionAvailable: true, RCode: code,
	})
	b.EnableCompression()
	if q != nil {
		err := errors.Join(b.StartQuestions(), b.Question(*q), b.StartAnswers())
		if addr.IsValid() {
			err = errors.Join(err, b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: ttl}, dnsmessage.AResource{A: addr.As4()}))
		}
		if err != nil {
			return nil
		}
	}
	answer, err := b.Finish()
	if err != nil {
		return nil
	}
	return answer
}
