package policy

// LoopConfig is [doom_loop]. The zero value finds no loops.
type LoopConfig struct {
	Threshold        int `toml:"threshold"`         // how many identical calls in a row make a loop
	PollingThreshold int `toml:"polling_threshold"` // the same, for calls whose output changes
	MaxPeriod        int `toml:"max_period"`        // longest cycle that is looked for
	HardLimit        int `toml:"hard_limit"`        // this many repeats are always denied; 0 = off
}

// Patient is c for calls that look for news: only the hard limit ends them.
func (c LoopConfig) Patient() LoopConfig {
	c.Threshold, c.PollingThreshold = c.HardLimit, 0
	return c
}

// Digest is a hash that stands for an input or an output.
type Digest [32]byte

// Step is one call of a session's history, oldest first.
type Step struct {
	Input  Digest // of tool and input, with near repeats made equal
	Output Digest // of what it answered; zero where it has not ended, or did not run
	// Call is its id and Tool the name of its tool, for whoever keeps the history.
	Call, Tool string
	// Part: it is a call of a batch.
	Part bool
}

// Loop is a repetition.
type Loop struct {
	Period  int  // 1: the same call again and again; 2: A,B,A,B …
	Count   int  // how often the cycle would have run with the call in question
	Polling bool // the outputs differ
	Hard    bool // over the hard limit
}

// Check says whether a call with this input, after this history, is a loop. The
// shortest cycle is the answer; one over the hard limit before one that is not.
//
// A call that has no output counts as a repeat of any with its input: several
// that were sent at once, or that were stopped, are no less a loop. So what was
// let through by an approval does not begin the count anew either.
//
// The cost is the length of the history times MaxPeriod at most; no more than
// History steps of it make a difference.
func (c LoopConfig) Check(history []Step, next Digest) (Loop, bool) {
	if c.Threshold < 2 {
		return Loop{}, false
	}
	fewest := c.Threshold // rounds that are a loop
	for _, n := range []int{c.PollingThreshold, c.HardLimit} {
		if n > 0 {
			fewest = min(fewest, n)
		}
	}
	var found Loop
	for period := 1; period <= c.MaxPeriod && period*fewest <= len(history)+1; period++ {
		l, ok := c.cycle(history, next, period)
		if ok && (found.Period == 0 || l.Hard && !found.Hard) {
			found = l
		}
	}
	return found, found.Period > 0
}

// MaxHistory is how many steps of a session are kept to look for loops in. A
// configuration that would need more is refused.
const MaxHistory = 512

// History is how many steps Check can make use of.
func (c LoopConfig) History() int {
	return max(c.Threshold, c.PollingThreshold, c.HardLimit) * c.MaxPeriod
}

// cycle looks for cycles of one period at the end of history.
func (c LoopConfig) cycle(history []Step, next Digest, period int) (Loop, bool) {
	if !primitive(history, next, period) {
		return Loop{}, false // a shorter cycle several times over
	}
	alike, same := repeats(history, next, period)
	// The steps that repeat one before them, and the first round, which does not.
	all, unchanged := (alike+period)/period, (same+period)/period
	l := Loop{Period: period, Count: all, Hard: c.HardLimit > 0 && all >= c.HardLimit}
	switch {
	case unchanged >= c.Threshold:
		l.Count = unchanged
		if l.Hard {
			l.Count = all
		}
	case all >= c.PollingThreshold && c.PollingThreshold > 0, l.Hard:
		l.Polling = true
	default:
		return Loop{}, false
	}
	return l, true
}

// repeats counts, from next backwards, the steps that have the input of the step
// one period before: alike whatever they answered, same as long as no answer
// differs from the one after it in the same place of the cycle.
func repeats(history []Step, next Digest, period int) (alike, same int) {
	known := make([]Digest, period) // of each place in the cycle, the answer seen last
	changed := false
	input := func(i int) Digest {
		if i == len(history) {
			return next
		}
		return history[i].Input
	}
	for i := len(history); i >= period && input(i) == history[i-period].Input; i-- {
		place, none := i%period, Digest{}
		if i < len(history) && history[i].Output != none {
			known[place] = history[i].Output
		}
		if before := history[i-period].Output; before != none && known[place] != none && before != known[place] {
			changed = true
		}
		alike++
		if !changed {
			same++
		}
	}
	return alike, same
}

// primitive reports whether the last round of a cycle is not itself a shorter
// cycle several times over.
func primitive(history []Step, next Digest, period int) bool {
	first := len(history) + 1 - period // of the round that next ends
	if first < 0 {
		return true
	}
	for short := 1; short < period; short++ {
		if period%short != 0 {
			continue
		}
		repeated := history[len(history)-short].Input == next
		for i := first; repeated && i+short < len(history); i++ {
			repeated = history[i].Input == history[i+short].Input
		}
		if repeated {
			return false
		}
	}
	return true
}
