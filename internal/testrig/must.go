package testrig

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Must ends the test where one of these is an error.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Wants fails the test for each of these that a text does not have.
func Wants(t testing.TB, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("got %q, want %q in it", got, w)
		}
	}
}

// Spent is the time that this process has computed for: on a machine that does other things
// as well, more passes.
func Spent(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
