package shell

import "testing"

// Bypasses is for the tests with the rules, which import this package's users.
var Bypasses = bypasses

// Denied reports whether a call with the command text is denied in a session with
// this shell, when an edit of file is denied and all else allowed. The tests with
// the rules set it.
var Denied func(t testing.TB, shell, text, file string) bool
