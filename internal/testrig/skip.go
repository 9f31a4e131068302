package testrig

import (
	"os"
	"strings"
	"testing"
)

// Required reports whether TOOLD_TEST_REQUIRE, names with commas between them, has what a
// test lacks: "oci", "runsc", "docker", "root" and so on; "" never. CI sets it, so that a test which
// cannot run there is not taken for one that passed.
func Required(lacks string) bool {
	if lacks == "" {
		return false
	}
	for name := range strings.SplitSeq(os.Getenv("TOOLD_TEST_REQUIRE"), ",") {
		if strings.TrimSpace(name) == lacks {
			return true
		}
	}
	return false
}

// Skipf skips a test that cannot run here, or fails it where what it lacks is Required.
// The text says what is missing and how to get it.
func Skipf(t testing.TB, lacks, format string, args ...any) {
	t.Helper()
	if Required(lacks) {
		t.Fatalf("required here, but cannot run: "+format, args...)
	}
	t.Skipf(format, args...)
}
