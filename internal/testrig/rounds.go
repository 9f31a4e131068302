package testrig

import (
	"os"
	"testing"
)

// longer is how many times as many rounds there are with TOOLD_TEST_LONG: 5,000 of 200.
const longer = 25

// Rounds is how many rounds a random test has of those that it has in a full run: with
// -short a tenth, and one at least. TOOLD_TEST_LONG, whatever its value, is for running one
// such test for long by hand.
func Rounds(full int) int {
	switch {
	case os.Getenv("TOOLD_TEST_LONG") != "":
		return longer * full
	case testing.Short():
		return max(1, full/10)
	}
	return full
}
