package policy

import (
	"fmt"
	"strings"
	"testing"
)

// twoHundred are rules of the kinds that people write.
func twoHundred() string {
	var b strings.Builder
	b.WriteString("[permission.bash]\n\"*\" = \"ask\"\n")
	for i := range 100 {
		fmt.Fprintf(&b, "\"tool%d *\" = \"allow\"\n\"*--flag%d*\" = \"deny\"\n", i, i)
	}
	return b.String()
}

// BenchmarkJudge is a command of a kilobyte that only the first of 200 rules is
// about: every other one is tried.
func BenchmarkJudge(b *testing.B) {
	set, err := Parse("r", []byte(twoHundred()))
	if err != nil {
		b.Fatal(err)
	}
	s, err := set.Stack("", "default")
	if err != nil {
		b.Fatal(err)
	}
	q := []Request{{Permission: "bash", Pattern: "go test " + strings.Repeat("./internal/policy ", 57)}}
	if v := s.Judge(q); v.Action != Ask {
		b.Fatal(v)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Judge(q)
	}
}
