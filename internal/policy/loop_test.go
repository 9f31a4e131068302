package policy

import (
	"strings"
	"testing"
)

// steps reads a history: each letter is an input, what follows it, if anything,
// its output; "A" alone has none yet. "Ax Ay" is one call with two answers.
func steps(text string) []Step {
	var all []Step
	for f := range strings.FieldsSeq(text) {
		s := Step{Input: Digest{f[0]}}
		copy(s.Output[:], f[1:])
		all = append(all, s)
	}
	return all
}

func TestLoops(t *testing.T) {
	usual := LoopConfig{Threshold: 3, PollingThreshold: 20, MaxPeriod: 4, HardLimit: 50}
	again := func(n int, round string) string { return strings.Repeat(round+" ", n) }
	// polls are answers that all differ.
	polls := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString("A" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + " ")
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, history string
		next          byte
		want          Loop // zero: none
	}{
		{"nothing before", "", 'A', Loop{}},
		{"second time", "Ax", 'A', Loop{}},
		{"third time", "Ax Ax", 'A', Loop{Period: 1, Count: 3}},
		{"fourth time, the third was let through", "Ax Ax Ax", 'A', Loop{Period: 1, Count: 4}},
		{"fourth time, the third was stopped", "Ax Ax A", 'A', Loop{Period: 1, Count: 4}},
		{"something else between", "Ax Ax Bx", 'A', Loop{}},
		{"something else next", "Ax Ax", 'B', Loop{}},
		{"other answers", "Ax Ay", 'A', Loop{}},
		{"an answer that stays", "Ax Ay Ay", 'A', Loop{Period: 1, Count: 3}},
		{"at once", "A A", 'A', Loop{Period: 1, Count: 3}},
		{"one runs still", "Ax A", 'A', Loop{Period: 1, Count: 3}},
		{"a stopped one counts, another answer before it does not", "Ax A Ay", 'A', Loop{Period: 1, Count: 3}},
		{"polling", polls(18), 'A', Loop{}},
		{"polling for too long", polls(19), 'A', Loop{Period: 1, Count: 20, Polling: true}},
		{"polling beyond all", polls(49), 'A', Loop{Period: 1, Count: 50, Polling: true, Hard: true}},
		{"polling in two answers by turns", "Ax Ay Ax Ay Ax Ay", 'A', Loop{}},
		{"A,B,A,B,A,B", "Ax By Ax By Ax", 'B', Loop{Period: 2, Count: 3}},
		{"A,B,A,B,A", "Ax By Ax By", 'A', Loop{}},
		{"A,B,A,B,A,C", "Ax By Ax By Ax", 'C', Loop{}},
		{"after a stopped B, A again", "Ax By Ax By Ax B", 'A', Loop{Period: 2, Count: 3}},
		{"A,B with B's answer changing", "Ax Bx Ax By Ax", 'B', Loop{}},
		{"A,B,C three times", "Ax By Cz Ax By Cz Ax By", 'C', Loop{Period: 3, Count: 3}},
		{"A,B,C in another order", "Ax By Cz Ax Cz By Ax By", 'C', Loop{}},
		{"A,A,B three times", "Ax Ax By Ax Ax By Ax Ax", 'B', Loop{Period: 3, Count: 3}},
		{"A,B,C,D three times", again(2, "Ax By Cz Dw") + "Ax By Cz", 'D', Loop{Period: 4, Count: 3}},
		{"A,B,C,D,E three times", again(2, "Ax By Cz Dw Ev") + "Ax By Cz Dw", 'E', Loop{}},
		{"a loop long ago", "Ax Ax Ax Ax By Cz", 'A', Loop{}},
		{"a loop at the end of work", "By Cz Dw Ax Ax", 'A', Loop{Period: 1, Count: 3}},
		{"the hard limit", again(49, "Ax"), 'A', Loop{Period: 1, Count: 50, Hard: true}},
		{"over the hard limit in a longer cycle", again(49, "Bx Ax Ax Ax") + "Bx Ax Ax", 'A', Loop{Period: 4, Count: 50, Hard: true}},
		{"the hard limit of a cycle", again(49, "Ax Bx") + "Ax", 'B', Loop{Period: 2, Count: 50, Hard: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := usual.Check(steps(tt.history), Digest{tt.next})
			if got != tt.want || ok != (tt.want != Loop{}) {
				t.Errorf("got %+v, %v, want %+v", got, ok, tt.want)
			}
		})
	}
}

