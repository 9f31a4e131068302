package testrig

import "testing"

// Rounds is how many rounds a random test has of those that it has in a full run: with
// -short a tenth, and one at least.
func Rounds(full int) int {
	if testing.Short() {
		return max(1, full/10)
	}
	return full
}
