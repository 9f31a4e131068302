package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
)

// benchPolicy times the judgement of a command of a kilobyte by 200 rules of
// which the first decides, so that all are tried: in one session, and in a
// thousand by turns, each with rules of its own.
func benchPolicy(_ context.Context, l *lab) []row {
	const sessions = 1000
	set := get(policy.Parse("bench", rules()))
	base := get(set.Stack("", "default"))
	stacks := make([]*policy.Stack, sessions)
	for i := range stacks {
		stacks[i] = base.With(policy.Ceiling{Name: "session", Rules: []policy.Rule{
			{Permission: "bash", Pattern: fmt.Sprintf("push %d *", i), Action: policy.Deny, Source: "session rule 1"},
		}})
	}
	request := []policy.Request{{Permission: "bash", Pattern: "go test " + strings.Repeat("./internal/policy ", 57)}}
	judge := func(stack func(i int) *policy.Stack) stats {
		var took []float64
		for i := range l.n(5000) {
			s := stack(i)
			start := time.Now()
			v := s.Judge(request)
			took = append(took, float64(time.Since(start).Nanoseconds())/1e3)
			if v.Action != policy.Ask {
				must(fmt.Errorf("judged %s by %s", v.Action, v.Rule))
			}
		}
		return summarise(took)
	}
	one := judge(func(int) *policy.Stack { return stacks[0] })
	many := judge(func(i int) *policy.Stack { return stacks[i%sessions] })
	return append([]row{
		{Group: "policy", Name: "judge 1 KB by 200 rules", Unit: "µs", stats: one, Target: "≤ 50 µs"},
		row{Group: "policy", Name: "the same, 1,000 sessions by turns", Unit: "µs", stats: many, Target: "≤ 50 µs"}.against("one session", one),
	}, judgeText(l, base)...)
}

// judgeText times all of it: a command of a kilobyte is taken apart on its syntax
// tree, and what is found is judged.
func judgeText(l *lab, stack *policy.Stack) []row {
	var rows []row
	for _, c := range []struct{ name, text string }{
		{"one command", "go test " + strings.Repeat("./internal/policy ", 57)},
		{"twelve commands", strings.Repeat(`if grep -q "some text" docs/file.md; then echo "found it there" | tee -a out/log.txt; fi`+"\n", 12)},
	} {
		input := get(json.Marshal(map[string]string{"command": c.text}))
		inv := get(tool.NewRegistry().Parse("bash", input))
		var took []float64
		for range l.n(2000) {
			start := time.Now()
			stack.Judge(policy.AsWritten(inv, nil, policy.NoSession))
			took = append(took, float64(time.Since(start).Nanoseconds())/1e3)
		}
		rows = append(rows, row{Group: "policy", Name: "take apart and judge 1 KB, " + c.name, Unit: "µs", stats: summarise(took)})
	}
	return rows
}

// rules are 200 of the kinds that people write.
func rules() []byte {
	b := []byte("[permission.bash]\n\"*\" = \"ask\"\n")
	for i := range 100 {
		b = fmt.Appendf(b, "\"tool%d *\" = \"allow\"\n\"*--flag%d*\" = \"deny\"\n", i, i)
	}
	return b
}
