package attack

// A difference is a check of a row that fails on a tier, and is meant to: it says
// what is so there instead, and why. A difference that no check shows any more
// fails its row, like a check that fails without one.
type difference struct {
	tier string
	test string // the row's function
	// checks are the names that the row gives to holds; none when the row as a
	// whole means nothing on the tier.
	checks []string
	what   string // a clause, as docs/security.md shows it
	why    string // a sentence
}

// differences are all there are, in the order of docs/security.md's notes.
var differences = []difference{}
