package remark

import (
	"fmt"
	"slices"

	"github.com/toold/toold/internal/plain"
)

// maxDenials bounds the lines of one result, and what its metadata lists.
const maxDenials = 5

// Denial is a connection, or a request, that did not pass.
type Denial struct {
	To     string `json:"to"`               // host:port, METHOD URL, or "a connection" that was refused unseen
	Rule   string `json:"rule,omitempty"`   // that denied it, such as config.toml:12 (network "*"); "" where it failed
	Reason string `json:"reason,omitempty"` // of the rule, or why it failed
}

func (d Denial) line() string {
	text := "network: " + plain.Cut(d.To, 200)
	if d.Rule == "" {
		return text + " failed: " + plain.Cut(d.Reason, 300)
	}
	text += " was denied by " + plain.Cut(d.Rule, 200)
	if d.Reason != "" {
		text += ": " + plain.Cut(d.Reason, 300)
	}
	return text
}

// Denials are those of one call: each once, the first few of them.
type Denials struct {
	all []Denial
	// more counts others that were noted after those, also where they are the same.
	more int
}

// Add notes one.
func (s *Denials) Add(d Denial) {
	switch {
	case slices.ContainsFunc(s.all, func(o Denial) bool { return o.To == d.To && o.Rule == d.Rule && (d.Rule != "" || o.Reason == d.Reason) }):
	case len(s.all) == maxDenials:
		s.more++
	default:
		s.all = append(s.all, d)
	}
}

// List gives them.
func (s *Denials) List() []Denial { return slices.Clone(s.all) }

// Lines gives the lines under a result; none where nothing was denied.
func (s *Denials) Lines() []string {
	var all []string
	for _, d := range s.all {
		all = append(all, d.line())
	}
	if s.more > 0 && len(all) > 0 {
		all[len(all)-1] += fmt.Sprintf(" (and %d more: toolctl network log)", s.more)
	}
	return all
}
