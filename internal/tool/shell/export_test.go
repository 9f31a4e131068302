package shell

import (
	"math/rand/v2"
	"testing"
)

// Bypasses is for the tests with the rules, which import this package's users.
var Bypasses = bypasses

// Denied reports whether a call with the command text is denied where the shell that reads it
// is as o says, in the oracle with this home, when an edit of file is denied and all else allowed. The tests with
// the rules set it.
var Denied func(t testing.TB, o Options, home, text, file string) bool

// LeadsTo is where a path leads from a directory of the oracle on.
var LeadsTo = leadsTo

// Generate has f judge generated texts, with a simple command beside each.
func Generate(t *testing.T, short, long int, f func(r *rand.Rand, text, simple string)) {
	generate(t, short, long, func(g *grammar, text string) {
		f(g.Rand, text, g.pick("touch", "git", "ls", "cat", "b", "find", "printf", "rm", "./x", "d/x")+" "+g.word()+g.pick("", g.redirection()))
	})
}
