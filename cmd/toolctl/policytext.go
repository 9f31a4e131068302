package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/toold/toold/client"
)

// verdictText shows how a call would be judged to a person: the verdict, then
// each request with the rules that match it.
func verdictText(a *app, to io.Writer, v *client.PolicyVerdict) {
	color, w := a.color(), &strings.Builder{}
	defer func() { fmt.Fprint(to, fold(w.String(), a.width(), "   ")) }()
	fmt.Fprintf(w, "%s: %s, for profile %s of tenant %s\n", line(v.Tool), painted(line(v.Action), wordColor(v.Action), color), line(v.Profile), line(v.Tenant))
	fmt.Fprintf(w, "  because of %s%s\n", line(v.Rule), reasonText(v.Reason))
	for i := range v.Requests {
		fmt.Fprintln(w)
		requestText(w, i+1, &v.Requests[i], color)
	}
	if len(v.Requests) == 0 {
		fmt.Fprint(w, "\nIt asks for nothing that a rule could refuse.\n")
	}
	if len(v.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range v.Notes {
		fmt.Fprintf(w, "note: %s\n", line(n))
	}
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + line(reason)
}

// requestText shows one request and, in the order in which they are asked, the
// rules that match it. Of each list the last one wins, and of the lists the
// strictest decides.
func requestText(w io.Writer, n int, r *client.PolicyRequest, color bool) {
	fmt.Fprintf(w, "%d. %s %s  %s\n", n, line(r.Permission), line(r.Pattern), painted("→ "+line(r.Action), wordColor(r.Action), color))
	if r.Path != "" && r.Path != r.Pattern {
		fmt.Fprintf(w, "   is %s\n", line(r.Path))
	}
	if r.Opaque {
		fmt.Fprintln(w, "   cannot be judged by its parts, only as a whole:", line(r.Why))
	} else if r.Why != "" {
		fmt.Fprintf(w, "   %s\n", line(r.Why))
	}
	matchTable(r, color).write(w)
	if len(r.Matches) == 0 {
		fmt.Fprintf(w, "   no rule matches: %s\n", line(r.Rule))
	}
	if r.Save != "" {
		fmt.Fprintf(w, "   an approval for always would allow %s %q\n", line(r.Permission), line(r.Save))
	}
}

// matchTable has a row for each rule that matches a request.
func matchTable(r *client.PolicyRequest, color bool) *table {
	t := &table{color: color}
	decided := false
	for i := range r.Matches {
		m := &r.Matches[i]
		row := []string{" ", m.Source, fmt.Sprintf("%s %q", m.Permission, m.Pattern), m.Action}
		switch {
		case m.Winner && !decided && m.Source == r.Rule:
			row, decided = append(row, "decides"+reasonText(m.Reason)), true
		case m.Winner:
			row = append(row, "the last that matches of "+m.Layer)
		}
		t.row(row...)
		t.paint(3, wordColor(m.Action))
	}
	return t
}