func TestLoopSettings(t *testing.T) {
	long := steps(strings.Repeat("Ax ", 500))
	for _, tt := range []struct {
		name string
		c    LoopConfig
		want Loop
	}{
		{"off", LoopConfig{}, Loop{}},
		{"no hard limit", LoopConfig{Threshold: 3, PollingThreshold: 20, MaxPeriod: 4}, Loop{Period: 1, Count: 501}},
		{"no polling threshold", LoopConfig{Threshold: 3, MaxPeriod: 1}, Loop{Period: 1, Count: 501}},
		{"a threshold above", LoopConfig{Threshold: 502, MaxPeriod: 4}, Loop{}},
		{"a hard limit alone", LoopConfig{Threshold: 600, PollingThreshold: 600, MaxPeriod: 4, HardLimit: 50}, Loop{Period: 1, Count: 501, Polling: true, Hard: true}},
	} {
		if got, _ := tt.c.Check(long, Digest{'A'}); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if n := (LoopConfig{Threshold: 3, PollingThreshold: 20, MaxPeriod: 4, HardLimit: 50}).History(); n != 200 {
		t.Errorf("%d steps of history, want 200", n)
	}
}

// TestLoopNeedsNoMoreHistory: what is older than History makes no difference to
// whether there is a loop and whether it is a hard one.
func TestLoopNeedsNoMoreHistory(t *testing.T) {
	c := LoopConfig{Threshold: 3, PollingThreshold: 5, MaxPeriod: 3, HardLimit: 9}
	for _, round := range []string{"Ax", "Ax By", "Ax By Cz", "Ax Ay", "Ax Ay Az Aw Av Au At", "Ax By Ax Bz"} {
		all := steps(strings.Repeat(round+" ", 30))
		cut := all[len(all)-c.History():]
		for _, next := range []byte("ABC") {
			a, okA := c.Check(all, Digest{next})
			b, okB := c.Check(cut, Digest{next})
			a.Count, b.Count = min(a.Count, c.HardLimit), min(b.Count, c.HardLimit)
			if a != b || okA != okB {
				t.Errorf("%s, then %c: %+v with all, %+v with %d steps", round, next, a, b, len(cut))
			}
		}
	}
}

func BenchmarkLoop(b *testing.B) {
	c := LoopConfig{Threshold: 3, PollingThreshold: 20, MaxPeriod: 4, HardLimit: 50}
	history := steps(strings.Repeat("Ax Ay Bz Cw ", 128))
	for b.Loop() {
		c.Check(history, Digest{'A'})
	}
}

// TestPatient: of calls that look for news only very many are a loop.
func TestPatient(t *testing.T) {
	usual := LoopConfig{Threshold: 3, PollingThreshold: 20, MaxPeriod: 4, HardLimit: 50}
	for _, tt := range []struct {
		config LoopConfig
		before int
		found  bool
	}{{usual, 2, false}, {usual, 48, false}, {usual, 49, true}, {LoopConfig{Threshold: 3, MaxPeriod: 4}, 500, false}} {
		l, found := tt.config.Patient().Check(steps(strings.Repeat("Ax ", tt.before)), Digest{'A'})
		if found != tt.found || found && !l.Hard {
			t.Errorf("%+v after %d: got %+v, %v", tt.config, tt.before, l, found)
		}
	}
}
