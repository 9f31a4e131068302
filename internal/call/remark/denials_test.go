package remark

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDenials(t *testing.T) {
	var s Denials
	if len(s.Lines()) > 0 || len(s.List()) > 0 {
		t.Error("none are some")
	}
	one := Denial{To: "api.example.com:443", Rule: `config.toml:12 (network "*")`}
	s.Add(one)
	s.Add(one)
	s.Add(Denial{To: "db.example:5432", Reason: "db.example:5432: connection refused"})
	s.Add(Denial{To: "db.example:5432", Reason: "another"})
	want := []string{
		`network: api.example.com:443 was denied by config.toml:12 (network "*")`,
		"network: db.example:5432 failed: db.example:5432: connection refused", "network: db.example:5432 failed: another",
	}
	if got := s.Lines(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range 100 {
		s.Add(Denial{To: fmt.Sprintf("h%d.example:443", i) + strings.Repeat("x", 5000), Rule: "default"})
	}
	lines := s.Lines()
	if n := len(lines); n != maxDenials || !strings.HasSuffix(lines[n-1], "(and 98 more: toolctl network log)") || len(lines[n-1]) > 600 {
		t.Errorf("%d lines, the last %q", n, lines[n-1])
	}
}
