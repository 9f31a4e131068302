package policy

// LoopConfig is [doom_loop].
type LoopConfig struct {
	Threshold        int // the call that would be the so many-th in a row is a loop
	PollingThreshold int // the same, for calls whose output changes
	MaxPeriod        int // longest cycle that is looked for
	HardLimit        int // so many repeats are denied whatever the rules say; 0 = off
}

// Digest is a hash that stands for an input or an output.
type Digest [32]byte

// Step is one call of a session's history, oldest first.
type Step struct {
	Input  Digest // of tool and input, with near repeats made equal
	Output Digest // of what it answered; zero where it has not ended, or did not run
}

// Loop is a repetition.
type Loop struct {
	Period  int  // 1: the same call again and again; 2: A,B,A,B …
	Count   int  // how often the cycle would have run with the call in question
	Polling bool // the outputs differ
	Hard    bool // over the hard limit
}

// Check says whether a call with this input, after this history, is a loop.
func (c LoopConfig) Check(history []Step, next Digest) (Loop, bool) { return Loop{}, false }
