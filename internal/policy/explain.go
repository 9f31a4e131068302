package policy

import "github.com/toold/toold/client"

// Explain judges requests like Judge and shows how: for each request every rule
// that matches in each layer, in the order of the layer, and which of them
// decides.
func (s *Stack) Explain(requests []Request) []client.PolicyRequest {
	all := make([]client.PolicyRequest, len(requests))
	for i := range requests {
		all[i] = s.explain(&requests[i])
	}
	return all
}

func (s *Stack) explain(q *Request) client.PolicyRequest {
	d, as := s.decideAs(q)
	e := client.PolicyRequest{
		Permission: q.Permission, Pattern: q.Pattern, Path: q.Path, Opaque: q.Opaque, Save: q.Save,
		Why: q.Why, Action: string(d.action), Rule: d.source(), Matches: []client.PolicyMatch{},
	}
	if !q.Opaque && (d.rule == nil || d.reason != d.rule.Reason) {
		e.Why = d.reason
	}
	q = as
	decides := func(rules []*rule, above int) *rule {
		switch {
		case d.unread:
			return d.rule
		case q.Prefixed && d.rule == nil && above > 0:
			return nil // the command without its variables is judged
		}
		return decider(rules, above, q)
	}
	e.Matches = appendMatches(e.Matches, layerRules, s.list, q, decides(s.list, s.above))
	for _, c := range s.ceilings {
		e.Matches = appendMatches(e.Matches, c.name, c.rules, q, decides(c.rules, 0))
	}
	if r := s.remembered(q); r != nil && d.layer == layerSaved {
		e.Matches = appendMatch(e.Matches, layerSaved, r, true)
	}
	return e
}

func appendMatches(all []client.PolicyMatch, layer string, rules []*rule, q *Request, winner *rule) []client.PolicyMatch {
	for _, r := range rules {
		if r.match(q) || r == winner {
			all = appendMatch(all, layer, r, r == winner)
		}
	}
	return all
}

func appendMatch(all []client.PolicyMatch, layer string, r *rule, winner bool) []client.PolicyMatch {
	m := client.PolicyMatch{
		Layer: layer, Permission: r.Permission, Pattern: r.Pattern, Action: string(r.Action),
		Source: r.Source, Reason: r.Reason, Winner: winner,
	}
	switch {
	case r.above:
		m.Action, m.Reason = "above", "leaves it to the rules above the profile"
	case layer == layerSaved:
		m.Action = string(Allow)
	}
	return append(all, m)
}
