package testrig

import (
	"fmt"
	"runtime"
	"testing"
)

// ending notes how a test would have ended.
type ending struct {
	testing.TB
	how string
}

func (*ending) Helper() {}

func (e *ending) Fatalf(format string, args ...any) {
	e.how = "fail: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (e *ending) Skipf(format string, args ...any) {
	e.how = "skip: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestSkipf(t *testing.T) {
	const skipped, failed = "skip: no runc", "fail: required here, but cannot run: no runc"
	for _, tt := range []struct{ required, lacks, want string }{
		{"", "oci", skipped},
		{"", "", skipped},
		{"oci", "oci", failed},
		{"runsc,oci,docker", "oci", failed},
		{"runsc, oci", "oci", failed},
		{"runsc,docker", "oci", skipped},
		{"ocifs", "oci", skipped},
	} {
		t.Setenv("TOOLD_TEST_REQUIRE", tt.required)
		e := &ending{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Skipf(e, tt.lacks, "no %s", "runc")
		}()
		<-done
		if e.how != tt.want {
			t.Errorf("TOOLD_TEST_REQUIRE=%q, a test that lacks %q: %q, want %q", tt.required, tt.lacks, e.how, tt.want)
		}
	}
}
